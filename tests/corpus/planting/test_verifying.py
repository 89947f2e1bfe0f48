from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from coalmine.corpus import CanarySet, Fields, plant, verify_planted
from coalmine.errors import CorpusError, ManifestError

NUMBER = "the random number is {digits:9}"
TEXTS = [f"document {number}, of some length" for number in range(50)]


@pytest.fixture
def planted(make_corpus, tmp_path):
    return plant(
        make_corpus(TEXTS, ".txt"), NUMBER, repeat=[2, 3], canaries=10, references=5, withhold=0.5, seed=2,
        out=tmp_path / "out",
    )  # fmt: skip


def test_says_what_was_checked(planted):
    verification = verify_planted(planted.manifest)
    assert (verification.ok, verification.problems, verification.original) == (True, (), "same")
    assert verification.documents == planted.canaries.corpus.documents_after
    assert (verification.canaries, verification.references) == (20, 5)


@pytest.mark.parametrize("suffix", [".txt.gz", ".jsonl.zst", ".parquet"])
def test_says_where_the_original_was_not_checked(make_corpus, tmp_path, suffix):
    plant(make_corpus(TEXTS, suffix), NUMBER, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "out")
    verification = verify_planted(tmp_path / "out")
    assert verification.ok
    assert verification.original == f"not checked: a {suffix} file can be written in many ways"


def test_a_missing_or_added_copy_is_named(planted):
    present = next(canary for canary in planted.canaries if canary.planted)
    lines = planted.corpus.read_text().splitlines()
    lines.remove(present.text)
    planted.corpus.write_text("\n".join(lines) + "\n")
    verification = verify_planted(planted.manifest)
    assert not verification.ok
    assert len(verification.problems) == 3
    assert verification.problems[0].startswith("the SHA-256 of corpus.txt is ")
    assert verification.problems[2] == (
        f"canary {present.canary_id} is the text of {present.repetitions - 1} documents, "
        f"but should be that of {present.repetitions}"
    )
    assert verification.original == "same"


def test_withheld_canaries_and_references_that_are_there_are_named(planted):
    withheld = next(canary for canary in planted.canaries if not canary.planted)
    reference = planted.canaries.references["f0"][3]
    with open(planted.corpus, "a") as corpus:
        corpus.write(f"{withheld.text}\nso {reference} it is\n{reference}\n")
    problems = verify_planted(planted.manifest).problems
    assert f"canary {withheld.canary_id} is the text of 1 documents, but should be that of 0" in problems
    assert "reference 3 of format f0 is the text of 1 documents, but should be that of 0" in problems
    line = planted.canaries.corpus.documents_after + 2
    assert f"reference 3 of format f0 occurs inside another document (line {line})" in problems
    assert not any(reference in problem or withheld.text in problem for problem in problems)


def test_a_changed_document_is_noticed(planted):
    planted.corpus.write_bytes(planted.corpus.read_bytes().replace(b"document 7,", b"Document 7,"))
    verification = verify_planted(planted.manifest)
    assert verification.original == "different"
    assert "is no longer the original mail.txt" in verification.problems[-1]


def test_a_wrong_user_or_source_is_named(make_corpus, tmp_path):
    planted = plant(
        make_corpus(TEXTS, ".jsonl"),
        NUMBER,
        repeat=1,
        canaries=1,
        withhold=0.0,
        out=tmp_path / "out",
        fields=Fields(user="by"),
    )
    planted.corpus.write_text(planted.corpus.read_text().replace("coalmine-f0-x1-0", "ann"))
    assert any(
        "canary f0-x1-0 has the wrong user (line " in problem
        for problem in verify_planted(planted.manifest).problems
    )


def test_a_corpus_that_cannot_be_read_is_a_problem(planted, make_corpus, tmp_path):
    planted.corpus.write_bytes(b"\xff\xfe")
    verification = verify_planted(planted.manifest)
    assert not verification.ok
    assert "is not UTF-8" in verification.problems[0]
    assert verification.original == "not checked: the corpus cannot be read"
    table = plant(
        make_corpus(TEXTS, ".parquet"), NUMBER, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "table"
    )
    pq.write_table(pq.read_table(table.corpus).rename_columns(["body", "by", "more"]), table.corpus)
    assert "has no field 'text'" in verify_planted(table.manifest).problems[0]


def test_an_emptied_corpus_is_a_problem(planted):
    planted.corpus.write_bytes(b"")
    assert any("has 0 documents" in problem for problem in verify_planted(planted.manifest).problems)


def test_missing_files_are_errors(planted, tmp_path):
    planted.corpus.unlink()
    with pytest.raises(CorpusError, match=r"the planted corpus .*corpus\.txt is missing"):
        verify_planted(planted.manifest)
    planted.manifest.unlink()
    with pytest.raises(ManifestError, match="does not exist"):
        verify_planted(tmp_path / "out")
    CanarySet.of(NUMBER, ["the random number is 123456789"]).save(planted.manifest)
    with pytest.raises(ManifestError, match="describes no planted corpus"):
        verify_planted(tmp_path / "out")


def test_the_verification_is_a_record(planted):
    import msgspec

    assert json.loads(msgspec.json.encode(verify_planted(planted.manifest)))["ok"] is True
