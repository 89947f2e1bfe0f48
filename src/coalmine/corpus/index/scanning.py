"""Scanning the sorted suffixes of all shards: which sequences of a length there are, how often each occurs, and where first.

The scan takes some suffixes at a time: all those of all shards between two sequences in the order of the alphabet. All copies of a
sequence are therefore found together, whichever shards they are in. Memory grows with the copies of one sequence, and not with
the corpus.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.corpus.index.queries import CorpusIndex, raw_sequences
from coalmine.corpus.index.searching import equal_symbols, intervals
from coalmine.corpus.index.shards import Shard, Words
from coalmine.models.protocols import IntArray
from coalmine.progress import Progress

# Suffixes that are compared at once: their places in the text should stay in the processor's cache from word to word.
SLICE = 1 << 16
# Slices are separated by this many symbols at most; with more, sequences of a million tokens would fill the memory.
_SYMBOLS_TO_CUT_BY = 1 << 10


class RepeatedRuns(NamedTuple):
    """The distinct sequences of one length in a slice that occur at least twice in the corpus, in order."""

    # Where in the slice the copies of each begin, and how many there are.
    begins: IntArray
    counts: IntArray
    # The place of the first copy in the whole corpus, in symbols.
    firsts: IntArray


class Slice:
    """Consecutive suffixes of the corpus in sorted order, without those that are too short.

    `shared[i]` is how many tokens suffix i has in common with the one before it, counted up to the longest length of the scan;
    `room` is how many each has to the end of its document, and `places` where in the whole corpus it begins.
    """

    def __init__(self, shared: IntArray, room: IntArray, places: IntArray) -> None:
        self.shared = shared
        self.room = room
        self.places = places

    def repeats(self, length: int, *, at_least: int = 2) -> RepeatedRuns:
        """The distinct sequences of `length` tokens that occur `at_least` times, twice or more, in the corpus."""
        before, after = self._joined(length)
        begins = np.flatnonzero(after & ~before)
        ends = np.flatnonzero(before & ~after) + 1
        counts = ends - begins
        if len(begins):
            cuts = np.stack([begins, ends], axis=1).reshape(-1)
            # What is between two runs is cut out; after the last one there may be nothing.
            firsts = np.minimum.reduceat(self.places, cuts[:-1] if ends[-1] == len(before) else cuts)[::2]
        else:
            firsts = begins
        wanted = counts >= at_least
        return RepeatedRuns(begins[wanted], counts[wanted], firsts[wanted])

    def alone(self, length: int) -> NDArray[np.bool_]:
        """Which of the suffixes begin with `length` tokens that occur only there."""
        before, after = self._joined(length)
        alone: NDArray[np.bool_] = (self.room >= length) & ~before & ~after
        return alone

    def _joined(self, length: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Whether each suffix shares `length` tokens with the one before it, and with the one after it."""
        before: NDArray[np.bool_] = self.shared >= length
        return before, np.append(before[1:], False)


def scan(
    index: CorpusIndex, *, shortest: int, longest: int, progress: Progress, task: str = "scanning the index"
) -> Iterator[Slice]:
    """All suffixes of at least `shortest` tokens in sorted order, compared up to `longest` tokens.

    All copies of a sequence of `shortest` or more tokens are in one slice.
    """
    progress.start(task, index.tokens)
    bounds = _bounds(index, shortest)
    for begins, ends in pairwise(bounds):
        found = _slice(index, begins, ends, shortest, longest)
        if len(found.places):
            yield found
        progress.advance(int(sum(ends) - sum(begins)))
    progress.finish()


