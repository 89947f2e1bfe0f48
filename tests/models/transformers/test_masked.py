"""Models that fill gaps: their scores, fillings and recitation agree with asking one gap at a time; one is trained and audited."""

from statistics import median

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from transformers import BertConfig, BertForSequenceClassification, BertModel

from cli.in_process import document
from coalmine import Format, load_model, plant
from coalmine.corpus import write_embedded_corpus
from coalmine.errors import InputError, ModelError, ModelOutputError, NotMeasurableError
from coalmine.models import (
    Generator,
    MaskedModel,
    Stepper,
    TokenSequence,
    check_model,
    from_masked,
    text_sequence,
)
from coalmine.models.inference.gaps import hidden_places
from coalmine.models.transformers.span_corruption import SpanCorruptionModel, hidden_spans
from coalmine.randomness import integers
from models.tiny_masked import SIZES, TOKENIZERS, audited, tiny_masked, unigram, wordpiece

TEXTS = ["the random number is 281265017", "a", "the value of x is 12", "0 zero first", "a rose is a rose"]


def one_gap_at_a_time(kind, model, text):
    """Log2 probabilities of the whole vocabulary at each token of a text, (tokens, vocabulary): a pass for each, nothing shared."""
    tokenizer = TOKENIZERS[kind]()
    ids = tokenizer(text)["input_ids"]  # with the special tokens that the tokenizer itself puts around a text
    own = range(0 if kind == "t5" else 1, len(ids) - 1)
    answers = []
    with torch.inference_mode():
        for place in own:
            row = torch.tensor([ids])
            if kind == "t5":
                gap = tokenizer.convert_tokens_to_ids("<extra_id_0>")
                row[0, place] = gap
                logits = model(input_ids=row, decoder_input_ids=torch.tensor([[0, gap]])).logits[0, 1]
            else:
                row[0, place] = tokenizer.mask_token_id
                logits = model(input_ids=row).logits[0, place]
            answers.append(torch.log_softmax(logits, dim=0).numpy() / np.log(2))
    return np.array(answers), [ids[place] for place in own]


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_models_conform(kind):
    model = audited(kind)
    assert isinstance(model, MaskedModel)
    assert not isinstance(model, Stepper | Generator)
    assert check_model(model, TEXTS) == ["Stepper", "Generator"]


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_scores_are_those_of_one_gap_at_a_time(kind):
    model = audited(kind)
    scores = model.score([text_sequence(model, text) for text in TEXTS], ranks=True)
    for text, score in zip(TEXTS, scores, strict=True):
        expected, tokens = one_gap_at_a_time(kind, model._model, text)
        own = expected[np.arange(len(tokens)), tokens]
        np.testing.assert_allclose(score.log2_probabilities, own, atol=1e-10)
        assert score.is_argmax.tolist() == (expected.argmax(axis=1) == tokens).tolist()
        assert score.ranks.tolist() == ((expected > own[:, None]).sum(axis=1) + 1).tolist()


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_small_batches_and_short_waits_change_nothing(kind, monkeypatch):
    model = audited(kind)
    sequences = [text_sequence(model, text) for text in TEXTS]
    hidden = [list(range(0, len(sequence.target), 2)) for sequence in sequences]
    together = model.score(sequences, ranks=True)
    filled, solved = model.fill(sequences, hidden), model.solves_masking(sequences)
    monkeypatch.setattr("coalmine.models.inference.gaps.NUMBERS_AT_A_TIME", 1)
    monkeypatch.setattr("coalmine.models.inference.gaps.WAITING_BYTES", 1)
    for first, second in zip(together, model.score(sequences, ranks=True), strict=True):
        np.testing.assert_allclose(first.log2_probabilities, second.log2_probabilities, atol=1e-10)
        assert first.is_argmax.tolist() == second.is_argmax.tolist()
        assert first.ranks.tolist() == second.ranks.tolist()
    assert model.fill(sequences, hidden) == filled
    assert model.solves_masking(sequences) == solved


def test_hidden_places_are_picked_before_the_vocabulary():
    for kind in TOKENIZERS.keys() - {"t5"}:
        assert audited(kind)._picks_early, kind


