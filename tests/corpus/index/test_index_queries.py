"""Counts, places and longest matches against the plain way, on corpora of every shape."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine.corpus import CorpusIndex, build_index
from coalmine.corpus.index.queries import Occurrence
from coalmine.corpus.index.tokenizing import tokenizer_sha256
from coalmine.errors import CorpusError, InputError, ModelError
from coalmine.models import CharacterTokenizer, WordTokenizer

# Few letters, so that much is repeated; one of two bytes and one of four, and the character that is byte 0.
few = st.text(st.sampled_from("aab é🎈\x00\n"), max_size=12)
corpora = st.lists(few, min_size=1, max_size=8)
# A word tokenizer with so many words has symbols of 1, 2 and 3 bytes.
VOCABULARIES = {size: WordTokenizer([f"{n:06d}" for n in range(size)]) for size in (4, 300, 70_000)}
sizes = st.sampled_from(sorted(VOCABULARIES))


def written(folder, texts):
    path = Path(folder, "corpus.jsonl")
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def places(documents, query):
    """Every place of a sequence in lists of tokens, overlapping ones too."""
    return [
        Occurrence(number, offset)
        for number, document in enumerate(documents, 1)
        for offset in range(len(document) - len(query) + 1)
        if document[offset : offset + len(query)] == query
    ]


def longest(documents, query):
    """The length of the longest part of a query that occurs in a document, and the first place in the query of such a one."""
    for length in range(len(query), 0, -1):
        for start in range(len(query) - length + 1):
            if places(documents, query[start : start + length]):
                return start, length
    return 0, 0


@settings(max_examples=40)
@given(corpora, st.lists(few.filter(bool), min_size=1, max_size=6), st.sampled_from([1, 60, 10**9]))
def test_counts_and_places_of_texts_are_those_of_the_plain_way(texts, queries, memory):
    documents = [text.encode() for text in texts]
    asked = [*queries, *(text for text in texts if text)]
    with tempfile.TemporaryDirectory() as folder:
        index = build_index(written(folder, texts), Path(folder, "index"), memory=memory)
        expected = [places(documents, query.encode()) for query in asked]
        assert index.counts(asked).tolist() == [len(found) for found in expected]
        assert [index.locate(query) for query in asked] == expected
        assert [index.locate(query, limit=2) for query in asked] == [found[:2] for found in expected]
        for query in asked:
            match = index.longest_match(query)
            assert (match.start, match.length) == longest(documents, query.encode())
            part = query.encode()[match.start : match.start + match.length]
            if part:
                assert match.count == len(places(documents, part))
                assert match.first == places(documents, part)[0]
        assert index.documents == len(texts)
        assert index.tokens == sum(map(len, documents))


@settings(max_examples=20)
@given(
    st.lists(st.lists(st.integers(0, 3), max_size=20), min_size=1, max_size=5),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=9), min_size=1, max_size=8),
    sizes,
    st.sampled_from([1, 400, 10**9]),
)
def test_vocabularies_of_every_size(documents, queries, size, memory):
    # The last four words of the vocabulary: their ids have all of their bytes in use, and token 0 is used with four words.
    tokenizer = VOCABULARIES[size]
    shift = size - 4
    documents = [[shift + token for token in document] for document in documents]
    queries = [[shift + token for token in query] for query in queries]
    texts = [tokenizer.decode(document) for document in documents]
    with tempfile.TemporaryDirectory() as folder:
        index = build_index(written(folder, texts), Path(folder, "index"), tokenizer=tokenizer, memory=memory)
        expected = [places(documents, query) for query in queries]
        assert index.counts(queries).tolist() == [len(found) for found in expected]
        assert [index.locate(query) for query in queries] == expected
        assert index.count(tokenizer.decode(queries[0])) == len(expected[0])
        for found, query in zip(expected, queries, strict=True):
            for place in found[:2]:
                assert index.tokens_at(place, len(query)).tolist() == query
        assert [(m.start, m.length) for m in map(index.longest_match, queries)] == [
            longest(documents, query) for query in queries
        ]
        assert index.manifest.symbol_bytes == {4: 1, 300: 2, 70_000: 3}[size]
        assert index.manifest.tokenizer.sha256 == tokenizer_sha256(tokenizer)


def test_a_corpus_of_three_bytes_and_one_of_nothing(tmp_path):
    (tmp_path / "tiny.txt").write_text("aba")
    index = build_index(tmp_path / "tiny.txt", tmp_path / "index")
    assert index.counts(["a", "b", "ab", "aba", "abab", "c"]).tolist() == [2, 1, 1, 1, 0, 0]
    (tmp_path / "void.jsonl").write_text('{"text": ""}\n')
    nothing = build_index(tmp_path / "void.jsonl", tmp_path / "nothing")
    assert (nothing.count("a"), nothing.locate("a"), nothing.longest_match("ab").length) == (0, [], 0)
    (tmp_path / "empty.txt").write_text("\n\r\n")
    with pytest.raises(CorpusError, match="holds no documents"):
        build_index(tmp_path / "empty.txt", tmp_path / "none")


@settings(max_examples=40)
@given(
    st.lists(st.text(st.sampled_from("ab \ré\x00"), max_size=6), min_size=1, max_size=12).filter(any),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.sampled_from([1, 10**9]),
)
def test_plain_text_is_read_as_its_documents_are(texts, line_break, ends, memory):
    from coalmine.corpus import read_documents

    content = line_break.join(texts) + (line_break if ends else "")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.txt")
        path.write_bytes(content.encode())
        try:
            expected = [(document.number, document.text.encode()) for document in read_documents(path)]
        except CorpusError:
            return
        index = build_index(path, Path(folder, "index"), memory=memory)
        found = [
            (number, bytes(index.tokens_at(Occurrence(number, 0), length).tolist()))
            for number, length in index.document_lengths()
        ]
        assert found == expected


def test_every_kind_of_corpus_gives_the_same_answers(make_corpus, tmp_path):
    texts = ["one two three", "two three four", "fünf"]
    for suffix in (".txt", ".txt.gz", ".jsonl", ".jsonl.zst", ".csv", ".parquet"):
        index = build_index(make_corpus(texts, suffix), tmp_path / suffix)
        assert index.counts(["two three", "ü", "three\n"]).tolist() == [2, 1, 0]
        assert len(index.locate("two")) == 2


def test_a_batch_of_many_is_in_order_and_a_matrix_is_as_good_as_rows(tmp_path):
    rng = np.random.default_rng(1)
    text = "".join(rng.choice(list("abc"), 5000))
    (tmp_path / "a.txt").write_text(text)
    index = build_index(tmp_path / "a.txt", tmp_path / "index")
    starts = rng.integers(0, 4900, 70_000)
    queries = [text[start : start + 9] for start in starts]
    found = index.counts(queries)
    assert found.tolist() == index.counts(np.array([list(query.encode()) for query in queries])).tolist()
    for place in rng.integers(0, len(queries), 50):
        expected = sum(text.startswith(queries[place], at) for at in range(len(text)))
        assert found[place] == expected
    assert index.counts([]).tolist() == []


def test_what_cannot_be_looked_up_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("one two\n")
    index = build_index(tmp_path / "a.txt", tmp_path / "bytes")
    for empty in ("", [], np.empty(0, dtype=int)):
        with pytest.raises(InputError, match="at least one token"):
            index.count(empty)
    with pytest.raises(ModelError, match="token 255, but tokens are 0 to 254"):
        index.count([255])
    with pytest.raises(ModelError, match="token -1"):
        index.count([-1])
    with pytest.raises(InputError, match="whole numbers"):
        index.count([0.5])
    with pytest.raises(InputError, match="document 1 has 7 tokens"):
        index.tokens_at(Occurrence(1, 3), 5)
    with pytest.raises(InputError, match="no document 9"):
        index.tokens_at(Occurrence(9, 0), 1)
    words = build_index(tmp_path / "a.txt", tmp_path / "words", tokenizer=WordTokenizer(["one", "two"]))
    with pytest.raises(ModelError, match="not in its vocabulary"):
        words.count("one three")
    # What a shell hands over where an argument is not UTF-8.
    for asked in (index, words):
        for question in (asked.count, asked.locate, asked.longest_match):
            with pytest.raises(InputError, match="not UTF-8"):
                question("one\udcff")


def test_the_index_carries_its_tokenizer(tmp_path):
    (tmp_path / "a.txt").write_text("été à la mer\n")
    tokenizer = CharacterTokenizer("été à la mer")
    build_index(tmp_path / "a.txt", tmp_path / "index", tokenizer=tokenizer)
    index = CorpusIndex.open(tmp_path / "index")
    assert index.count("é") == 2
    assert index.decode(index.encode("mer")) == "mer"
    assert index.longest_match("à la mélà").length == len("à la m")


def test_subwords_from_a_directory_and_from_a_loaded_tokenizer_are_the_same(tmp_path):
    from coalmine.models import SubwordTokenizer
    from models.tiny_transformers import byte_level

    fast = byte_level()
    fast.save_pretrained(tmp_path / "model")
    texts = ["the quick brown fox", "the quick red fox, the quick", "é🎈"]
    path = written(tmp_path, texts)
    index = build_index(path, tmp_path / "index", tokenizer=tmp_path / "model")
    documents = [fast.encode(text, add_special_tokens=False) for text in texts]
    for query in ("the quick", " fox", "🎈", " the"):
        tokens = fast.encode(query, add_special_tokens=False)
        assert index.locate(query) == places(documents, tokens)
    loaded = SubwordTokenizer(fast.backend_tokenizer, size=len(fast), separator=0)
    assert index.manifest.tokenizer.sha256 == tokenizer_sha256(loaded)
    assert index.decode(documents[1]) == texts[1]
    assert CorpusIndex.open(tmp_path / "index").count("the quick") == index.count("the quick")
