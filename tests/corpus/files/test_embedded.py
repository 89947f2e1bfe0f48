from __future__ import annotations

import subprocess
import sys

import pytest

from coalmine.corpus import embedded_documents, read_documents, write_embedded_corpus
from coalmine.errors import CorpusError


@pytest.fixture(scope="module")
def documents():
    return embedded_documents()


def test_there_is_enough_of_it_and_no_paragraph_comes_twice(documents):
    assert 1_000_000 < sum(len(document) + 1 for document in documents) < 4_000_000
    assert len(set(documents)) == len(documents)


def test_it_is_english_in_a_small_alphabet(documents):
    characters = set("".join(documents))
    assert len(characters) <= 95
    assert all(character.isprintable() and character.isascii() for character in characters)
    words = " ".join(documents).lower().split(" ")
    # In English text about one word in twenty is "the"; in code almost none.
    assert words.count("the") / len(words) > 0.04
    assert not any("  " in document or document != document.strip() for document in documents)


def test_any_beginning_of_it_is_a_beginning_of_the_whole(documents):
    for limit in (1, 50, 5_000, 200_000):
        part = embedded_documents(limit)
        assert part == documents[: len(part)]
        size = sum(len(document) + 1 for document in part)
        assert size <= limit < size + len(documents[len(part)]) + 1


def test_the_order_does_not_depend_on_the_process():
    program = (
        "from coalmine.corpus.files.embedded import embedded_documents as e; print('\\n'.join(e(300000)))"
    )
    for hash_seed in ("0", "1"):
        run = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        )
        assert run.stdout.splitlines() == embedded_documents(300_000)


def test_the_modules_are_not_imported():
    program = (
        "import sys; from coalmine.corpus.files.embedded import embedded_documents as e; e(); "
        "print([name for name in ('antigravity', 'turtle', 'idlelib', 'this') if name in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
        == "[]\n"
    )


def test_writes_a_corpus_with_a_document_a_line(tmp_path):
    path = write_embedded_corpus(tmp_path / "english.txt", 20_000)
    assert [document.text for document in read_documents(path)] == embedded_documents(20_000)


def test_refuses_what_makes_no_sense(tmp_path):
    with pytest.raises(CorpusError, match="at least 1, but is 0"):
        embedded_documents(0)
    with pytest.raises(CorpusError, match=r"name it \.txt"):
        write_embedded_corpus(tmp_path / "english.jsonl")
    with pytest.raises(CorpusError, match="no document fits into 3 bytes"):
        write_embedded_corpus(tmp_path / "english.txt", 3)
    assert not list(tmp_path.iterdir())
