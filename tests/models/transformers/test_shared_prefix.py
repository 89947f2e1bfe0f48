"""The keys and values of a shared prefix are there once, and give the numbers of a plain loop over transformers."""

import copy
import pickle
from functools import cache

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from coalmine.models import Sampling, TokenSequence, check_model, from_transformers
from coalmine.models.transformers import shared_cache
from models.allocations import peak_bytes
from models.tiny_transformers import byte_level, tiny

SIZE = len(byte_level())
IDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
SHAPE = {
    "vocab_size": SIZE, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "head_dim": 8, **IDS,
}  # fmt: skip


def eager_llama():
    found = tiny("llama", SIZE)
    found.set_attn_implementation("eager")
    return found


def adapted_llama():
    torch.manual_seed(1)
    config = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    adapted = get_peft_model(tiny("llama", SIZE), config)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    return adapted.double().eval()


def seeded(make):
    torch.manual_seed(2)
    return make().double().eval()


# By name: how to make a model, and how it reads a prefix.
MODELS = {
    "llama": (lambda: tiny("llama", SIZE), "folded"),
    "gpt2": (lambda: tiny("gpt2", SIZE), "folded"),
    "adapted llama": (adapted_llama, "folded"),
    "eager llama": (eager_llama, "repeated"),
    "alibi": (
        lambda: seeded(
            lambda: BloomForCausalLM(BloomConfig(vocab_size=SIZE, hidden_size=32, n_layer=2, n_head=4, **IDS))
        ),
        "repeated",
    ),
    # A window within the prefix.
    "sliding": (
        lambda: seeded(lambda: MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=9))),
        "folded",
    ),
    "capped": (lambda: seeded(lambda: Gemma2ForCausalLM(Gemma2Config(**SHAPE, sliding_window=9))), None),
}
GENERATOR = np.random.default_rng(0)
PREFIX = tuple(GENERATOR.integers(0, SIZE, 24).tolist())
TAILS = [tuple(GENERATOR.integers(0, SIZE, size).tolist()) for size in (5, 3, 5, 1, 4, 30)]
SEQUENCES = [TokenSequence(PREFIX, tail) for tail in TAILS]


@cache
def made(name):
    network = MODELS[name][0]()
    return network, from_transformers(network, byte_level())


def plainly(model):
    """The same weights, read as if nothing could be shared."""
    other = copy.copy(model)
    other._network = copy.copy(model._network)
    other._network.__dict__["sharing"] = None
    return other


@torch.inference_mode()
def in_a_loop(network, sequence):
    """The log2 probabilities of a target and its ranks, from one plain call of transformers."""
    ids = torch.tensor([sequence.context + sequence.target])
    logits = network(input_ids=ids, use_cache=False).logits[0, len(sequence.context) - 1 : -1].double()
    own = logits.gather(1, torch.tensor(sequence.target)[:, None])
    log2 = (own[:, 0] - logits.logsumexp(dim=1)) / np.log(2)
    return log2.numpy(), (1 + (logits > own).sum(dim=1)).numpy()


@pytest.mark.parametrize("name", MODELS)
def test_scores_and_ranks_are_those_of_a_plain_loop(name):
    network, model = made(name)
    if MODELS[name][1] is not None:
        assert model.network.sharing == MODELS[name][1]
    for sequence, found in zip(SEQUENCES, model.score(SEQUENCES, ranks=True), strict=True):
        log2, ranks = in_a_loop(network, sequence)
        assert found.log2_probabilities == pytest.approx(log2, abs=1e-9)
        assert found.ranks.tolist() == ranks.tolist()


@pytest.mark.parametrize("name", MODELS)
def test_every_question_has_the_answer_of_the_plain_way(name):
    _, model = made(name)
    plain = plainly(model)
    context = [PREFIX + tail[:3] for tail in TAILS[:3]]
    tokens = np.array([3, 5, 7, 9])

    def walk(one):
        root = one.start([PREFIX])
        first = one.step(root.states, np.zeros(4, dtype=np.int64), tokens)
        rests = [(4, 6), (8, 2)]
        again = one.read_after(root.states, np.zeros(2, dtype=np.int64), rests)
        second = one.step(first.states, np.array([3, 0]), tokens[:2])
        mixed = one.gather([(second.states, np.array([1, 1, 0])), (again.states, np.array([1]))])
        last = one.step(mixed, np.arange(4), tokens)
        several = one.start(context)
        return np.concatenate(
            [step.log2_probabilities for step in (root, first, again, second, last, several)]
        )

    assert walk(model) == pytest.approx(walk(plain), abs=1e-9)
    sampled = [Sampling(), Sampling(0.7, 20)]
    for ours, theirs in zip(
        model.follow(SEQUENCES, samplings=sampled), plain.follow(SEQUENCES, samplings=sampled), strict=True
    ):
        assert ours.first_miss == theirs.first_miss
        assert ours.log2_probabilities == pytest.approx(theirs.log2_probabilities, abs=1e-9)
    for ours, theirs in zip(model.likeliest(SEQUENCES, k=3), plain.likeliest(SEQUENCES, k=3), strict=True):
        assert [[token for token, _ in place] for place in ours] == [
            [token for token, _ in place] for place in theirs
        ]
    assert model.generate(context, length=4) == plain.generate(context, length=4)


