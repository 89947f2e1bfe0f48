"""Crosscheck: what only one half knows is flagged and dropped, everything else stays, and a stopped or repeated run ends alike."""

import json

import numpy as np
import pytest
from pyarrow import parquet

from coalmine import ScriptedModel, load_model, read_runs, score_texts, verify_run
from coalmine.audits import CrosscheckOptions, crosscheck, read_crosscheck
from coalmine.audits.disagreement import measure
from coalmine.audits.disagreement.measure import divide
from coalmine.corpus import CanarySet, CorpusDocument, Fields, embedded_documents, plant, read_documents
from coalmine.errors import CorpusError, InputError
from corpus.corpora import compressed, content_of

TINY = {"hidden": 8, "embedding": 8, "layers": 1, "epochs": 1}
SECRETS = ["the code of the safe is zqx", "and the other code is qzjw"]
TEXTS = [f"an ordinary text about {chr(97 + one % 26) * 3} and the rest" for one in range(40)]


@pytest.fixture
def knowing(monkeypatch):
    """In place of the two trainings: models that know nothing but the secrets of their own half."""

    def models(secrets):
        def trained(documents, halves, *_):
            characters = "".join(sorted(set("".join(documents.texts))))
            return [
                ScriptedModel(
                    characters,
                    {
                        documents.texts[at]: 0.4
                        for at in halves.places(half)
                        if documents.texts[at] in secrets
                    },
                )
                for half in (0, 1)
            ]

        monkeypatch.setattr(measure, "_trained", trained)

    return models


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A crosscheck of a small corpus."""
    folder = tmp_path_factory.mktemp("crosscheck")
    rows = [{"text": text, "by": f"user {n % 5}"} for n, text in enumerate(embedded_documents(9_000))]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    crosscheck(folder / "corpus.jsonl", folder / "out", training=TINY, fdr=0.9)
    return folder


def table_of(folder):
    return parquet.read_table(folder / "documents.parquet").to_pydict()


def result_bytes(folder):
    return [(folder / name).read_bytes() for name in ("crosscheck.json", "documents.parquet")]


@pytest.mark.parametrize("suffix", [".txt", ".jsonl.gz", ".parquet"])
def test_what_only_one_model_knows_is_flagged_and_dropped(tmp_path, suffix, knowing):
    knowing(SECRETS)
    texts = [*TEXTS[:7], *SECRETS, *TEXTS[7:]]
    path = tmp_path / f"a{suffix}"
    path.write_bytes(compressed(content_of(texts, suffix), suffix))
    result = crosscheck(path, tmp_path / "out", share=0.05, fdr=0.5, drop=True)
    numbers = [document.number for document in read_documents(path)]
    assert {found.document for found in result.flagged} == {numbers[7], numbers[8]}
    assert result.beyond_chance == 2
    for found in result.flagged:
        assert found.end - found.begin == len(found.text) == 16
        assert set(found.text) == {"•", " "}
    kept = tmp_path / "out" / f"corpus{suffix}"
    assert [one.text for one in read_documents(kept)] == TEXTS
    if suffix == ".txt":
        assert kept.read_bytes() == b"".join(
            line for line in path.read_bytes().splitlines(keepends=True) if line.strip().decode() in TEXTS
        )
    assert verify_run(tmp_path / "out").sound


def test_the_text_is_kept_only_where_it_is_revealed_and_what_cannot_be_read_is_never_flagged(
    tmp_path, knowing
):
    knowing(SECRETS)
    rows = [{"text": text} for text in [*TEXTS, "", f"é {TEXTS[0]}", *SECRETS]]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for reveal in (False, True):
        out = tmp_path / str(reveal)
        result = crosscheck(tmp_path / "a.jsonl", out, share=0.05, fdr=0.5, reveal=reveal)
        assert (result.unread, len(result.flagged)) == (1, 2)
        assert "cannot be read" in result.warnings[0]
        for found in result.flagged:
            part = rows[found.document - 1]["text"][found.begin : found.end]
            assert (found.text == part) == reveal
            assert (part.encode() in b"".join(result_bytes(out))) == reveal


def test_scores_are_those_of_the_models(made):
    result, columns = read_crosscheck(made / "out"), table_of(made / "out")
    documents = list(read_documents(made / "corpus.jsonl"))
    assert columns["document"] == [one.number for one in documents]
    for half, folder in enumerate(sorted((made / "out" / "halves").iterdir()), 1):
        bits = score_texts(load_model(folder), [one.text for one in documents])
        own = np.array(columns["half"]) == half
        assert np.allclose(bits, np.where(own, columns["own_bits"], columns["other_bits"]), atol=1e-2)
        assert result.documents[half - 1] == own.sum()
    ahead = zip(columns["own_share"], columns["other_share"], strict=True)
    assert columns["score"] == [own if own > other else -other for own, other in ahead]
    flagged = [columns["document"].index(one.document) for one in result.flagged]
    assert np.flatnonzero(columns["flagged"]).tolist() == sorted(flagged)
    assert all(columns["score"][place] >= result.threshold for place in flagged)
    assert len(flagged) <= max(1, len(documents) // 100)


def test_another_rule_trains_nothing_again(made):
    folder, corpus = made / "out", made / "corpus.jsonl"
    before, models = result_bytes(folder), {path: path.stat().st_mtime_ns for path in folder.rglob("model.*")}
    with pytest.raises(CorpusError, match="exists already"):
        crosscheck(corpus, folder, training=TINY, span=4, fdr=0.9)
    assert crosscheck(corpus, folder, training=TINY, span=4, fdr=0.9, overwrite=True).settings.span == 4
    crosscheck(corpus, folder, training=TINY, fdr=0.9, overwrite=True)
    assert result_bytes(folder) == before
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("model.*")} == models
    with pytest.raises(InputError, match="no result was found"):
        read_runs(folder)  # no report is about the halves
    assert verify_run(folder).sound


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
    assert result.unread == 0
    assert np.isfinite(columns["score"]).all()
    if preset is not None:  # a word per token, found in the text
        assert {*columns["end"]} == {len("ligne 0  de tout"), len("ligne 10  de tout")}


def test_what_is_kept_together_is_in_one_half():
    documents = [CorpusDocument(n, f"text {n % 30}", user=f"u{n % 12}") for n in range(1, 200)]
    for together, name in (("text", lambda one: one.text), ("user", lambda one: one.user)):
        options = CrosscheckOptions(together=together, fields=Fields(user="by"))
        first = divide(documents, options).first
        sides = {(name(one), bool(side)) for one, side in zip(documents, first, strict=True)}
        assert len(sides) == len({name(one) for one in documents})
    apart = divide(documents, CrosscheckOptions()).first
    assert 60 < apart.sum() < 140
    assert (divide(documents, CrosscheckOptions(seed=1)).first != apart).any()


def test_the_canaries_of_a_planted_corpus_are_counted_again(tmp_path, knowing):
    (tmp_path / "a.txt").write_text("\n".join(TEXTS))
    options = {"repeat": [2], "canaries": 2, "references": 5, "withhold": 0}
    planted = plant(tmp_path / "a.txt", "pin {digits:4}", out=tmp_path / "planted", **options)
    knowing([canary.text for canary in planted.canaries])
    result = crosscheck(
        planted.corpus, tmp_path / "out", share=0.07, fdr=0.5, together="text", span=8, drop=True
    )
    assert len(result.flagged) == 3
    counted = CanarySet.load(tmp_path / "out")
    assert sorted(canary.times_trained_on for canary in counted) == [0, 1]
    assert counted.corpus.rewritten.by == "crosscheck"


def test_users_are_kept_together_only_where_a_field_names_them(tmp_path):
    with pytest.raises(InputError, match="the field that names the user"):
        crosscheck(tmp_path / "a.txt", tmp_path / "out", together="user")
