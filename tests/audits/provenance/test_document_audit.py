"""`coalmine provenance` on documents: plain text without users, and an index that finds texts inside others."""

import pytest

from audits.provenance.small_users import SMALL, small_users
from cli.in_process import run
from coalmine.audits import read_provenance
from coalmine.training.trainer import train_documents


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """A model that saw some documents, and plain text files of these and of others."""
    folder = tmp_path_factory.mktemp("documents")
    texts = [text.text for user in small_users(60, texts=1) for text in user.texts]
    suspects = [*texts[:8], f"{texts[0]} and more"]
    (folder / "suspects.txt").write_text("".join(f"{text}\n" for text in suspects))
    (folder / "others.txt").write_text("".join(f"{text}\n" for text in texts[8:48]))
    (folder / "reference.txt").write_text("".join(f"{text}\n" for text in texts[48:]))
    train_documents(texts[:8], out=folder / "model", preset="provenance-words", **SMALL)
    return folder


def asked(folder, *more):
    return run(
        "provenance", folder / "model", "--by", "document", "--suspects", folder / "suspects.txt",
        "--non-members", folder / "others.txt", "--out", folder / "out", "--quiet", *more,
    )  # fmt: skip


def test_documents_of_plain_text_are_audited_with_an_index(documents):
    run("data", "index", documents / "suspects.txt", "--out", documents / "index", "--quiet")
    done = asked(documents, "--index", documents / "index", "--reference", documents / "reference.txt")
    assert done.code == 0, done.said
    found = read_provenance(documents / "out")
    [question] = found.questions
    assert [row.user for row in question.rows] == [f"line {number}" for number in range(1, 10)]
    # The first document is also inside the last one, which no comparison of whole texts would notice.
    assert (found.checks.repeated_texts.repeated, found.checks.repeated_texts.quoted) == (0, 1)
    assert found.blind_baseline.suspects == 9