def _bounds(index: CorpusIndex, shortest: int) -> list[list[int]]:
    """For each slice the rank of its first suffix in each shard, and after the last slice all lengths."""
    largest = max(index.shards, key=lambda shard: shard.tokens)
    step = max(1, SLICE * largest.tokens // max(1, index.tokens))
    ranks = np.arange(step, largest.tokens, step)
    # Compared in no more than `shortest` symbols, all suffixes that begin with the same sequence fall on the same side.
    symbols = min(shortest, _SYMBOLS_TO_CUT_BY)
    cuts: list[list[IntArray]] = []
    for begin in range(0, len(ranks), 4096):
        positions = largest.positions(ranks[begin : begin + 4096])
        splitters = raw_sequences(largest, positions, symbols)
        cuts.append([intervals(shard, splitters)[0] for shard in index.shards])
    inner = [
        np.concatenate([some[number] for some in cuts]) if cuts else np.empty(0, dtype=np.int64)
        for number in range(len(index.shards))
    ]
    table = np.stack(
        [
            np.concatenate(([0], column, [shard.tokens]))
            for shard, column in zip(index.shards, inner, strict=True)
        ]
    )
    for shard, row in zip(index.shards, table, strict=True):
        if np.any(np.diff(row) < 0):
            raise shard.damaged("suffixes")
    return [list(map(int, column)) for column in table.T]


def _slice(index: CorpusIndex, begins: list[int], ends: list[int], shortest: int, longest: int) -> Slice:
    positions: list[IntArray] = []
    rooms: list[IntArray] = []
    sources: list[Shard] = []
    for shard, begin, end in zip(index.shards, begins, ends, strict=True):
        if begin == end:
            continue
        some = shard.positions(slice(begin, end))
        room = shard.room_at(some)
        enough = room >= shortest
        if enough.any():
            positions.append(some[enough])
            rooms.append(room[enough])
            sources.append(shard)
    if not sources:
        nothing = np.empty(0, dtype=np.int64)
        return Slice(nothing, nothing, nothing)
    if len(sources) == 1:
        shared = _shared_in_order(sources[0], positions[0], longest)
        places = positions[0] + int(index.shard_begins[sources[0].number])
        return _cut_slice(shared, rooms[0], places)
    merged = _Merge(sources, positions)
    shared = merged.compare(longest)
    room = np.concatenate(rooms)[merged.order]
    places = np.concatenate(
        [some + int(index.shard_begins[shard.number]) for shard, some in zip(sources, positions, strict=True)]
    )[merged.order]
    return _cut_slice(shared, room, places)


def _cut_slice(shared: IntArray, room: IntArray, places: IntArray) -> Slice:
    # What two suffixes have in common after the end of a document does not count.
    return Slice(np.minimum(shared, room).astype(np.int32), room.astype(np.int32), places)


def _shared_in_order(shard: Shard, positions: IntArray, longest: int) -> IntArray:
    """How many symbols each of some sorted suffixes of one shard has in common with the one before it, up to `longest`."""
    shared = np.zeros(len(positions), dtype=np.int64)
    live = np.arange(len(positions))
    places = positions * shard.symbol_bytes
    # Whether a suffix agrees so far with the one before it that is still compared.
    linked = np.ones(len(positions), dtype=bool)
    linked[0] = False
    compared = 0
    while live.size and compared < longest * shard.symbol_bytes:
        # Most differ early; those that do not have much in common, and are compared by cache line.
        size = 8 if compared < 24 else 64
        words = shard.rows(places + compared, size).view(np.dtype("<u8"))
        pairs = np.flatnonzero(linked)
        difference = words[pairs] ^ words[pairs - 1]
        if size == 8:
            column, first = 0, difference[:, 0]
        else:
            column = (difference != 0).argmax(axis=1)
            first = difference[np.arange(len(pairs)), column]
        equal = first == 0
        # The lowest bit that differs is in the first byte that does; a power of two is exact as a float.
        lowest = (first & (~first + np.uint64(1))).astype(np.float64)
        agreed = np.where(equal, size, 8 * column + (np.frexp(lowest)[1] - 1) // 8)
        shared[live[pairs]] = compared + agreed
        linked[pairs] = equal
        continuing = linked | np.append(linked[1:], False)
        live, places, linked = live[continuing], places[continuing], linked[continuing]
        compared += size
    return np.minimum(shared // shard.symbol_bytes, longest)


class _Merge:
    """The suffixes of several shards, each sorted, as one sorted list."""

    def __init__(self, shards: list[Shard], positions: list[IntArray]) -> None:
        self._shards = shards
        self._positions = np.concatenate(positions)
        self._source = np.repeat(np.arange(len(shards)), [len(some) for some in positions])
        self._in_word = shards[0].symbols_in_word
        self._symbol_bytes = shards[0].symbol_bytes
        self.order = np.arange(len(self._positions))

    def compare(self, longest: int) -> IntArray:
        """Sort by the first `longest` symbols, and give how many each has in common with the one before it.

        Word by word: suffixes that agree in all words so far are a group, and are compared in the next word together.
        """
        shared = np.zeros(len(self.order), dtype=np.int64)
        live = np.arange(len(self.order))
        group = np.zeros(len(self.order), dtype=np.int64)
        number = 0
        while live.size and number * self._in_word < longest:
            words = self._words(self.order[live], number)
            by_word = np.lexsort((words, group))
            self.order[live] = self.order[live[by_word]]
            words = words[by_word]
            together = group[1:] == group[:-1]
            joined = together & (words[1:] == words[:-1])
            parted = np.flatnonzero(together & ~joined)
            agreed = equal_symbols(words[parted] ^ words[parted + 1], self._symbol_bytes)
            shared[live[parted + 1]] = number * self._in_word + agreed
            number += 1
            shared[live[1:][joined]] = number * self._in_word
            continuing = np.concatenate(([False], joined)) | np.concatenate((joined, [False]))
            group = np.cumsum(np.concatenate(([True], ~joined)))[continuing]
            live = live[continuing]
        return np.minimum(shared, longest)

    def _words(self, which: IntArray, number: int) -> Words:
        result = np.empty(len(which), dtype=np.uint64)
        source = self._source[which]
        for place, shard in enumerate(self._shards):
            mine = np.flatnonzero(source == place)
            result[mine] = shard.words(self._positions[which[mine]], number)
        return result
