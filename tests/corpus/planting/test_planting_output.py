"""What planting overwrites, what it never does, and what it leaves after an error."""

from __future__ import annotations

import json

import pytest

from coalmine.corpus import CanarySet, plant, verify_planted
from coalmine.errors import CorpusError
from corpus.corpora import RecordedProgress

NUMBER = "the random number is {digits:9}"
TEXTS = [f"document {number}, of some length" for number in range(50)]


def test_nothing_is_overwritten_unless_asked(make_corpus, tmp_path):
    path = make_corpus(TEXTS, ".txt")
    first = plant(path, NUMBER, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "out")
    before = first.corpus.read_bytes()
    with pytest.raises(CorpusError, match=r"canaries\.json exists already"):
        plant(path, NUMBER, seed=1, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "out")
    assert first.corpus.read_bytes() == before
    second = plant(
        path, NUMBER, seed=1, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "out", overwrite=True
    )
    assert second.corpus.read_bytes() != before
    assert verify_planted(tmp_path / "out").ok


def test_planting_again_from_another_kind_leaves_one_corpus(make_corpus, tmp_path):
    out = tmp_path / "out"
    first = plant(make_corpus(TEXTS, ".txt"), NUMBER, repeat=1, canaries=1, withhold=0.0, out=out)
    others = {out / name: name for name in ("notes.txt", "corpus.csv", "corpus.txt.bak", "corpus.jsonl.gz")}
    for path, content in others.items():
        path.write_text(content)
    second = plant(
        make_corpus(TEXTS, ".jsonl"), NUMBER, repeat=1, canaries=1, withhold=0.0, out=out, overwrite=True
    )
    assert not first.corpus.exists()
    assert set(out.iterdir()) == {second.corpus, second.manifest, *others}
    assert {path: path.read_text() for path in others} == others
    assert verify_planted(out).ok


def test_what_the_earlier_run_did_not_write_is_never_removed(make_corpus, tmp_path):
    text, rows = make_corpus(TEXTS, ".txt"), make_corpus(TEXTS, ".jsonl")
    changed = plant(text, NUMBER, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "changed").corpus
    changed.write_text("edited since\n")
    linked = plant(text, NUMBER, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "linked").corpus
    linked.rename(tmp_path / "elsewhere.txt")
    linked.symlink_to(tmp_path / "elsewhere.txt")
    damaged = plant(text, NUMBER, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "damaged")
    damaged.manifest.write_text("{")
    renamed = plant(text, NUMBER, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "renamed")
    precious = renamed.corpus.rename(tmp_path / "renamed" / "precious.txt")
    manifest = json.loads(renamed.manifest.read_text())
    manifest["corpus"]["name"] = precious.name
    renamed.manifest.write_text(json.dumps(manifest))
    for kept in (changed, linked, damaged.corpus, precious):
        before = kept.read_bytes()
        plant(rows, NUMBER, repeat=1, canaries=1, withhold=0.0, out=kept.parent, overwrite=True)
        assert kept.read_bytes() == before
        assert verify_planted(kept.parent).ok


def test_the_earlier_corpus_is_never_removed_while_it_is_planted_in(make_corpus, tmp_path):
    earlier = plant(
        make_corpus(TEXTS, ".txt"), NUMBER, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "out"
    ).corpus
    other_name = tmp_path / "corpus.csv"
    other_name.symlink_to(earlier)
    with pytest.raises(CorpusError, match="would remove the corpus itself"):
        plant(other_name, NUMBER, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "out", overwrite=True)
    assert earlier.exists()


def test_the_corpus_itself_is_never_overwritten(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("a document\n")
    for out in (tmp_path, tmp_path / "sub" / ".."):
        with pytest.raises(CorpusError, match="would replace the corpus itself"):
            plant(path, NUMBER, repeat=1, canaries=1, withhold=0.0, out=out, overwrite=True)
    assert path.read_text() == "a document\n"


def test_a_run_that_fails_in_the_second_pass_leaves_what_was_there(make_corpus, tmp_path):
    path = make_corpus(TEXTS, ".txt")
    before = plant(path, NUMBER, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "out")
    kept = {child: child.read_bytes() for child in (tmp_path / "out").iterdir()}

    class Meddler(RecordedProgress):
        """Changes the corpus between the passes."""

        def finish(self):
            super().finish()
            if len(self.tasks) == 1:
                path.write_text("something else\n" * 100)

    with pytest.raises(CorpusError, match="changed while it was being read"):
        plant(
            path,
            NUMBER,
            seed=1,
            repeat=1,
            canaries=1,
            withhold=0.0,
            out=tmp_path / "out",
            overwrite=True,
            progress=Meddler(),
        )
    assert {child: child.read_bytes() for child in (tmp_path / "out").iterdir()} == kept
    assert CanarySet.load(tmp_path / "out") == before.canaries


def test_planting_again_keeps_the_earlier_canaries_known(make_corpus, tmp_path):
    first = plant(
        make_corpus(TEXTS, ".txt"), NUMBER, repeat=2, canaries=4, withhold=0.5, seed=1, out=tmp_path / "first"
    )
    second = plant(
        first.corpus, "my pin is {digits:5}", repeat=1, canaries=2, withhold=0.0, out=tmp_path / "second"
    )
    assert {path.name for path in (tmp_path / "second").iterdir()} == {
        "corpus.txt", "canaries.json", "earlier-canaries.json",
    }  # fmt: skip
    earlier = CanarySet.load(tmp_path / "second" / "earlier-canaries.json")
    after = second.corpus.read_text().splitlines()
    assert [canary.times_trained_on for canary in earlier] == [after.count(canary.text) for canary in earlier]
    assert [canary.times_trained_on for canary in earlier] == [c.times_trained_on for c in first.canaries]
    assert earlier.corpus.sha256_after == second.canaries.corpus.sha256_after
    assert second.earlier.planted == sum(canary.planted for canary in first.canaries)
    assert verify_planted(tmp_path / "second").ok
    # Without a manifest beside the corpus nothing is known of it, and an older record of it goes.
    plain = plant(
        make_corpus(TEXTS, ".txt"), NUMBER, repeat=1, canaries=2, withhold=0.0, out=tmp_path / "second", overwrite=True
    )  # fmt: skip
    assert plain.earlier is None
    assert not any("manifest" in warning for warning in plain.warnings)
    assert not (tmp_path / "second" / "earlier-canaries.json").exists()