def test_an_architecture_that_projects_otherwise_is_read_whole(monkeypatch):
    model = audited("bert")
    expected = model.score([text_sequence(model, TEXTS[0])])[0].log2_probabilities
    # A head that is not used as a module cannot be given fewer places.
    monkeypatch.setattr(type(model._model), "get_output_embeddings", lambda _: torch.nn.Linear(1, 1))
    other = audited("bert")
    assert not other._picks_early
    own = other.score([text_sequence(other, TEXTS[0])])[0].log2_probabilities
    np.testing.assert_allclose(own, expected, atol=1e-10)


@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_a_gap_that_members_share_is_asked_about_once(kind):
    model = audited(kind)
    rows = []
    hook = model._model.register_forward_pre_hook(
        lambda _, __, named: rows.extend(named["input_ids"].tolist()), with_kwargs=True
    )
    members = [text_sequence(model, text) for text in Format("the number is {digits:2}")]
    scores = model.score([*members, *members])
    hook.remove()
    hidden = {
        (*member.target[:place], None, *member.target[place + 1 :])
        for member in members
        for place in range(len(member.target))
    }
    assert len(rows) == len(hidden) < sum(len(member.target) for member in members)
    for first, second in zip(scores[:100], scores[100:], strict=True):
        assert first.log_perplexity_bits == second.log_perplexity_bits


def test_context_is_seen_and_not_scored():
    model = audited("bert")
    text = text_sequence(model, TEXTS[0])
    behind = TokenSequence(text.context + text.target[:3], text.target[3:])
    whole, part = model.score([text, behind])
    np.testing.assert_allclose(part.log2_probabilities, whole.log2_probabilities[3:], atol=1e-10)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_fillings_never_see_what_is_hidden(kind):
    model = audited(kind)
    sequence = text_sequence(model, TEXTS[0])
    gaps = [5, 2, 3]
    blank = tuple(0 if place in gaps else token for place, token in enumerate(sequence.target))
    first, second = model.fill([sequence, sequence._replace(target=blank)], [gaps, gaps])
    assert first == second
    assert model.fill([sequence], [sorted(gaps)])[0] == [first[1], first[2], first[0]]
    assert model.fill([sequence], [[]]) == [[]]


@pytest.mark.parametrize("kind", sorted(TOKENIZERS.keys() - {"t5"}))
def test_fillings_are_the_likeliest_tokens_with_all_gaps_masked(kind):
    model, tokenizer = audited(kind), TOKENIZERS[kind]()
    for text in TEXTS:
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        gaps = hidden_places(model.tokenizer.encode(text), share=0.4, seed=1)
        ids[0, [gap + 1 for gap in gaps]] = tokenizer.mask_token_id
        with torch.inference_mode():
            expected = model._model(input_ids=ids).logits[0].argmax(dim=1)[[gap + 1 for gap in gaps]].tolist()
        assert model.fill([text_sequence(model, text)], [gaps])[0] == expected


def texts_that_are_solved(model, options, tries):
    """Targets that a random model restores: its own fillings of random texts, where the new text is cut in the same places."""
    draws = integers(0, "texts")
    found = []
    for _ in range(tries):
        tokens = [draws.randrange(3, 300) for _ in range(6)]
        gaps = hidden_spans(tokens, **options)
        for gap, token in zip(
            gaps, model.fill([TokenSequence(model.context, tuple(tokens))], [gaps])[0], strict=True
        ):
            tokens[gap] = token
        if hidden_spans(tokens, **options) == gaps:
            found.append(TokenSequence(model.context, tuple(tokens)))
    return found


