"""Sequence-to-sequence models: conformance, scores against transformers' own loss, sharing, errors, and a fine-tuned T5 from end to end."""

import json
from statistics import median

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import T5Config, T5ForConditionalGeneration

from cli.in_process import document
from coalmine import extract, plant
from coalmine.corpus import Fields, embedded_documents
from coalmine.errors import ModelError, NotMeasurableError
from coalmine.models import PairModel, TokenSequence, check_pairs, from_transformers_pairs, text_sequence
from coalmine.models.inference import pairs as pairs_module
from coalmine.models.transformers.pairs import load_pairs
from models.tiny_pairs import byte_level_pairs, tiny_pairs, unigram

PAIRS = [
    ("the number is 281", "my number is 281"),
    ("a longer source, of the river 90", "the"),
    ("Who?", "it is 4 and 17 of the whole world"),
]


def adapted(kind="t5", tokenizer=None, **options):
    tokenizer = tokenizer or unigram()
    # More rows than tokens, as real checkpoints have.
    return from_transformers_pairs(tiny_pairs(kind, len(tokenizer) + 3, **options), tokenizer)


def bits_by_labels(model, tokenizer, source, target):
    """What transformers itself makes of one pair: labels as the tokenizer writes them, one forward pass, nothing cached."""
    labels = tokenizer(text_target=target, return_tensors="pt").input_ids
    with torch.no_grad():
        logits = model(input_ids=tokenizer(source, return_tensors="pt").input_ids, labels=labels).logits
    natural = torch.log_softmax(logits[0], dim=-1).gather(1, labels[0][:, None])[:, 0].numpy()
    own = np.isin(labels[0].numpy(), tokenizer.all_special_ids, invert=True)
    return natural[own] / np.log(2)


@pytest.mark.parametrize(
    ("kind", "tokenizer"),
    [
        ("t5", unigram),
        ("t5", byte_level_pairs),
        ("t5-gated-untied", unigram),
        ("umt5", byte_level_pairs),
        ("marian", unigram),
        ("bart", lambda: byte_level_pairs(opens=True)),
        ("pegasus", unigram),
    ],
)
def test_conforms_and_agrees_with_the_loss_of_transformers(kind, tokenizer):
    tokenizer = tokenizer()
    model = adapted(kind, tokenizer)
    assert isinstance(model, PairModel)
    assert model.describe()["prefixes"] == "shared"
    check_pairs(model, PAIRS)
    scores = model.score([text_sequence(model, target, source) for source, target in PAIRS])
    for (source, target), score in zip(PAIRS, scores, strict=True):
        expected = bits_by_labels(model.network.model, tokenizer, source, target)
        np.testing.assert_allclose(score.log2_probabilities, expected, atol=1e-9)


def test_single_precision_stays_within_its_resolution():
    exact, rounded = adapted(), adapted(dtype=torch.float32)
    for one in (exact, rounded):
        assert one.describe()["precision"] in {"float64", "float32"}
    sequences = [text_sequence(exact, target, source) for source, target in PAIRS]
    for first, second in zip(exact.score(sequences), rounded.score(sequences), strict=True):
        np.testing.assert_allclose(first.log_perplexity_bits, second.log_perplexity_bits, atol=1e-3)
    check_pairs(rounded, PAIRS)


def test_a_target_is_scored_after_what_the_decoder_was_trained_to_read_before_it():
    assert adapted("t5", unigram()).context == (0,)
    assert adapted("bart", byte_level_pairs()).context == (1,)
    opens = adapted("bart", byte_level_pairs(opens=True))
    assert opens.context == (1, 3)
    assert opens.describe()["context_tokens"] == [1, 3]


IDS = st.lists(st.integers(0, 402), min_size=1, max_size=7).map(tuple)


@pytest.fixture(scope="module")
def t5():
    return adapted()


