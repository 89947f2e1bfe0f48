"""Probabilities from blocks of the vocabulary are those of all logits at once, whatever the blocks."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from transformers import CohereConfig, CohereForCausalLM

from coalmine.models import TokenSequence, from_transformers, from_transformers_pairs
from coalmine.models.inference import incremental, projection
from coalmine.models.inference.projection import Projection
from coalmine.models.reference.networks import Network, head_of
from coalmine.randomness import arrays
from models.inference.test_reciting import scaled_logits
from models.random_networks import ARCHITECTURES, random_model
from models.tiny_pairs import byte_level_pairs, tiny_pairs
from models.tiny_transformers import byte_level, tiny


class OneLayer(Network):
    """A last layer alone; what it reads is given."""

    def __init__(self, layer, *, in_parts=True):
        torch.nn.Module.__init__(self)
        self.layer, self.in_parts = layer, in_parts

    @property
    def vocabulary(self):
        return self.layer.out_features

    def head(self):
        return head_of(self.layer) if self.in_parts else None

    def project(self, hidden):
        return self.layer(hidden)


def one_layer(vocabulary, *, width=7, bias=True, dtype=torch.float32, in_parts=True, size=3.0, seed=0):
    torch.manual_seed(seed)
    layer = torch.nn.Linear(width, vocabulary, bias=bias).to(dtype)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(vocabulary, width) * size)
    return OneLayer(layer, in_parts=in_parts)


def small_blocks(monkeypatch, rows, width):
    monkeypatch.setitem(projection.ROWS, "cpu", rows)
    monkeypatch.setitem(projection.WIDTH, "cpu", width)


def log2_of(logits, temperature=1.0):
    return (torch.log_softmax(logits.double() / temperature, dim=1) / math.log(2)).numpy()


@torch.inference_mode()
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_answer_is_that_of_all_logits_in_double_precision(data):
    vocabulary, many = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 12))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    network = one_layer(
        vocabulary, dtype=dtype, bias=data.draw(st.booleans()), in_parts=data.draw(st.booleans())
    )
    # Whole numbers, so that no order of summing changes a logit, and many are equal.
    hidden = torch.randint(-2, 3, (many, 7)).to(dtype)
    for parameter in network.parameters():
        parameter.copy_(torch.randint(-2, 3, parameter.shape))
    draw = arrays(data.draw(st.integers(0, 99)), "test", "questions")
    rows = draw.integers(0, many, data.draw(st.integers(0, 30)))
    tokens = draw.integers(0, vocabulary, len(rows))
    columns = draw.integers(0, vocabulary, data.draw(st.integers(1, 9)))
    logits = network.project(hidden)
    with pytest.MonkeyPatch.context() as patch:
        small_blocks(patch, data.draw(st.integers(1, 5)), data.draw(st.integers(1, 11)))
        asked = Projection(network, whole_at_a_time=data.draw(st.integers(1, 100)))
        judged = asked.judge(hidden, rows, tokens, temperatures=(1.0, 0.3, 4.0), ranks=True)
        log2 = asked.log2(hidden, columns)
        argmax = asked.argmax(hidden)
    within = 1e-4 if dtype == torch.float32 else 1e-10
    assert log2 == pytest.approx(log2_of(logits)[:, columns], abs=within)
    assert (log2 <= 0).all()
    assert argmax.tolist() == logits.argmax(dim=1).tolist()
    for place, temperature in enumerate((1.0, 0.3, 4.0)):
        assert judged.log2[:, place] == pytest.approx(log2_of(logits, temperature)[rows, tokens], abs=within)
    assert judged.is_argmax.tolist() == (logits.argmax(dim=1).numpy()[rows] == tokens).tolist()
    own = logits[rows, tokens]
    assert judged.ranks.tolist() == ((logits[rows] > own[:, None]).sum(dim=1) + 1).tolist()
    assert judged.highest.tolist() == logits.amax(dim=1).double().numpy()[rows].tolist()


@pytest.mark.parametrize("in_parts", [True, False])
@torch.inference_mode()
def test_of_equals_in_different_blocks_the_first_is_the_argmax(in_parts, monkeypatch):
    network = one_layer(12, in_parts=in_parts)
    network.layer.weight.zero_()
    network.layer.bias.zero_()
    network.layer.bias[[4, 5, 10]] = 2.0
    small_blocks(monkeypatch, 2, 3)
    asked = Projection(network, whole_at_a_time=24)
    hidden = torch.randn(3, 7)
    judged = asked.judge(hidden, np.zeros(12, np.int64), np.arange(12), ranks=True)
    assert judged.is_argmax.tolist() == [token == 4 for token in range(12)]
    assert judged.ranks.tolist() == [1 if token in (4, 5, 10) else 4 for token in range(12)]
    assert asked.argmax(hidden).tolist() == [4, 4, 4]


@torch.inference_mode()
def test_tokens_that_cannot_occur_and_values_that_are_not_numbers(monkeypatch):
    network = one_layer(12)
    network.layer.bias[3:9] = -math.inf  # the whole of two blocks
    small_blocks(monkeypatch, 2, 3)
    asked, hidden = Projection(network, whole_at_a_time=24), torch.randn(3, 7)
    log2 = asked.log2(hidden, np.arange(12))
    assert np.isneginf(log2[:, 3:9]).all()
    assert np.exp2(log2).sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    for broken in (math.nan, math.inf):
        network.layer.bias[5] = broken
        assert not np.isfinite(asked.log2(hidden, np.arange(12))).any()
        judged = asked.judge(hidden, np.arange(3), np.arange(3))
        assert not np.isfinite(judged.highest).any()
        assert not np.isfinite(judged.log2).any()


@torch.inference_mode()
def test_a_certain_token_has_no_more_than_all_probability():
    network = one_layer(5000)
    hidden = torch.randn(64, 7) * 30  # the highest logit is far above the others
    tokens = network.project(hidden).argmax(dim=1).numpy()
    judged = Projection(network, whole_at_a_time=1).judge(hidden, np.arange(64), tokens, ranks=True)
    assert (judged.log2 <= 0).all()
    assert judged.log2.max() > -1e-6
    assert judged.is_argmax.all()
    assert (judged.ranks == 1).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.inference_mode()
def test_half_precision_is_summed_in_single(dtype, monkeypatch):
    network = one_layer(60_000, dtype=dtype, size=0.1)
    hidden = torch.randn(5, 7, dtype=dtype)
    columns = np.array([0, 59_999, 777])
    expected = log2_of(network.project(hidden))[:, columns]
    small_blocks(monkeypatch, 3, 1000)
    found = Projection(network, whole_at_a_time=1).log2(hidden, columns)
    assert found == pytest.approx(expected, abs=0.02)


def cohere():
    torch.manual_seed(0)
    config = CohereConfig(
        vocab_size=len(byte_level()),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        initializer_range=0.5,
        logit_scale=0.25,
    )
    return CohereForCausalLM(config).eval()


def adapted(targets):
    torch.manual_seed(1)
    lora = LoraConfig(r=4, target_modules=targets, init_lora_weights=False)
    return get_peft_model(tiny("llama", len(byte_level())), lora).eval()


NETWORKS = {
    "gpt2": lambda: tiny("gpt2", len(byte_level())),
    "llama": lambda: tiny("llama", len(byte_level())),
    "mamba": lambda: tiny("mamba", len(byte_level())),
    "granite": lambda: scaled_logits("granite"),
    "gemma2": lambda: scaled_logits("gemma2"),
    "cohere": cohere,
    "an adapter of the layers": lambda: adapted(["q_proj"]),
    "an adapter of the last layer": lambda: adapted(["lm_head"]),
}


# Those whose last layer is more than a matrix product, or not read by itself.
WHOLE = {"mamba", "an adapter of the last layer"}


@pytest.mark.parametrize("kind", NETWORKS)
def test_models_of_transformers_say_what_they_say_themselves(kind, monkeypatch):
    network = NETWORKS[kind]()
    model = from_transformers(network, byte_level())
    assert (model._network.head() is None) == (kind in WHOLE)
    small_blocks(monkeypatch, 4, 37)
    texts = [(*model.context, 5, 6, *range(place, 60, 9)) for place in (7, 8, 9)]
    columns = np.array([3, 0, 699, 41, 40])
    scores = model.score([TokenSequence(text[:2], text[2:]) for text in texts], ranks=True)
    step = model.start([text[:5] for text in texts], columns=columns)
    step = model.step(step.states, np.array([2, 0]), np.array([9, 11]), columns=columns)
    for text, score in zip(texts, scores, strict=True):
        with torch.inference_mode():
            logits = network(input_ids=torch.tensor([text]), use_cache=False).logits[0, 1:-1].double()
        own = np.arange(len(text) - 2), np.array(text[2:])
        assert score.log2_probabilities == pytest.approx(log2_of(logits)[own], abs=2e-3)
        assert score.is_argmax.tolist() == (logits.argmax(dim=1).numpy() == own[1]).tolist()
        higher = (logits > logits[own][:, None]).sum(dim=1) + 1
        assert (
            np.abs(score.ranks - higher.numpy()).max() <= 1
        )  # of two that are as near as rounding, either may come first
    for row, text in enumerate([(*texts[2][:5], 9), (*texts[0][:5], 11)]):
        with torch.inference_mode():
            logits = network(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1:]
        assert step.log2_probabilities[row] == pytest.approx(log2_of(logits)[0, columns], abs=2e-3)


@pytest.mark.parametrize("kind", [*ARCHITECTURES, "pairs"])
def test_blocks_change_no_answer_of_a_network(kind, monkeypatch):
    if kind == "pairs":
        pairs = byte_level_pairs()
        model = from_transformers_pairs(tiny_pairs("bart", len(pairs) + 3), pairs).given("a source")
    else:
        model = random_model(kind, dtype=torch.float64)
    texts = [(*model.context, 1, 2, 3 + place % 4, *range(place % 5)) for place in range(9)]
    sequences = [TokenSequence(text[:2], text[2:]) for text in texts]

    def answers():
        step = model.start([text[:4] for text in texts], columns=np.array([5, 1, 30]))
        return [
            *(one.log2_probabilities for one in model.score(sequences)),
            *(one.is_argmax for one in model.score(sequences)),
            *(one.ranks for one in model.score(sequences, ranks=True)),
            *step.log2_probabilities,
            *model.generate([text[:4] for text in texts], length=4),
        ]

    whole = answers()
    small_blocks(monkeypatch, 2, 5)
    monkeypatch.setattr(incremental, "LOGITS_AT_A_TIME", 1)
    for first, second in zip(whole, answers(), strict=True):
        assert second == pytest.approx(first, abs=1e-4 if kind == "pairs" else 1e-9)