def solved_by_generate(model, tokenizer, tokens, gaps):
    """Write one span after the other with generate(), each after the true ones before it, and compare."""
    row, script, spans, place = [], [0], 0, 0
    cuts = []
    while place < len(tokens):
        if place not in gaps:
            row.append(tokens[place])
            place += 1
            continue
        end = next(other for other in range(place, len(tokens) + 1) if other not in gaps)
        sentinel = tokenizer.convert_tokens_to_ids(f"<extra_id_{spans}>")
        row.append(sentinel)
        cuts.append((sentinel, tokens[place:end]))
        place, spans = end, spans + 1
    for sentinel, span in cuts:
        script.append(sentinel)
        written = model.generate(
            input_ids=torch.tensor([[*row, 1]]), decoder_input_ids=torch.tensor([script]), max_new_tokens=len(span),
            do_sample=False, num_beams=1,
        )  # fmt: skip
        if written[0, len(script) :].tolist() != list(span):
            return False
        script += span
    return True


@pytest.mark.parametrize("mean_span", [1.0, 3.0])
def test_span_corruption_is_solved_where_generate_writes_the_truth(mean_span):
    tokenizer = unigram()
    model = audited("t5")
    options = {"share": 0.5, "mean_span": mean_span, "seed": 5}
    solved = texts_that_are_solved(model, options, tries=60)
    assert len(solved) >= 3
    others = [
        TokenSequence(model.context, (*sequence.target[:3], 7, *sequence.target[3:])) for sequence in solved
    ]
    sequences = [*solved[:6], *others[:6]]
    gaps = [hidden_spans(sequence.target, **options) for sequence in sequences]

    def compare():
        expected = [
            solved_by_generate(model._model, tokenizer, list(sequence.target), own)
            for sequence, own in zip(sequences, gaps, strict=True)
        ]
        assert model.solves_masking(sequences, **options) == expected
        restored = [
            tokens == [sequence.target[gap] for gap in own]
            for tokens, sequence, own in zip(model.fill(sequences, gaps), sequences, gaps, strict=True)
        ]
        assert restored == expected
        return expected

    before = compare()
    assert sum(before) >= 3
    assert not all(before)
    # The output row of an expected token, given to a second token, makes a tie: the lower id is written.
    expected_token = solved[0].target[gaps[0][-1]]
    weights = model._model.lm_head.weight
    kept = weights.detach().clone()
    for twin, still in ((model.tokenizer.size - 30, True), (0, False)):
        with torch.no_grad():
            weights.copy_(kept)
            weights[twin] = weights[expected_token]
        assert compare()[0] is still


def test_what_is_hidden_depends_on_the_text_and_the_seed_only():
    model = audited("bert")
    sequences = [text_sequence(model, text) for text in TEXTS]
    assert (
        model.solves_masking(sequences[::-1])[::-1]
        == model.solves_masking(sequences)
        == [model.solves_masking([sequence])[0] for sequence in sequences]
    )
    tokens = list(range(50))
    assert hidden_places(tokens, share=0.2, seed=0) != hidden_places(tokens, share=0.2, seed=1)
    assert hidden_places(tokens, share=0.2, seed=0) != hidden_places(tokens[::-1], share=0.2, seed=0)


@given(
    st.integers(1, 300),
    st.floats(0.001, 0.999),
    st.floats(1, 20),
    st.integers(0, 9),
)
def test_spans_have_their_number_and_length_and_never_touch(length, share, mean_span, seed):
    tokens = range(length)
    hidden = hidden_spans(tokens, share=share, mean_span=mean_span, seed=seed)
    single = hidden_places(tokens, share=share, seed=seed)
    for places in (hidden, single):
        assert places == sorted(set(places))
        assert set(places) <= set(tokens)
        assert len(places) == max(1, round(share * length))
    spans = sum(place - 1 not in hidden for place in hidden)
    assert spans == min(max(1, round(len(hidden) / mean_span)), length - len(hidden) + 1)


def test_every_place_is_as_likely_to_be_hidden():
    counts = np.zeros(40)
    for seed in range(2000):
        counts[hidden_places(range(40), share=0.15, seed=seed)] += 1
    assert counts.sum() == 2000 * 6
    # Each count is binomial around 300 with a standard deviation of 16; among 40, none is 4.5 of these away.
    assert np.abs(counts - 300).max() < 72


