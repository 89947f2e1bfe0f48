"""Samples of a corpus's sequences: equally many per length and number of copies, or uniform; and all repeated sequences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import isqrt

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.corpus.index.queries import CorpusIndex, Occurrence
from coalmine.corpus.index.scanning import scan
from coalmine.errors import InputError, NotMeasurableError
from coalmine.models.protocols import IntArray
from coalmine.progress import Progress, Silent
from coalmine.randomness import arrays, child_seed

LENGTHS = tuple(range(50, 501, 50))
PER_BUCKET = 1000
# No document has more tokens than the compiled sort can count.
_LONGEST = 2**31 - 1
# Counts fit 63 bits, so there are no more buckets than this.
_BUCKETS = 4 * 63


class Sample(msgspec.Struct, frozen=True, eq=False):
    """One sequence of a corpus, and how often it occurs there."""

    # In tokens.
    length: int
    # n, where 2^(n/4) <= count < 2^((n+1)/4).
    bucket: int
    count: int
    # The place of its first copy; in a uniform sample, of the copy that was drawn.
    document: int
    offset: int
    tokens: IntArray


class Repeated(msgspec.Struct, frozen=True, eq=False):
    """A sequence that is repeated, how often it occurs in the corpus, and where first."""

    tokens: IntArray
    count: int
    first: Occurrence


def bucket_of(count: int) -> int:
    """The bucket of a number of copies: n, where 2^(n/4) <= count < 2^((n+1)/4), in exact arithmetic.

    >>> [bucket_of(count) for count in (1, 2, 3, 4, 7, 8, 724)]
    [0, 4, 6, 8, 11, 12, 37]
    """
    if count < 1:
        raise InputError(f"a sequence that occurs in a corpus has at least one copy, got {count}")
    return int(count**4).bit_length() - 1


def bucket_range(bucket: int) -> tuple[int, int]:
    """The smallest and the largest number of copies in a bucket; the first is above the second where it has none.

    >>> bucket_range(11), bucket_range(38), bucket_range(1)
    ((7, 7), (725, 861), (2, 1))
    """
    return _smallest_in(bucket), _smallest_in(bucket + 1) - 1


def normalized_sample(
    index: CorpusIndex,
    *,
    lengths: Sequence[int] = LENGTHS,
    per_bucket: int = PER_BUCKET,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Sample]:
    r"""Up to `per_bucket` distinct sequences of every length and bucket of copies, drawn uniformly from all there are.

    This is the duplicate-normalized sample of "Quantifying Memorization Across Neural Language Models" (Carlini, Ippolito,
    Jagielski, Lee, Tramèr and Zhang, 2023, arXiv:2202.07646): one scan of the index finds every distinct sequence and how often
    it occurs in the whole corpus. The result is ordered by length, bucket and place; it depends on the corpus, the tokenizer and
    the seed, and not on how the index is divided into shards.

    Args:
        index: the index of the corpus.
        lengths: in tokens.
        per_bucket: the most sequences of one length and bucket.
        seed: the seed of the draw.
        progress: gets the tokens that were scanned.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from coalmine.corpus import build_index
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("banana\nbandana\n")
    ...     index = build_index(Path(folder, "a.txt"), Path(folder, "index"))
    ...     [(index.decode(one.tokens), one.count) for one in normalized_sample(index, lengths=[3], per_bucket=1)]
    [('nan', 1), ('ban', 2), ('ana', 3)]
    """
    wanted = _checked_lengths(lengths)
    if per_bucket < 1:
        raise InputError(f"per_bucket should be a number of sequences, at least 1, got {per_bucket}")
    draws = {length: _SmallestKeys(per_bucket, seed, length) for length in wanted}
    for some in scan(index, shortest=wanted[0], longest=wanted[-1], progress=progress or Silent()):
        scrambled = _scrambled(some.places, seed)
        for length in wanted:
            draws[length].offer_alone(some.places, scrambled, some.alone(length))
            runs = some.repeats(length)
            draws[length].offer(runs.firsts, _scrambled(runs.firsts, seed), runs.counts)
    samples: list[Sample] = []
    for length in wanted:
        for bucket, places, counts in draws[length].drawn():
            samples += _samples(index, places, length, [bucket] * len(places), counts.tolist())
    return samples


def uniform_sample(index: CorpusIndex, *, length: int, size: int, seed: int = 0) -> list[Sample]:
    r"""Sequences at `size` different places, drawn uniformly from all places where one of this length fits in its document.

    A sequence that occurs often is drawn accordingly often. The result is in the order of the corpus.

    Args:
        index: the index of the corpus.
        length: in tokens.
        size: how many places to draw.
        seed: the seed of the draw.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from coalmine.corpus import build_index
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("banana\n")
    ...     index = build_index(Path(folder, "a.txt"), Path(folder, "index"))
    ...     [(index.decode(one.tokens), one.count) for one in uniform_sample(index, length=4, size=3)]
    [('bana', 1), ('anan', 1), ('nana', 1)]
    """
    [length] = _checked_lengths([length])
    begins, fitting = _windows(index, length)
    total = int(fitting.sum())
    if not 1 <= size <= total:
        raise NotMeasurableError(
            f"the corpus has {total:,} places where {length} tokens of one document follow, but a sample of {size:,} was "
            "requested; ask for another size, or a shorter length"
        )
    chosen = np.sort(
        arrays(seed, "index", "uniform", length).choice(total, size, replace=False, shuffle=False)
    )
    upto = np.cumsum(fitting)
    document = np.searchsorted(upto, chosen, side="right")
    places = begins[document] + chosen - (upto - fitting)[document]
    counts = np.concatenate(
        [
            index.counts(index.sequences_at(some, length))
            for some in np.array_split(places, 1 + size // 10_000)
        ]
    )
    buckets = np.searchsorted(_SMALLEST, counts, side="right") - 1
    return _samples(index, places, length, buckets.tolist(), counts.tolist())


def repeated_sequences(
    index: CorpusIndex, length: int, *, at_least: int = 2, progress: Progress | None = None
) -> Iterator[Repeated]:
    r"""Every sequence of `length` tokens that occurs at least `at_least` times in the corpus, in sorted order.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from coalmine.corpus import build_index
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("banana\nbandana\n")
    ...     index = build_index(Path(folder, "a.txt"), Path(folder, "index"))
    ...     [(index.decode(one.tokens), one.count) for one in repeated_sequences(index, 3)]
    [('ana', 3), ('ban', 2)]
    """
    [length] = _checked_lengths([length])
    if at_least < 2:
        raise InputError(f"at_least should be a number of copies, at least 2, got {at_least}")
    for some in scan(index, shortest=length, longest=length, progress=progress or Silent()):
        runs = some.repeats(length, at_least=at_least)
        for place, count in zip(runs.firsts, runs.counts.tolist(), strict=True):
            [first] = index.occurrences_at(np.array([place]))
            yield Repeated(index.sequences_at(np.array([place]), length)[0], count, first)


class _SmallestKeys:
    """A uniform draw from each bucket of one length, in one pass: those with the smallest keys, which the seed makes random.

    A key is a function of the place of a sequence's first copy, so it does not matter in which order sequences come. It is
    one-to-one, so no two are equal.
    """

    def __init__(self, per_bucket: int, seed: int, length: int) -> None:
        self._per_bucket = per_bucket
        # Odd, so that multiplying by it is one-to-one.
        self._multiplier = np.uint64(child_seed(seed, "index", "normalized", length) & (2**64 - 1) | 1)
        # A sequence above its bucket's limit is no longer among the smallest.
        self._limits = np.full(_BUCKETS, 2**64 - 1, dtype=np.uint64)
        # For each bucket: keys, places and counts, and how many there are.
        self._sizes: Counter[int] = Counter()
        self._kept: dict[int, list[tuple[NDArray[np.uint64], IntArray, IntArray]]] = {}

    def offer_alone(self, places: IntArray, scrambled: NDArray[np.uint64], alone: NDArray[np.bool_]) -> None:
        """Consider the sequences at some places that occur nowhere else."""
        chosen = np.flatnonzero(alone & (scrambled * self._multiplier <= self._limits[0]))
        self.offer(places[chosen], scrambled[chosen], np.ones(len(chosen), dtype=np.int64))

    def offer(self, places: IntArray, scrambled: NDArray[np.uint64], counts: IntArray) -> None:
        """Consider some more sequences, by the places of their first copies."""
        buckets = np.searchsorted(_SMALLEST, counts, side="right") - 1
        keys = scrambled * self._multiplier
        below = np.flatnonzero(keys <= self._limits[buckets])
        for bucket in np.unique(buckets[below]).tolist():
            mine = below[buckets[below] == bucket]
            self._kept.setdefault(bucket, []).append((keys[mine], places[mine], counts[mine]))
            self._sizes[bucket] += len(mine)
            if self._sizes[bucket] > 2 * self._per_bucket:
                self._trim(bucket)

    def drawn(self) -> Iterator[tuple[int, IntArray, IntArray]]:
        """Each bucket in order, with the places and counts of its sequences in the order of the corpus."""
        for bucket in sorted(self._kept):
            self._trim(bucket)
            [(_, places, counts)] = self._kept[bucket]
            order = np.argsort(places)
            yield bucket, places[order], counts[order]

    def _trim(self, bucket: int) -> None:
        kept = self._kept[bucket]
        keys, places, counts = (np.concatenate(column) for column in zip(*kept, strict=True))
        order = np.argsort(keys)[: self._per_bucket]
        self._kept[bucket] = [(keys[order], places[order], counts[order])]
        self._sizes[bucket] = len(order)
        if len(order) == self._per_bucket:
            self._limits[bucket] = keys[order[-1]]


def _scrambled(places: IntArray, seed: int) -> NDArray[np.uint64]:
    """Places as 64 bits that look random: multiplied by odd numbers, with the high bits folded down; one-to-one."""
    key = child_seed(seed, "index", "normalized") & (2**64 - 1)
    mixed = places.astype(np.uint64) ^ np.uint64(key)
    for multiplier, shift in ((0x9E3779B97F4A7C15, 29), (0xD6E8FEB86659FD93, 32), (0xA3B195354A39B70D, 31)):
        mixed *= np.uint64(multiplier)
        mixed ^= mixed >> np.uint64(shift)
    return mixed


def _samples(
    index: CorpusIndex, places: IntArray, length: int, buckets: list[int], counts: list[int]
) -> list[Sample]:
    found = index.occurrences_at(places)
    rows = index.sequences_at(places, length)
    return [
        Sample(length, bucket, count, where.document, where.offset, tokens)
        for bucket, count, where, tokens in zip(buckets, counts, found, rows, strict=True)
    ]


def _windows(index: CorpusIndex, length: int) -> tuple[IntArray, IntArray]:
    """For each document where it begins in the whole corpus, and at how many places a sequence of this length fits."""
    begins, fitting = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for shard, before in zip(index.shards, index.shard_begins.tolist(), strict=False):
        starts = shard.starts.astype(np.int64)
        begins.append(starts[:-1] + before)
        fitting.append(np.maximum(0, np.diff(starts) - length))
    return np.concatenate(begins), np.concatenate(fitting)


def _checked_lengths(lengths: Sequence[int]) -> list[int]:
    wanted = sorted({int(length) for length in lengths})
    if not wanted or wanted[0] < 1 or wanted[-1] > _LONGEST:
        raise InputError(
            f"lengths should be numbers of tokens, from 1 to {_LONGEST:,}, got {list(lengths)}; give some such as [50, 100]"
        )
    return wanted


def _smallest_in(bucket: int) -> int:
    """The smallest number whose fourth power is at least 2^bucket."""
    root = isqrt(isqrt((1 << bucket) - 1)) if bucket else 0
    return root + 1


_SMALLEST = np.array([_smallest_in(bucket) for bucket in range(_BUCKETS)], dtype=np.int64)