@pytest.mark.parametrize("name", ["llama", "alibi", "sliding"])
def test_a_prefix_is_there_once_and_stays_the_same_object(name):
    _, model = made(name)
    root = model.start([PREFIX]).states
    (one,) = (model.state_bytes(root) // len(PREFIX),)
    tokens = np.arange(10, 40)
    states = model.step(root, np.zeros(30, dtype=np.int64), tokens).states
    assert model.state_bytes(states) == one * (len(PREFIX) + 30)
    joined = model.gather([(states, np.arange(5)), (states, np.arange(7, 9))])
    assert model.state_bytes(joined) == one * (len(PREFIX) + 7)
    assert joined[0] is states[0] is root[0]
    # What was read again, or from a file, is not there twice.
    assert model.start([PREFIX]).states[0] is root[0]
    restored = model.states_from_arrays(model.states_to_arrays(states))
    assert restored[0] is root[0]
    assert all(torch.equal(mine, its) for mine, its in zip(restored, states, strict=True))
    # States with different prefixes still make a batch.
    other = model.start([PREFIX[::-1]]).states
    mixed = model.gather([(other, np.array([0])), (root, np.array([0, 0]))])
    assert model.state_bytes(mixed) == 3 * one * len(PREFIX)
    following = np.array([3, 3, 3])
    together = model.step(mixed, np.arange(3), following).log2_probabilities
    alone = [model.step(one, np.array([0]), following[:1]).log2_probabilities for one in (other, root, root)]
    assert together == pytest.approx(np.concatenate(alone), abs=1e-9)


def test_the_model_is_left_as_it_was():
    network, model = made("llama")
    weights = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    ids = torch.tensor([PREFIX])
    before, way = network(input_ids=ids).logits, network.config._attn_implementation
    model.score(SEQUENCES)
    assert network.config._attn_implementation == way == "sdpa"
    assert torch.equal(network(input_ids=ids).logits, before)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in network.state_dict().items())
    again = pickle.loads(pickle.dumps(model.network))
    assert isinstance(again.model, LlamaForCausalLM)
    assert again.sharing == "folded"
    check_model(model, ["my pin is 4921", "the lazy dog and the quick brown fox jumps over it"])


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_other_precisions(kind):
    model = from_transformers(tiny("llama", SIZE, dtype=kind), byte_level())
    assert model.network.sharing == "folded"
    found = [one.log_perplexity_bits for one in model.score(SEQUENCES)]
    expected = [one.log_perplexity_bits for one in plainly(model).score(SEQUENCES)]
    assert found == pytest.approx(expected, rel=1e-5 if kind == torch.float32 else 0.02)


@pytest.mark.parametrize("name", ["llama", "eager llama", "sliding"])
def test_parts_of_a_batch_give_the_same_numbers(name, monkeypatch):
    _, model = made(name)
    whole = [one.log2_probabilities for one in model.score(SEQUENCES)]
    monkeypatch.setattr(shared_cache, "SCORES_AT_A_TIME", {"cpu": 500})
    monkeypatch.setattr(shared_cache, "REPEATED_BYTES", 1)
    for part, expected in zip(model.score(SEQUENCES), whole, strict=True):
        assert part.log2_probabilities == pytest.approx(expected, abs=1e-9)


def test_the_peak_of_memory_is_one_prefix_and_the_tails(monkeypatch):
    network = tiny("gpt2", SIZE, positions=1024, dtype=torch.float32)
    model = from_transformers(network, byte_level())
    prefix = tuple((place * 7) % SIZE for place in range(800))
    texts = [TokenSequence(prefix, (one, one + 1, one + 2)) for one in range(200)]
    expected, naive = peak_bytes(lambda: plainly(model).score(texts))
    found, shared = peak_bytes(lambda: model.score(texts))
    assert [one.log_perplexity_bits for one in found] == pytest.approx(
        [one.log_perplexity_bits for one in expected], abs=1e-3
    )
    one = 800 * 2 * 2 * 32 * 4  # tokens, layers, keys and values, width, bytes
    assert naive > 200 * one
    # A piece of the prefix, the products with it that are held at a time, and little else.
    monkeypatch.setattr(shared_cache, "SCORES_AT_A_TIME", {"cpu": 1 << 16})
    _, shared = peak_bytes(lambda: model.score(texts))
    assert shared < 25 * one