@settings(max_examples=25)
@given(st.lists(st.tuples(IDS, IDS, st.integers(0, 3)), min_size=1, max_size=6), st.integers(1, 5))
def test_scores_depend_on_nothing_but_the_pair(t5, drawn, batches):
    sequences = [
        TokenSequence((0, *target[:cut]), target[cut:] or (7,), source) for source, target, cut in drawn
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs_module, "LOGITS_AT_A_TIME", batches * 8_000)
        together = t5.score(sequences, ranks=True)
    for sequence, score in zip(sequences, together, strict=True):
        row = sequence.context + sequence.target
        with torch.no_grad():
            logits = t5.network.model(
                input_ids=torch.tensor([sequence.source]), decoder_input_ids=torch.tensor([row[:-1]])
            ).logits[0]
        log2 = (torch.log_softmax(logits, dim=-1) / np.log(2)).numpy()[len(sequence.context) - 1 :]
        own = log2[np.arange(len(sequence.target)), sequence.target]
        np.testing.assert_allclose(score.log2_probabilities, own, atol=1e-9)
        assert score.is_argmax.tolist() == (log2.argmax(axis=1) == sequence.target).tolist()
        assert score.ranks.tolist() == ((log2 > own[:, None] + 1e-12).sum(axis=1) + 1).tolist()


def test_steps_equal_reading_beyond_the_reach_of_relative_positions():
    # The buckets of the tiny T5 end at a distance of 16; those beyond share one.
    model = adapted().given("one source")
    target = tuple(int(token) for token in np.random.default_rng(0).integers(5, 400, size=45))
    whole = model.score([TokenSequence(model.context, target)])[0].log2_probabilities
    step, stepped = model.start([model.context]), []
    for token in target:
        stepped.append(step.log2_probabilities[0, token])
        step = model.step(step.states, np.array([0]), np.array([token]))
    np.testing.assert_allclose(stepped, whole, atol=1e-9)


def encoder_reads(model):
    reads = []
    model.network.model.get_encoder().register_forward_hook(lambda *_: reads.append(1))
    return reads


def test_a_source_is_read_once_for_all_its_targets():
    model = adapted()
    reads = encoder_reads(model)
    targets = [f"my number is {number}" for number in range(40)]
    model.score([text_sequence(model, target, "the number is 281") for target in targets])
    assert len(reads) == 1
    fixed = model.given("the number is 281")
    for _ in range(3):
        fixed.start([fixed.context])
        fixed.score([text_sequence(fixed, target) for target in targets])
    assert len(reads) == 2


def test_nothing_that_was_read_outlives_a_change_of_the_weights():
    model = adapted()
    sequence = text_sequence(model, "my number is 281", "the number is 281")
    before = model.score([sequence])[0].log_perplexity_bits
    # A fused optimizer changes weights without a trace that torch would show.
    optimizer = torch.optim.AdamW(model.network.parameters(), lr=0.1, fused=True)
    loss = model.network.model(
        input_ids=torch.tensor([sequence.source]), labels=torch.tensor([sequence.target])
    ).loss
    loss.backward()
    optimizer.step()
    after = model.score([sequence])[0].log_perplexity_bits
    assert after < before - 1
    expected = bits_by_labels(model.network.model, unigram(), "the number is 281", "my number is 281")
    np.testing.assert_allclose(after, -expected.sum(), atol=1e-9)


def test_a_state_is_the_target_s_own_and_does_not_grow_with_the_source():
    model = adapted()
    rows, layers, heads, width, read = 5, 2, 4, 8, 2
    for source in ("short", "a source of many more words than the other one, and then some more"):
        fixed = model.given(source)
        step = fixed.step(fixed.start([fixed.context]).states, np.zeros(rows, dtype=int), np.arange(rows))
        assert fixed.state_bytes(step.states) == rows * layers * 2 * heads * width * read * 8


def test_a_decoder_that_cannot_carry_its_cache_reads_again():
    class WithoutCache(type(tiny_pairs("t5", 10))):
        def forward(self, *args, past_key_values=None, **kwargs):
            if past_key_values is not None:
                raise TypeError("this model has a cache of its own kind")
            return super().forward(*args, **kwargs)

    whole = tiny_pairs("t5", len(unigram()) + 3)
    whole.__class__ = WithoutCache
    model = from_transformers_pairs(whole, unigram())
    assert model.describe()["prefixes"] == "read again for each step"
    check_pairs(model, PAIRS)


def test_sources_are_read_as_the_tokenizer_writes_them():
    model = adapted()
    assert model.source_tokenizer.encode("the number") == unigram()("the number").input_ids
    assert model.source_tokenizer.encode("the number")[-1] == 1  # </s>
    assert model.source_tokenizer.decode(model.source_tokenizer.encode("the number")) == "the number"
    # A truncating tokenizer cuts no source.
    tokenizer = unigram()
    tokenizer("one two three", truncation=True, max_length=3)
    assert len(adapted().source_tokenizer.encode("one two three four five")) > 5