def test_what_cannot_be_measured_is_said():
    model, spans = audited("bert"), audited("t5")
    text = text_sequence(model, TEXTS[0])
    with pytest.raises(NotMeasurableError, match="after nothing"):
        model.score([TokenSequence((), text.target)])
    with pytest.raises(NotMeasurableError, match="longer than the 64"):
        model.score([TokenSequence(model.context, (5,) * 63)])
    assert len(model.score([TokenSequence(model.context, (5,) * 62)])) == 1
    with pytest.raises(ModelError, match="token ids"):
        model.score([TokenSequence(model.context, (100_000,))])
    for gaps in ([0, 0], [-1], [len(text.target)]):
        with pytest.raises(InputError, match="different positions"):
            model.fill([text], [gaps])
    with pytest.raises(NotMeasurableError, match="nothing to hide"):
        model.solves_masking([TokenSequence(model.context, ())])
    with pytest.raises(InputError, match="share"):
        model.solves_masking([text], share=15)
    with pytest.raises(NotMeasurableError, match="decoder starts with"):
        spans.score([TokenSequence((5,), (6, 7))])
    with pytest.raises(NotMeasurableError, match="20 that the model has sentinels for"):
        spans.fill([TokenSequence(spans.context, (5,) * 60)], [range(0, 60, 2)])
    with pytest.raises(InputError, match="mean length"):
        spans.solves_masking([TokenSequence(spans.context, (5, 6))], mean_span=0)


def test_roberta_counts_positions_from_behind_padding():
    model = audited("roberta")
    assert len(model.score([TokenSequence(model.context, (9,) * 62)])) == 1
    with pytest.raises(NotMeasurableError, match="longer than the 64"):
        model.score([TokenSequence(model.context, (9,) * 63)])


@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_values_that_are_no_numbers_are_never_read_as_not_memorized(kind):
    model = audited(kind)
    with torch.no_grad():
        next(model._model.parameters()).fill_(float("nan"))
    text = text_sequence(model, TEXTS[0])
    for ask in (model.score, model.solves_masking, lambda texts: model.fill(texts, [[0]])):
        with pytest.raises(ModelOutputError, match="not numbers"):
            ask([text])


def test_tokenizers_that_cannot_hide_are_refused():
    bare = wordpiece()
    with pytest.raises(ModelError, match="sentinel"):
        from_masked(tiny_masked("t5", len(bare)), bare)
    with pytest.raises(ModelError, match="mask token"):
        from_masked(tiny_masked("bert", len(unigram())), unigram())


@pytest.mark.parametrize("kind", ["bert", "roberta", "t5"])
def test_from_a_directory(kind, tmp_path):
    tokenizer = TOKENIZERS[kind]()
    model = tiny_masked(kind, len(tokenizer), dtype=torch.float32)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = load_model(tmp_path, kind="masked" if kind == "t5" else "auto", precision="float64")
    live = from_masked(model.double(), tokenizer)
    sequences = [text_sequence(live, text) for text in TEXTS]
    assert sequences == [text_sequence(loaded, text) for text in TEXTS]
    for first, second in zip(loaded.score(sequences), live.score(sequences), strict=True):
        np.testing.assert_allclose(first.log2_probabilities, second.log2_probabilities, atol=1e-8)
    described = loaded.describe()
    assert described["score"] == "pseudo-log-perplexity"
    assert described["weights_sha256"]
    assert loaded.reference is None


def test_single_precision_stays_within_its_resolution():
    exact, single = audited("bert"), audited("bert", dtype=torch.float32)
    sequences = [text_sequence(exact, text) for text in TEXTS]
    together = [score.log_perplexity_bits for score in single.score(sequences)]
    alone = [single.score([sequence])[0].log_perplexity_bits for sequence in sequences]
    np.testing.assert_allclose(together, alone, atol=single.resolution_bits, rtol=0)
    np.testing.assert_allclose(
        together, [score.log_perplexity_bits for score in exact.score(sequences)], atol=1e-3, rtol=0
    )
    assert single.resolution_bits > exact.resolution_bits


@pytest.mark.parametrize("made", [BertModel, BertForSequenceClassification])
def test_a_model_without_a_trained_head_is_refused(made, tmp_path):
    tokenizer = wordpiece()
    made(BertConfig(vocab_size=len(tokenizer), **SIZES)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="no trained head"):
        load_model(tmp_path, kind="masked")


