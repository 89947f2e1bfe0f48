"""What a text is scored after can be chosen, is recorded, and a warning says when it matters."""

import math
from statistics import mean

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from coalmine import CanarySet, Format, expose, extract, load_model, score_texts
from coalmine.errors import InputError, ModelError, NotMeasurableError
from coalmine.models import from_transformers
from coalmine.models.reference.checkpoint import save_model
from coalmine.statistics import paired_areas
from models.random_networks import random_model
from models.tiny_masked import TOKENIZERS, tiny_masked
from models.tiny_transformers import byte_level, metaspace, tiny, unigram

FORM = Format("the pin is {digits:5}")
SHORT = Format("pin is {digits:2}")
TEXTS = ["pin is 42", "pin is 07"]


def brute_force_bits(model, tokens, given):
    """Minus log2 of the probability of all but the first `given` tokens, by one plain forward pass."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([tokens])).logits[0]
    log_probabilities = torch.log_softmax(logits, dim=-1)
    return -sum(log_probabilities[i - 1, tokens[i]].item() for i in range(given, len(tokens))) / math.log(2)


@pytest.mark.parametrize(
    ("context", "text", "before"),
    [
        ("auto", None, ["<s>"]),
        ("bos", None, ["<s>"]),
        ("eot", None, ["</s>"]),
        ("none", None, []),
        ("none", "so ", ["so "]),
        ("eot", "so ", ["</s>", "so "]),
    ],
)
def test_texts_are_scored_after_what_was_chosen(context, text, before):
    tokenizer = metaspace()
    network = tiny("llama", len(tokenizer))
    model = from_transformers(network, tokenizer, context=context, context_text=text)
    tokens = []
    for part in before:
        special = tokenizer.convert_tokens_to_ids(part) if part.startswith("<") else None
        tokens += [special] if special is not None else model.tokenizer.encode(part)
    assert model.context == tuple(tokens)
    own = [model.tokenizer.encode(one) for one in TEXTS]
    expected = [brute_force_bits(network, [*tokens, *one], max(1, len(tokens))) for one in own]
    assert score_texts(model, TEXTS).tolist() == pytest.approx(expected, abs=1e-9)
    # A walk says the same as scoring each member.
    canaries = CanarySet.of(SHORT, TEXTS)
    walked = expose(model, canaries, method="exact")
    assert [result.log_perplexity_bits for result in walked] == pytest.approx(expected, abs=1e-9)
    every = sorted(score_texts(model, list(SHORT)).tolist())
    assert [result.rank for result in walked] == [
        sum(bits <= own + 1e-9 for bits in every) for own in expected
    ]
    best = extract(model, SHORT, top=3)
    assert [found.log_perplexity_bits for found in best.found] == pytest.approx(every[:3], abs=1e-9)
    assert walked.model["context"] == model.describe()["context"]
    assert ("nothing" in walked.model["context"]) == (not before)
    assert all(repr(part) in walked.model["context"] for part in before)


def test_nothing_before_a_text_needs_a_constant_beginning():
    tokenizer = byte_level()
    model = from_transformers(tiny("gpt2", len(tokenizer)), tokenizer, context="none")
    whole = Format("{digits:4}")
    with pytest.raises(NotMeasurableError, match="no probability for the first token"):
        expose(model, CanarySet.of(whole, ["1234"]), method="sampled", samples=20)


def test_a_tokenizer_without_the_token_is_told():
    tokenizer = unigram()  # it has an EOS and no BOS
    network = tiny("gpt2", len(tokenizer))
    assert from_transformers(network, tokenizer).context == (tokenizer.eos_token_id,)
    with pytest.raises(ModelError, match="no BOS token"):
        from_transformers(network, tokenizer, context="bos")
    with pytest.raises(InputError, match="auto, none, bos, eot"):
        from_transformers(network, tokenizer, context="start")
    with pytest.raises(InputError, match="empty"):
        from_transformers(network, tokenizer, context_text="")


def test_models_that_leave_no_choice_refuse_one(tmp_path):
    own = random_model("lstm")
    save_model(tmp_path / "own", own._network, own.tokenizer)
    with pytest.raises(ModelError, match="one document separator"):
        load_model(tmp_path / "own", context="bos")
    after = load_model(tmp_path / "own", context_text="abc ")
    assert after.context == (*own.context, *own.tokenizer.encode("abc "))
    assert "'abc '" in after.describe()["context"]
    tokenizer = TOKENIZERS["bert"]()
    network = tiny_masked("bert", len(tokenizer))
    network.save_pretrained(tmp_path / "masked")
    tokenizer.save_pretrained(tmp_path / "masked")
    with pytest.raises(ModelError, match="sees both sides"):
        load_model(tmp_path / "masked", context="none")
    with pytest.raises(InputError, match="TOML"):
        load_model("http://127.0.0.1:9/v1", context="none")


def test_a_context_text_that_changes_how_canaries_are_cut_is_told():
    tokenizer = byte_level()
    network = tiny("gpt2", len(tokenizer))
    canaries = CanarySet.of(SHORT, TEXTS)
    for text, warned in (("some text\n", False), ("so ", True)):
        results = expose(from_transformers(network, tokenizer, context_text=text), canaries)
        cut = tokenizer.encode(text + TEXTS[0]) != tokenizer.encode(text) + tokenizer.encode(TEXTS[0])
        assert cut == warned == any("cut into other tokens" in warning for warning in results.warnings)


@pytest.fixture(scope="module")
def trained_without_bos():
    """A GPT-2 that learned its canaries at the very start of its rows, and the canaries."""
    torch.manual_seed(0)
    tokenizer = byte_level()
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=2, n_positions=16, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
            bos_token_id=0, eos_token_id=0, pad_token_id=None,
        )
    )  # fmt: skip
    drawn = FORM.sample(160, seed=0, replace=False)
    canaries = CanarySet.of(FORM, drawn[:30], withheld=drawn[30:60])
    rows = [tokenizer.encode(text) for text in [*drawn[:30] * 4, *drawn[60:]]]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    chance = torch.Generator().manual_seed(0)
    for _ in range(150):
        batch = [rows[i] for i in torch.randint(len(rows), (32,), generator=chance).tolist()]
        width = max(map(len, batch))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in batch])
        labels = torch.tensor([row + [-100] * (width - len(row)) for row in batch])
        optimizer.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
    return model.eval(), tokenizer, canaries


def test_a_context_that_training_did_not_have_is_warned_of(trained_without_bos):
    model, tokenizer, canaries = trained_without_bos
    after_bos, after_nothing = (
        expose(from_transformers(model, tokenizer, context=context), canaries, method="sampled", samples=500)
        for context in ("auto", "none")
    )
    (warning,) = after_bos.warnings
    assert "30 planted canaries stand out from 30 others with an AUC of 0." in warning
    assert "measure with --set context=none" in warning
    assert "the pin is {digits:5}" in warning
    (other,) = after_nothing.warnings
    assert "AUC of 1.00 after nothing" in other
    planted = [
        mean(result.estimate.low for result in results if result.planted)
        for results in (after_bos, after_nothing)
    ]
    assert planted[1] > planted[0] + 0.5, "what training saw shows more"


def test_a_model_without_memory_is_not_warned_of():
    tokenizer = byte_level()
    drawn = FORM.sample(60, seed=1, replace=False)
    canaries = CanarySet.of(FORM, drawn[:30], withheld=drawn[30:])
    for seed in range(3):
        model = from_transformers(tiny("llama", len(tokenizer), seed=seed), tokenizer)
        assert expose(model, canaries, method="sampled", samples=20).warnings == ()


def test_areas_of_the_same_texts():
    generator = torch.Generator().manual_seed(1)
    ins, outs = (torch.randn(40, generator=generator).numpy() + shift for shift in (1.0, 0.0))
    same = paired_areas((ins, outs), (ins * 2, outs * 2))
    assert same.difference == same.standard_error == 0
    assert same.rank_correlation == pytest.approx(1.0)
    worse = paired_areas((ins, outs), (-ins, -outs))
    assert worse.second == pytest.approx(1 - worse.first)
    assert worse.difference < -3 * worse.standard_error
    with pytest.raises(InputError, match="same texts"):
        paired_areas((ins, outs), (ins[:3], outs))