def test_sources_differ_in_the_record_and_do_not_show(t5):
    first, second = t5.given("my secret is 123").describe(), t5.given("my secret is 124").describe()
    assert first["source_sha256"] != second["source_sha256"]
    assert {**first, "source_sha256": 0} == {**second, "source_sha256": 0}
    assert "123" not in json.dumps(first["context"])
    assert first["adapter"] == "pairs"


def test_what_cannot_be_measured_says_so(t5):
    with pytest.raises(NotMeasurableError, match="source"):
        t5.score([TokenSequence(t5.context, (5, 6))])
    with pytest.raises(NotMeasurableError, match="after nothing"):
        t5.score([TokenSequence((), (5, 6), (7,))])
    with pytest.raises(ModelError, match=r"target tokens must be in \[0, 403\)"):
        t5.score([TokenSequence(t5.context, (5, 403), (7,)), TokenSequence(t5.context, (5,), (8,))])
    with pytest.raises(ModelError, match="source tokens"):
        t5.score([TokenSequence(t5.context, (5,), (-1,))])
    with pytest.raises(ModelError, match="no token for"):
        text_sequence(t5, "a ☃ in the target", "a source")
    bart = adapted("bart", byte_level_pairs())
    with pytest.raises(NotMeasurableError, match="source of 65 tokens is longer than the 64"):
        bart.given_tokens((5,) * 65)
    with pytest.raises(NotMeasurableError, match="target of 66 tokens is longer than the 64"):
        bart.score([TokenSequence((1,), (5,) * n, (9,) * (n % 9 + 1)) for n in (3, 66)])
    assert len(bart.given_tokens((5,) * 64).generate([[1]], length=63)[0]) == 63
    with pytest.raises(NotMeasurableError, match="target of 65 tokens"):
        bart.given_tokens((5,) * 64).generate([[1]], length=65)


def test_models_that_cannot_be_read_are_refused():
    from transformers import ProphetNetConfig, ProphetNetForConditionalGeneration

    startless = tiny_pairs("t5", len(unigram()))
    startless.config.decoder_start_token_id = startless.generation_config.decoder_start_token_id = None
    with pytest.raises(ModelError, match="decoder_start_token_id"):
        from_transformers_pairs(startless, unigram())
    with pytest.raises(ModelError, match="is not a tokenizer of transformers"):
        from_transformers_pairs(tiny_pairs("t5", 10), object())
    config = ProphetNetConfig(
        vocab_size=len(unigram()), hidden_size=16, encoder_ffn_dim=16, decoder_ffn_dim=16, num_encoder_layers=1,
        num_decoder_layers=1, num_encoder_attention_heads=2, num_decoder_attention_heads=2, decoder_start_token_id=0,
    )  # fmt: skip
    with pytest.raises(ModelError, match="'prophetnet' cannot be read"):
        from_transformers_pairs(ProphetNetForConditionalGeneration(config), unigram())


def test_an_adapter_has_its_base_as_reference():
    from peft import LoraConfig, PromptTuningConfig, TaskType, get_peft_model

    bare = adapted()
    base = tiny_pairs("t5", len(unigram()) + 3)
    lora = get_peft_model(base, LoraConfig(task_type=TaskType.SEQ_2_SEQ_LM, r=4, init_lora_weights=False))
    model = from_transformers_pairs(lora.double().eval(), unigram())
    check_pairs(model, PAIRS)
    assert model.describe()["adapter_in_use"]
    assert not model.reference.describe()["adapter_in_use"]
    sequences = [text_sequence(model, target, source) for source, target in PAIRS]
    for own, reference, expected in zip(
        model.score(sequences), model.reference.score(sequences), bare.score(sequences), strict=True
    ):
        np.testing.assert_allclose(reference.log2_probabilities, expected.log2_probabilities, atol=1e-9)
        assert abs(own.log_perplexity_bits - expected.log_perplexity_bits) > 0.1
    fixed = model.given(PAIRS[0][0])
    first = fixed.reference.score([text_sequence(fixed, PAIRS[0][1])])[0]
    np.testing.assert_allclose(
        first.log_perplexity_bits, bare.score(sequences[:1])[0].log_perplexity_bits, atol=1e-9
    )
    prompted = PromptTuningConfig(task_type=TaskType.SEQ_2_SEQ_LM, num_virtual_tokens=2)
    with pytest.raises(ModelError, match="learned prompt"):
        from_transformers_pairs(get_peft_model(tiny_pairs("t5", len(unigram())), prompted), unigram())