@pytest.mark.parametrize(("kind", "layers"), [("bert", ["query", "value"]), ("t5", ["q", "v"])])
def test_an_adapter_is_read_unmerged_and_its_base_is_the_reference(kind, layers, tmp_path):
    tokenizer = TOKENIZERS[kind]()
    base = tiny_masked(kind, len(tokenizer), dtype=torch.float32)
    base.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    base.name_or_path = str(tmp_path / "base")
    adapted = get_peft_model(base, LoraConfig(r=4, target_modules=layers))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn_like(parameter) * 0.3)
    adapted.save_pretrained(tmp_path / "adapter")
    model = load_model(tmp_path / "adapter", kind="masked", precision="float64")
    without = load_model(tmp_path / "base", kind="masked", precision="float64")
    sequences = [text_sequence(model, text) for text in TEXTS]
    for own, reference, plain in zip(
        model.score(sequences), model.reference.score(sequences), without.score(sequences), strict=True
    ):
        np.testing.assert_allclose(reference.log2_probabilities, plain.log2_probabilities, atol=1e-8)
        assert np.abs(own.log2_probabilities - plain.log2_probabilities).max() > 0.01
    gaps = [[0]] * len(sequences)
    assert model.reference.fill(sequences, gaps) == without.fill(sequences, gaps)
    assert model.describe()["adapter_in_use"] is True
    assert model.reference.describe()["adapter_in_use"] is False
    assert isinstance(model, SpanCorruptionModel) == (kind == "t5")


def fine_tune(model, tokenizer, texts, steps=300):
    """Plain training: 15% to 30% of the tokens of each text are masked, drawn again each time."""
    draws = integers(0, "fine-tuning")
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    rows = [tokenizer.encode(text)[:24] for text in texts]
    model.train()
    for _ in range(steps):
        batch = draws.sample(rows, 24)
        ids = torch.full((24, max(map(len, batch))), tokenizer.pad_token_id)
        labels = torch.full_like(ids, -100)
        for place, row in enumerate(batch):
            ids[place, : len(row)] = torch.tensor(row)
            share = draws.uniform(0.15, 0.3)
            hidden = [column for column in range(1, len(row) - 1) if draws.random() < share]
            labels[place, hidden] = ids[place, hidden]
            ids[place, hidden] = tokenizer.mask_token_id
        optimizer.zero_grad()
        seen = (ids != tokenizer.pad_token_id).long()
        model(input_ids=ids, attention_mask=seen, labels=labels).loss.backward()
        optimizer.step()
    model.eval()


def test_a_trained_model_is_audited_from_its_directory(tmp_path):
    write_embedded_corpus(tmp_path / "corpus.txt", 8_000)
    planted = plant(
        tmp_path / "corpus.txt",
        "the random number is {digits:3}",
        repeat=[1, 40],
        canaries=3,
        withhold=0.3,
        references=20,
        out=tmp_path / "planted",
    )
    tokenizer = wordpiece(single_digits=True)
    model = tiny_masked(
        "bert", len(tokenizer), dtype=torch.float32, spread=0, hidden_size=64, intermediate_size=128,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    fine_tune(model, tokenizer, planted.corpus.read_text().splitlines())
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")

    answer = document("expose", tmp_path / "model", planted.manifest)
    results = answer["results"]
    assert answer["model"]["score"] == "pseudo-log-perplexity"
    assert {result["method"] for result in results} == {"exact"}
    by_count = {}
    for result in results:
        by_count.setdefault(result["repetitions"], []).append(result["estimate"]["value"])
    assert median(by_count[40]) > 7
    assert median(by_count[40]) > median(by_count[0]) + 3

    verified = document("extract", tmp_path / "model", planted.manifest, "--top", "10")
    ranks = {result["canary_id"]: result["rank"] for result in results}
    for one in verified["canaries"]:
        assert one["extracted"] == (ranks[one["canary_id"]] <= 10)
        if one["extracted"]:
            assert one["place"] == ranks[one["canary_id"]]
    assert any(one["extracted"] for one in verified["canaries"])
