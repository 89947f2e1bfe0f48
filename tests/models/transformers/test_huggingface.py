"""Causal transformers with subword tokens: they conform, and every audit agrees with brute force over full strings."""

import numpy as np
import pytest
import torch
from transformers import BambaConfig, BambaForCausalLM

from coalmine import CanarySet, Format, expose, extract, load_model
from coalmine.errors import ModelError, NotMeasurableError
from coalmine.models import TokenSequence, check_model, from_transformers
from coalmine.search.tree.token_tree import TokenTree
from models.local_models import change_json, save_checkpoint
from models.tiny_masked import TOKENIZERS as TOKENIZERS_OF_MASKED
from models.tiny_masked import tiny_masked
from models.tiny_transformers import byte_level, metaspace, tiny
from oracles import brute_force_bits, ranks_by_cost

TEXTS = [
    "the random number is 281265017",
    "a",
    "the value of x is 12",
    "naïve café ☕",
    " leading space",
    "0 zero first",
]
TOKENIZERS = {
    "bytes": byte_level,
    "bytes, digits in threes": lambda: byte_level(split_digits=True),
    "metaspace": metaspace,
}


def audited(kind="gpt2", tokenizer="bytes", **options):
    chosen = TOKENIZERS[tokenizer]()
    return from_transformers(tiny(kind, len(chosen), **options), chosen, name=kind)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "gpt_neox", "opt", "mamba"])
def test_architectures_conform(kind):
    assert check_model(audited(kind), TEXTS) == []


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_tokenizers_conform(tokenizer):
    texts = [text for text in TEXTS if tokenizer != "metaspace" or not text.startswith(" ")]
    assert check_model(audited(tokenizer=tokenizer), texts) == []


def test_a_tokenizer_that_was_used_to_truncate_does_not_cut_what_is_scored():
    tokenizer = byte_level()
    model = tiny("gpt2", len(tokenizer))
    whole = brute_force_bits(from_transformers(model, tokenizer), TEXTS[0])
    tokenizer(TEXTS, truncation=True, max_length=4)  # its backend keeps truncating afterwards
    try:
        assert brute_force_bits(from_transformers(model, tokenizer), TEXTS[0]) == pytest.approx(whole)
    finally:
        tokenizer.backend_tokenizer.no_truncation()


def test_what_cannot_be_shared_is_said():
    assert audited("llama").describe()["prefixes"] == "shared"
    assert audited("mamba").describe()["prefixes"] == "read again for each step"


def test_an_architecture_whose_cache_must_be_told_its_layers_is_read_again():
    torch.manual_seed(0)
    config = BambaConfig(
        vocab_size=len(byte_level()), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, attn_layer_indices=[1], mamba_n_heads=4, mamba_d_head=16, mamba_d_state=4,
        mamba_n_groups=1, mamba_chunk_size=8, pad_token_id=0,
    )  # fmt: skip
    model = from_transformers(BambaForCausalLM(config).eval(), byte_level())
    assert model.describe()["prefixes"] == "read again for each step"
    assert check_model(model, TEXTS) == []


def test_scores_are_those_of_the_model_itself():
    model = audited("llama")
    chosen = byte_level()
    ids = torch.tensor([[chosen.bos_token_id, *chosen.encode(TEXTS[0], add_special_tokens=False)]])
    with torch.inference_mode():
        loss = model._network.model(ids, labels=ids).loss.item() * (ids.shape[1] - 1)
    assert brute_force_bits(model, TEXTS[0]) == pytest.approx(loss / np.log(2), rel=1e-6)


FORMATS = [
    Format(
        "the random number is {digits:3}"
    ),  # tokens of one to three digits, and one that spans " is" and a digit
    Format("{digits:2}-{digits:1}"),
    Format("id{hex:2}"),
    Format("{choice:the|then|the value|there}s"),
    Format("caf{choice:é|e|è|☕} {digits:1}"),  # characters of several bytes
    Format("{re:[ab]{1,3}} {re:(the|of){1,2}}"),
]


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.template)
def test_each_member_is_one_path_and_its_own_tokens(tokenizer, form):
    model = audited(tokenizer=tokenizer)
    tree = TokenTree(form, model.tokenizer)
    for index in range(form.size):
        text = tree.text_at(index)
        assert tree.index_of(text) == index
        tokens = model.tokenizer.encode(text)
        depth = len(tokens) - len(tree.prefix)
        assert [*tree.prefix, *tree.tokens_to(index, depth)] == tokens
    texts = [tree.text_at(index) for index in range(form.size)]
    assert sorted(texts) == list(form)
    assert tree.places(np.arange(form.size)).tolist() == [form.index(text) for text in texts]