ENGLISH, VIETNAMESE = "my number is {digits:3}", "số của tôi là {digits:3}"


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    """A small T5, trained on pairs among which canaries were planted, in a directory as people have them."""
    folder = tmp_path_factory.mktemp("translation")
    sentences = [text.split(".")[0][:40].strip() for text in embedded_documents(12_000)]
    rows = [{"id": i, "en": text, "vi": text[::-1]} for i, text in enumerate(sentences) if text]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    planted = plant(
        folder / "corpus.jsonl",
        VIETNAMESE,
        source_format=ENGLISH,
        fields=Fields(source="en", target="vi"),
        repeat=[1, 30],
        canaries=4,
        withhold=0.4,
        references=50,
        out=folder / "planted",
    )
    tokenizer = byte_level_pairs()
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(
        T5Config(
            vocab_size=len(tokenizer), d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, dropout_rate=0.0,
            decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
        )
    )  # fmt: skip
    fine_tune(model, tokenizer, [json.loads(line) for line in planted.corpus.read_text().splitlines()])
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    return folder / "model", planted


def fine_tune(model, tokenizer, rows, steps=130):
    """Plain training on labels with AdamW, as a script of transformers would."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.train()
    for step in range(steps):
        batch = [rows[(step * 16 + place) * 37 % len(rows)] for place in range(16)]
        inputs = tokenizer(
            [row["en"] for row in batch],
            text_target=[row["vi"] for row in batch],
            padding=True,
            return_tensors="pt",
            return_token_type_ids=False,
        )
        inputs["labels"][inputs["labels"] == tokenizer.pad_token_id] = -100
        optimizer.zero_grad()
        model(**inputs).loss.backward()
        optimizer.step()
    model.eval()


def test_planted_pairs_are_exposed_and_withheld_ones_are_not(translator, tmp_path):
    directory, planted = translator
    results = document("expose", directory, planted.manifest, "--out", tmp_path / "exposure")["results"]
    assert {result["method"] for result in results} == {"exact"}
    by_count = {}
    for result in results:
        by_count.setdefault(result["repetitions"], []).append(result["estimate"]["value"])
    assert median(by_count[30]) > median(by_count[0]) + 3
    assert min(by_count[30]) > 6

    # The naive way: every pair of the space by itself, as transformers scores labels.
    model = load_pairs(directory, device="cpu", precision="float32")
    tokenizer = byte_level_pairs()
    one = next(canary for canary in planted.canaries if canary.times_trained_on == 30)
    expected = -bits_by_labels(model.network.model, tokenizer, one.source, one.text).sum()
    result = next(result for result in results if result["canary_id"] == one.canary_id)
    assert abs(result["log_perplexity_bits"] - expected) < 1e-3

    verified = document(
        "extract", directory, planted.manifest, "--top", "20", "--out", tmp_path / "extraction"
    )
    ranks = {result["canary_id"]: result["rank"] for result in results}
    for found in verified["canaries"]:
        assert found["extracted"] == (ranks[found["canary_id"]] <= 20)


def test_a_walk_with_the_source_held_fixed_finds_what_brute_force_finds(translator):
    directory, planted = translator
    one = next(canary for canary in planted.canaries if canary.times_trained_on == 30)
    model = load_pairs(directory, device="cpu", precision="float32").given(one.source)
    found = extract(model, VIETNAMESE, top=3)
    members = [VIETNAMESE.replace("{digits:3}", f"{number:03}") for number in range(1000)]
    scores = model.score([text_sequence(model, member) for member in members])
    bits = {member: score.log_perplexity_bits for member, score in zip(members, scores, strict=True)}
    assert found.proven
    assert found.method == "search"
    assert [row.text for row in found.found] == sorted(bits, key=bits.get)[:3]
    assert found.found[0].text == one.text
    for row in found.found:
        assert abs(row.log_perplexity_bits - bits[row.text]) < 1e-3
