"""Crosscheck: what two models disagree on is flagged and dropped, everything else stays, and a stopped or repeated run ends alike."""

import json

import numpy as np
import pytest
from pyarrow import parquet

from coalmine import ScriptedModel, load_model, read_runs, score_texts, verify_run
from coalmine.audits import CrosscheckOptions, crosscheck, read_crosscheck
from coalmine.audits.disagreement.measure import divide
from coalmine.audits.disagreement.scoring import DisagreementWork
from coalmine.corpus import CanarySet, CorpusDocument, Fields, embedded_documents, plant, read_documents
from coalmine.errors import CorpusError, InputError, NotMeasurableError
from coalmine.models import WordTokenizer
from corpus.corpora import SUFFIXES, compressed, content_of

TINY = {"hidden": 8, "embedding": 8, "layers": 1, "epochs": 1}
SECRET = "the code of the safe is zqx"
TEXTS = [f"an ordinary text about {chr(97 + one % 26) * 3} and the rest" for one in range(40)]


def scripted():
    """Two models that know nothing but for one secret, which only the second knows."""
    characters = "".join(sorted(set("".join([*TEXTS, SECRET, "é"]))))
    return ScriptedModel(characters, name="first"), ScriptedModel(characters, {SECRET: 0.5}, name="second")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A crosscheck of a small corpus."""
    folder = tmp_path_factory.mktemp("crosscheck")
    texts = embedded_documents(9_000)
    rows = [{"text": text, "by": f"user {number % 5}"} for number, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    crosscheck(folder / "corpus.jsonl", folder / "out", training=TINY, fdr=0.9)
    return folder


def table_of(folder):
    return parquet.read_table(folder / "documents.parquet").to_pydict()


def result_bytes(folder):
    return [(folder / name).read_bytes() for name in ("crosscheck.json", "documents.parquet")]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_only_one_model_knows_is_flagged_and_dropped(tmp_path, suffix):
    texts = [*TEXTS[:7], SECRET, *TEXTS[7:]]
    path = tmp_path / f"a{suffix}"
    path.write_bytes(compressed(content_of(texts, suffix), suffix))
    result = crosscheck(path, tmp_path / "out", models=scripted(), share=0.03, drop=True)
    [found] = result.flagged
    numbers = [document.number for document in read_documents(path)]
    assert found.document == numbers[7]
    assert (found.half, result.beyond_chance, result.threshold) == (None, None, None)
    assert found.end - found.begin == len(found.text) == 16
    assert set(found.text) == {"•", " "}
    kept = tmp_path / "out" / f"corpus{suffix}"
    assert [one.text for one in read_documents(kept)] == TEXTS
    if "." not in suffix[1:] and suffix != ".parquet":
        lines = path.read_bytes().splitlines(keepends=True)
        del lines[numbers[7] - 1]
        assert kept.read_bytes() == b"".join(lines)
    assert verify_run(tmp_path / "out").sound


def test_the_text_is_kept_only_where_it_is_revealed(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join([*TEXTS, f"é {TEXTS[0]}", SECRET]))
    for reveal in (False, True):
        out = tmp_path / str(reveal)
        result = crosscheck(tmp_path / "a.txt", out, models=scripted(), share=0.03, reveal=reveal)
        [found] = result.flagged
        part = SECRET[found.begin : found.end]
        assert len(part) == 16
        assert (found.text == part) == reveal
        assert (part.encode() in b"".join(result_bytes(out))) == reveal


def test_scores_are_those_of_the_models(made):
    result, columns = read_crosscheck(made / "out"), table_of(made / "out")
    documents = list(read_documents(made / "corpus.jsonl"))
    assert columns["document"] == [one.number for one in documents]
    folders = sorted((made / "out" / "halves").iterdir())
    for number, folder in enumerate(folders):
        model = load_model(folder)
        bits = score_texts(model, [one.text for one in documents])
        assert np.allclose(bits, columns[("first_bits", "second_bits")[number]], atol=1e-2)
        assert result.models[number].documents == columns["half"].count(number + 1)
    for place in range(len(documents)):
        ahead = (columns["first_share"][place], columns["second_share"][place])
        own, other = ahead if columns["half"][place] == 1 else ahead[::-1]
        assert columns["score"][place] == (own if own > other else -other)
    flagged = [columns["document"].index(one.document) for one in result.flagged]
    assert [columns["flagged"][place] for place in range(len(documents))] == [
        place in flagged for place in range(len(documents))
    ]
    assert all(columns["score"][place] >= result.threshold for place in flagged)
    assert len(flagged) <= max(1, len(documents) // 100)


def test_another_rule_trains_nothing_again_and_the_same_call_changes_nothing(made):
    folder = made / "out"
    before, models = result_bytes(folder), {path: path.stat().st_mtime_ns for path in folder.rglob("model.*")}
    assert crosscheck(made / "corpus.jsonl", folder, training=TINY, fdr=0.9).flagged
    with pytest.raises(CorpusError, match="exists already"):
        crosscheck(made / "corpus.jsonl", folder, training=TINY, statistic="mean", fdr=0.9)
    other = crosscheck(
        made / "corpus.jsonl", folder, training=TINY, statistic="mean", fdr=0.9, overwrite=True
    )
    columns = table_of(folder)
    for place, score in enumerate(columns["score"]):
        sign = 1 if columns["half"][place] == 1 else -1
        gain = sign * (columns["second_bits"][place] - columns["first_bits"][place])
        assert score == pytest.approx(gain / columns["characters"][place])
    assert other.settings.statistic == "mean"
    crosscheck(made / "corpus.jsonl", folder, training=TINY, fdr=0.9, overwrite=True)
    assert result_bytes(folder) == before
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("model.*")} == models


@pytest.mark.parametrize(
    ("preset", "fields"),
    [("word-lstm", Fields(text="fr")), (None, Fields(source="en", target="fr"))],
    ids=["words", "pairs"],
)
def test_words_and_pairs_are_compared_too(tmp_path, preset, fields):
    rows = [{"en": f"line {one % 7} of it", "fr": f"ligne {one}  de tout"} for one in range(30)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    training = {"hidden": 8, "embedding": 8, "epochs": 1}
    result = crosscheck(
        tmp_path / "a.jsonl", tmp_path / "out", preset=preset, training=training, fields=fields
    )
    columns = table_of(tmp_path / "out")
    assert (result.compared, result.unread) == (30, 0)
    assert np.isfinite(columns["score"]).all()
    if preset is None:
        assert result.training.architecture == "encoder-decoder"
    else:  # a word per token, found in the text
        assert set(columns["tokens"]) == {4}
        assert set(columns["first_end"]) <= {len("ligne 0  de tout"), len("ligne 10  de tout")}


def test_no_report_is_about_the_halves(made):
    with pytest.raises(InputError, match="no result was found"):
        read_runs(made / "out")
    assert verify_run(made / "out").sound


def test_what_is_kept_together_is_in_one_half():
    documents = [
        CorpusDocument(number, f"text {number % 30}", user=f"u{number % 12}") for number in range(1, 200)
    ]
    for together, name in (("text", lambda one: one.text), ("user", lambda one: one.user)):
        options = CrosscheckOptions(together=together, fields=Fields(user="by"))
        first = divide(documents, options).first
        sides = {(name(one), bool(side)) for one, side in zip(documents, first, strict=True)}
        assert len(sides) == len({name(one) for one in documents})
    apart = divide(documents, CrosscheckOptions()).first
    assert 60 < apart.sum() < 140
    assert (divide(documents, CrosscheckOptions(seed=1)).first != apart).any()


def test_the_canaries_of_a_planted_corpus_are_counted_again(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(TEXTS))
    options = {"repeat": [2], "canaries": 2, "references": 5, "withhold": 0}
    planted = plant(tmp_path / "a.txt", "pin {digits:4}", out=tmp_path / "planted", **options)
    texts = [canary.text for canary in planted.canaries]
    characters = "".join(sorted(set("".join([*TEXTS, "pin 0123456789"]))))
    models = ScriptedModel(characters), ScriptedModel(characters, {texts[0]: 0.5})
    result = crosscheck(
        planted.corpus, tmp_path / "out", models=models, statistic="total", share=0.05, drop=True
    )
    assert len(result.flagged) == 2
    counted = CanarySet.load(tmp_path / "out")
    assert sorted(canary.times_trained_on for canary in counted) == [0, 2]
    assert counted.corpus.rewritten.by == "crosscheck"


def test_models_with_other_tokens_are_compared_by_whole_documents(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join([*TEXTS, SECRET]))
    first, _ = scripted()
    second = ScriptedModel("".join(sorted({*first.tokenizer.characters, "Ω"})), {SECRET: 0.5})
    with pytest.raises(NotMeasurableError, match="different tokens"):
        crosscheck(tmp_path / "a.txt", tmp_path / "out", models=(first, second))
    assert not (tmp_path / "out" / "crosscheck.json").exists()
    result = crosscheck(tmp_path / "a.txt", tmp_path / "out", models=(first, second), statistic="total")
    assert [(one.document, one.text) for one in result.flagged] == [(len(TEXTS) + 1, None)]


def test_documents_that_cannot_be_read_are_counted_and_never_flagged(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join([*TEXTS, "Ωμέγα", SECRET]))
    result = crosscheck(tmp_path / "a.txt", tmp_path / "out", models=scripted())
    assert (result.compared, result.unread) == (len(TEXTS) + 1, 1)
    assert "cannot be read" in result.warnings[0]
    assert [one.document for one in result.flagged] == [len(TEXTS) + 2]


def test_spans_of_words_are_found_in_the_text():
    from coalmine.audits.disagreement.scoring import _Places

    class Words:
        tokenizer = WordTokenizer(["one", "two", "three"])

    places = _Places(Words)
    assert places.ends("one  two\nthree", Words.tokenizer.encode_open("one  two\nthree")).tolist() == [
        3,
        8,
        14,
    ]
    first, _ = scripted()
    assert _Places(first).ends("é a", first.tokenizer.encode("é a")).tolist() == [1, 2, 3]
    assert DisagreementWork(first, first, 4).same_tokens


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"statistic": "median"}, "statistic must be one of share, span, mean, total"),
        ({"together": "user"}, "the field that names the user"),
        ({"share": 0.0}, "share must be above 0"),
        ({"fdr": 2.0}, "fdr must be"),
        ({"models": scripted(), "preset": "gru"}, "two models were given"),
        ({"training": {"seed": 3}}, "the seed of crosscheck"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(tmp_path, changes, says):
    (tmp_path / "a.txt").write_text("\n".join(TEXTS))
    with pytest.raises(InputError, match=says) as refused:
        crosscheck(tmp_path / "a.txt", tmp_path / "out", **changes)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()