@pytest.mark.parametrize("kind", ["gpt2", "llama", "mamba"])
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_every_strategy_agrees_with_scoring_full_strings(kind, tokenizer):
    model = audited(kind, tokenizer)
    # As the first of the formats, with fewer members, because each of them is scored by itself.
    form = FORMATS[4] if kind == "mamba" else Format("the random number is {re:[027]}{digits:2}")
    canaries = CanarySet.of(form, form.sample(5, seed=1, replace=False), references=10)
    costs = {member: brute_force_bits(model, member) for member in form}
    truth = ranks_by_cost(model, costs, [canary.text for canary in canaries])
    exact = expose(model, canaries, method="exact")
    assert [result.rank for result in exact] == truth
    assert [result.rank for result in expose(model, canaries, method="bounded", batch=16)] == truth
    expected = sorted(costs, key=costs.__getitem__)[:5]
    assert [one.text for one in extract(model, form, top=5).found] == expected
    guided = expose(model, canaries, method="guided", budget=3, samples=500)
    for ours, other in zip(guided, exact, strict=True):
        assert ours.interval[0] - 1e-9 <= other.exposure <= ours.interval[1] + 1e-9


def test_candidates_are_numbered_as_the_format_numbers_them():
    model = audited()
    form = FORMATS[1]
    results = expose(model, CanarySet.of(form, form.sample(2, seed=1, replace=False)), method="exact")
    (scores,) = (one for one in results.candidates if one.kind == "member")
    for index, bits in zip(scores.indices.tolist(), scores.log_perplexities_bits.tolist(), strict=True):
        assert bits == pytest.approx(brute_force_bits(model, form.at(index)), abs=1e-9)


def test_from_a_directory(tmp_path):
    chosen = byte_level()
    model = tiny("llama", len(chosen), dtype=torch.float32)
    model.save_pretrained(tmp_path)
    chosen.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    live = from_transformers(model, chosen)
    for text in TEXTS:
        assert brute_force_bits(loaded, text) == pytest.approx(brute_force_bits(live, text), abs=1e-4)
    assert loaded.describe()["weights_sha256"]


def test_a_directory_that_is_no_causal_model_is_refused(tmp_path):
    save_checkpoint(tmp_path)
    change_json(tmp_path / "config.json", model_type="nonsense")
    with pytest.raises(ModelError, match=r"cannot be loaded as a causal language model .*nonsense"):
        load_model(tmp_path)


def test_weights_that_would_run_code_are_refused(tmp_path):
    chosen = byte_level()
    model = tiny("gpt2", len(chosen), dtype=torch.float32)
    model.save_pretrained(tmp_path)
    chosen.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin is a pickle"):
        load_model(tmp_path)


def test_a_checkpoint_without_its_head_is_refused(tmp_path):
    tokenizer = byte_level()
    tiny("llama", len(tokenizer), dtype=torch.float32).model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"its weights have no lm_head\.weight"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("kind", "why"), [("bert", "come after"), ("roberta", "come after"), ("t5", "a source")]
)
def test_a_model_that_sees_what_comes_is_not_taken_for_a_causal_one(kind, why):
    tokenizer = TOKENIZERS_OF_MASKED[kind]()
    with pytest.raises(ModelError, match=why):
        from_transformers(tiny_masked(kind, len(tokenizer)), tokenizer)


def test_a_masked_checkpoint_that_is_called_causal_is_refused(tmp_path):
    tokenizer = TOKENIZERS_OF_MASKED["roberta"]()
    tiny_masked("roberta", len(tokenizer), dtype=torch.float32).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="not a causal language model"):
        load_model(tmp_path, kind="causal")


@pytest.mark.parametrize("kind", ["gpt2", "llama", "opt"])
def test_what_is_longer_than_the_model_can_read_is_said(kind):
    model = audited(kind)  # of 64 places
    (longest,) = model.score([TokenSequence(model.context, (5,) * 64)])  # the last one is not read
    assert np.isfinite(longest.log2_probabilities).all()
    assert len(model.generate([(*model.context, *(5,) * 40)], length=24)[0]) == 24
    with pytest.raises(NotMeasurableError, match="longer than the 64"):
        model.score([TokenSequence(model.context, (5,) * 65)])
    with pytest.raises(NotMeasurableError, match="longer than the 64"):
        model.generate([(*model.context, *(5,) * 40)], length=25)
    with pytest.raises(NotMeasurableError, match="longer than the 64"):
        extract(model, "pin " * 80 + "{digits:2}")


def test_a_model_that_went_back_to_training_is_refused():
    network = tiny("gpt2", len(byte_level()))
    model = from_transformers(network, byte_level())
    sequence = TokenSequence(model.context, (5, 6))
    model.score([sequence])
    network.train()
    for asked in (
        lambda: model.score([sequence]),
        lambda: model.follow([sequence]),
        lambda: model.likeliest([sequence], k=2),
        lambda: model.start([model.context]),
        lambda: model.generate([model.context], length=1),
    ):
        with pytest.raises(ModelError, match="training"):
            asked()
    network.eval()
    model.score([sequence])
