"""Repeated sequences and samples against counting every window, and the draws against chance."""

import json
import random
import tempfile
import tracemalloc
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from coalmine.corpus import build_index, normalized_sample, repeated_sequences, uniform_sample
from coalmine.corpus.index import scanning
from coalmine.corpus.index.queries import Occurrence
from coalmine.corpus.index.sampling import bucket_of, bucket_range
from coalmine.errors import InputError, NotMeasurableError
from coalmine.models import WordTokenizer


@pytest.fixture(params=[20, 1 << 17], ids=["many slices", "one slice"])
def slices(request, monkeypatch):
    """Also with slices so small that every scan has several."""
    monkeypatch.setattr(scanning, "SLICE", request.param)


MANY_WORDS = WordTokenizer([f"{number:06d}" for number in range(70_000)])


def written(folder, texts):
    path = Path(folder, "corpus.jsonl")
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def windows(documents, length):
    """Every sequence of a length, with its places."""
    found = {}
    for number, document in enumerate(documents, 1):
        for offset in range(len(document) - length + 1):
            found.setdefault(tuple(document[offset : offset + length]), []).append(Occurrence(number, offset))
    return found


few = st.text(st.sampled_from("aab é\x00"), max_size=30)


@pytest.mark.usefixtures("slices")
@settings(max_examples=25)
@given(
    st.lists(few, min_size=1, max_size=6),
    st.lists(st.integers(1, 20), min_size=1, max_size=3, unique=True),
    st.sampled_from([1, 150, 10**9]),
    st.integers(2, 4),
)
def test_every_window_is_found_with_its_count_and_first_place(texts, lengths, memory, at_least):
    documents = [list(text.encode()) for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        index = build_index(written(folder, texts), Path(folder, "index"), memory=memory)
        # With room for all of them, the sample is all there is.
        found = [
            (sample.length, tuple(sample.tokens.tolist()), sample.count, (sample.document, sample.offset))
            for sample in normalized_sample(index, lengths=lengths)
        ]
        expected = [
            (length, window, len(places), tuple(places[0]))
            for length in lengths
            for window, places in windows(documents, length).items()
        ]
        assert sorted(found) == sorted(expected)
        repeated = [
            (tuple(one.tokens.tolist()), one.count, one.first)
            for one in repeated_sequences(index, lengths[0], at_least=at_least)
        ]
        assert repeated == sorted(
            (window, len(places), places[0])
            for window, places in windows(documents, lengths[0]).items()
            if len(places) >= at_least
        )


@settings(max_examples=8)
@given(
    st.lists(st.lists(st.integers(0, 2), max_size=30), min_size=1, max_size=4), st.sampled_from([1, 10**9])
)
def test_symbols_of_three_bytes(documents, memory):
    documents = [[69_997 + token for token in document] for document in documents]
    with tempfile.TemporaryDirectory() as folder:
        path = written(folder, [MANY_WORDS.decode(document) for document in documents])
        index = build_index(path, Path(folder, "index"), tokenizer=MANY_WORDS, memory=memory)
        for length in (1, 3, 7):
            found = {tuple(one.tokens.tolist()): one.count for one in repeated_sequences(index, length)}
            counted = {window: len(places) for window, places in windows(documents, length).items()}
            assert found == {window: count for window, count in counted.items() if count > 1}


def made(tmp_path, memory=10**9, seed=5):
    """Documents with passages that stand 1 to 40 times."""
    chance = random.Random(seed)
    passages = ["".join(chance.choices("abcdefgh", k=30)) for _ in range(60)]
    texts = []
    for number, passage in enumerate(passages):
        copies = 1 + number % 40
        texts += ["".join(chance.choices("abcdefgh", k=10)) + passage for _ in range(copies)]
    chance.shuffle(texts)
    path = tmp_path / "made.txt"
    path.write_text("\n".join(texts))
    return texts, build_index(path, tmp_path / f"index-{memory}", memory=memory)


@pytest.mark.usefixtures("slices")
def test_the_sample_is_the_same_for_a_seed_whatever_the_shards_and_slices(tmp_path):
    _, whole = made(tmp_path)
    _, sharded = made(tmp_path, memory=60_000)
    assert (len(whole.shards), len(sharded.shards)) == (1, 5)
    options = {"lengths": [12, 25], "per_bucket": 20}
    samples = [
        normalized_sample(whole, seed=1, **options),
        normalized_sample(sharded, seed=1, **options),
        normalized_sample(whole, seed=2, **options),
    ]
    rows = [[(*msgspec.structs.astuple(one)[:-1], one.tokens.tolist()) for one in some] for some in samples]
    assert rows[0] == rows[1] != rows[2]
    # Written down: another version, or another machine, must draw the same.
    assert [(s.bucket, s.count, s.document, s.offset) for s in samples[0][:2]] == KNOWN


KNOWN = [(0, 1, 5, 2), (0, 1, 13, 2)]


def test_buckets_are_full_where_they_can_be_and_counts_are_right(tmp_path):
    texts, index = made(tmp_path, memory=60_000)
    samples = normalized_sample(index, lengths=[12, 25], per_bucket=20, seed=4)
    drawn = Counter((sample.length, sample.bucket) for sample in samples)
    for length in (12, 25):
        there = Counter(
            bucket_of(len(places)) for places in windows([text.encode() for text in texts], length).values()
        )
        assert {bucket: min(20, count) for bucket, count in there.items()} == {
            bucket: count for (of, bucket), count in drawn.items() if of == length
        }
    assert len({(s.length, tuple(s.tokens.tolist())) for s in samples}) == len(samples)
    for sample in samples:
        low, high = bucket_range(sample.bucket)
        assert low <= sample.count <= high
        assert index.tokens_at(Occurrence(sample.document, sample.offset), sample.length).tolist() == (
            sample.tokens.tolist()
        )
        assert index.count(sample.tokens) == sample.count
    keys = [(s.length, s.bucket, s.document, s.offset) for s in samples]
    assert keys == sorted(keys)


def test_the_draw_within_a_bucket_is_uniform(tmp_path):
    text = "".join(random.Random(0).choices("abcdefghijklmnop", k=300))
    (tmp_path / "a.txt").write_text(text)
    index = build_index(tmp_path / "a.txt", tmp_path / "index")
    for length in (20, 33):
        offsets = Counter(
            sample.offset
            for seed in range(150)
            for sample in normalized_sample(index, lengths=[length], per_bucket=20, seed=seed)
        )
        seen = [offsets[offset] for offset in range(300 - length + 1)]
        assert sum(seen) == 150 * 20
        # Draws without replacement vary a little less than this test assumes.
        assert 1e-4 < stats.chisquare(seen).pvalue < 1 - 1e-4


def test_the_uniform_sample_draws_places(tmp_path):
    (tmp_path / "a.txt").write_text("abcdefghij\nxyz\nabcdefghijkl\nab\n")
    for memory in (1, 10**9):
        index = build_index(tmp_path / "a.txt", tmp_path / f"index-{memory}", memory=memory)
        every = uniform_sample(index, length=3, size=8 + 1 + 10)
        assert [(s.document, s.offset) for s in every] == [
            *((1, offset) for offset in range(8)),
            (2, 0),
            *((3, offset) for offset in range(10)),
        ]
        assert [s.count for s in every] == [2] * 8 + [1] + [2] * 8 + [1] * 2
        assert [index.decode(s.tokens) for s in every[8:10]] == ["xyz", "abc"]
        drawn = Counter(
            (s.document, s.offset)
            for seed in range(200)
            for s in uniform_sample(index, length=3, size=4, seed=seed)
        )
        assert len(drawn) == 19
        assert stats.chisquare(list(drawn.values())).pvalue > 1e-4
        with pytest.raises(NotMeasurableError, match="19 places where 3 tokens"):
            uniform_sample(index, length=3, size=20)


def test_buckets_in_exact_arithmetic():
    for count in [*range(1, 3000), 2**20 - 1, 2**20, 2**40 + 1]:
        bucket = bucket_of(count)
        assert 2**bucket <= count**4 < 2 ** (bucket + 1)
        low, high = bucket_range(bucket)
        assert low <= count <= high
    # The figures of the paper: sequences that repeat 6 to 8 and 724 to 861 times.
    assert bucket_range(38) == (725, 861)
    with pytest.raises(InputError, match="at least one copy"):
        bucket_of(0)


def test_long_sequences_take_no_more_memory_than_the_corpus_does(tmp_path, monkeypatch):
    monkeypatch.setattr(scanning, "SLICE", 1 << 8)
    text = "".join(random.Random(0).choices("abcdefgh", k=100_000))
    (tmp_path / "a.txt").write_text(f"{text}\n{text[1:]}x\n")
    index = build_index(tmp_path / "a.txt", tmp_path / "index")
    tracemalloc.start()
    try:
        [found] = repeated_sequences(index, len(text) - 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (found.count, found.first) == (2, Occurrence(1, 1))
    assert peak < 50_000_000


def test_what_is_asked_for_wrongly_is_refused(tmp_path):
    _, index = made(tmp_path)
    for wrong in ([], [0], [-3, 5], [5, 10**30]):
        with pytest.raises(InputError, match="lengths"):
            normalized_sample(index, lengths=wrong)
    with pytest.raises(InputError, match="per_bucket"):
        normalized_sample(index, per_bucket=0)
    with pytest.raises(InputError, match="at least 2"):
        next(repeated_sequences(index, 5, at_least=1))
    assert normalized_sample(index, lengths=[1000]) == []
    assert np.array_equal(index.counts([]), [])
