"""Looking up sequences among the sorted suffixes of a shard, many at a time.

Sequences and suffixes are compared by words of 8 bytes. All sequences take the same step of their binary searches at once, and
the suffixes that agree with a sequence in one word are the interval in which the next word is looked up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.corpus.index.shards import PADDING, Shard, Words
from coalmine.models.protocols import IntArray

_ONE = np.uint64(1)


class Sequences:
    """Sequences of symbols to look up."""

    def __init__(
        self,
        symbols: NDArray[np.uint8],
        lengths: IntArray,
        symbol_bytes: int,
        *,
        starts: IntArray | None = None,
    ) -> None:
        """`symbols` are big-endian bytes; `lengths` and `starts` count symbols, and without `starts` one follows the other."""
        self.lengths = lengths.astype(np.int64)
        self.symbol_bytes = symbol_bytes
        self._in_word = 8 // symbol_bytes
        self._spare_bits = np.uint64(64 - 8 * symbol_bytes * self._in_word)
        self._starts = np.cumsum(self.lengths) - self.lengths if starts is None else starts
        padded = np.concatenate([symbols, np.zeros(PADDING, dtype=np.uint8)])
        self._words = np.ndarray((len(symbols) + 1,), dtype=np.dtype("<u8"), buffer=padded.data, strides=(1,))

    def __len__(self) -> int:
        return len(self.lengths)

    def words(self, which: IntArray, number: int) -> tuple[Words, Words]:
        """The `number`-th word of some sequences that are long enough to have one, as the lowest and the highest that fits.

        Where a sequence ends inside the word, anything may follow it.
        """
        place = number * self._in_word
        found: Words = self._words[(self._starts[which] + place) * self.symbol_bytes]
        found.byteswap(inplace=True)
        if self._spare_bits:
            found >>= self._spare_bits
        symbols = np.minimum(self.lengths[which] - place, self._in_word)
        free_bits = ((self._in_word - symbols) * (8 * self.symbol_bytes)).astype(np.uint64)
        free = (_ONE << free_bits) - _ONE
        return found & ~free, found | free


class _Step(NamedTuple):
    """The result of comparing one word of the sequences that are still being looked up."""

    number: int
    which: IntArray
    # The interval that agreed in all words before, and the one that agrees in this word too.
    before: tuple[IntArray, IntArray]
    after: tuple[IntArray, IntArray]


def intervals(shard: Shard, sequences: Sequences) -> tuple[IntArray, IntArray]:
    """The ranks of the suffixes that begin with each sequence: the first, and one past the last.

    For a sequence that no suffix begins with, both are the rank that it would have.
    """
    low = np.zeros(len(sequences), dtype=np.int64)
    high = np.full(len(sequences), shard.tokens, dtype=np.int64)
    for step in _steps(shard, sequences):
        low[step.which], high[step.which] = step.after
    return low, high


def longest_prefixes(shard: Shard, sequences: Sequences) -> tuple[IntArray, IntArray]:
    """How long a beginning of each sequence occurs in the shard, in tokens, and the rank of a suffix that has it."""
    matched = np.zeros(len(sequences), dtype=np.int64)
    ranks = np.zeros(len(sequences), dtype=np.int64)
    for step in _steps(shard, sequences):
        base = step.number * shard.symbols_in_word
        low, high = step.after
        inside = low < high
        whole = step.which[inside]
        matched[whole] = np.minimum(base + shard.symbols_in_word, sequences.lengths[whole])
        ranks[whole] = low[inside]
        # Where no suffix agrees in the whole word, one of the two neighbors agrees in more of it than any other.
        for neighbor in (low - 1, low):
            there = ~inside & (neighbor >= step.before[0]) & (neighbor < step.before[1])
            which, rank = step.which[there], neighbor[there]
            word = shard.words(shard.suffixes[rank], step.number)
            agreed = equal_symbols(word ^ sequences.words(which, step.number)[0], shard.symbol_bytes)
            length = np.minimum(base + agreed, sequences.lengths[which])
            better = length > matched[which]
            matched[which[better]] = length[better]
            ranks[which[better]] = rank[better]
    return matched, ranks


def equal_symbols(difference: Words, symbol_bytes: int) -> IntArray:
    """How many leading symbols two words share, from their exclusive or; as many as there are where it is 0.

    >>> equal_symbols(np.array([0, 1, 1 << 63, 1 << 20], dtype=np.uint64), 1).tolist()
    [8, 7, 0, 5]
    """
    in_word = 8 // symbol_bytes
    # Without the bit below the highest, rounding to a float never carries into the next power of two.
    highest = difference & ~(difference >> _ONE)
    bits = np.frexp(highest.astype(np.float64))[1].astype(np.int64)  # 0 for 0
    spare_bits = 64 - 8 * symbol_bytes * in_word
    return (64 - spare_bits - bits) // (8 * symbol_bytes)


def _steps(shard: Shard, sequences: Sequences) -> Iterator[_Step]:
    which = np.arange(len(sequences), dtype=np.int64)
    low: IntArray = np.zeros(len(sequences), dtype=np.int64)
    high: IntArray = np.full(len(sequences), shard.tokens, dtype=np.int64)
    number = 0
    while which.size:
        least, most = sequences.words(which, number)
        # The first that is not below the least is the first above what comes before it; nothing comes before 0.
        begin = _first_above(
            shard, low, np.where(least > 0, high, low), np.maximum(least, _ONE) - _ONE, number
        )
        end = _first_above(shard, begin, high, most, number)
        yield _Step(number, which, (low, high), (begin, end))
        number += 1
        continuing = (begin < end) & (sequences.lengths[which] > number * shard.symbols_in_word)
        which, low, high = which[continuing], begin[continuing], end[continuing]


def _first_above(shard: Shard, low: IntArray, high: IntArray, keys: Words, number: int) -> IntArray:
    """In each interval of ranks, the first suffix whose `number`-th word is above the key; the interval's end if none is."""
    if number == 0 and shard.tokens:
        nearer, farther = shard.between_landmarks(keys)
        low, high = np.minimum(np.maximum(low, nearer), high), np.minimum(high, np.maximum(low, farther))
    result = low.copy()
    live = np.flatnonzero(low < high)
    low, high, keys = low[live], high[live], keys[live]
    while live.size:
        middle = (low + high) >> 1
        above = shard.words(shard.suffixes[middle], number) > keys
        low = np.where(above, low, middle + 1)
        high = np.where(above, middle, high)
        open_still = low < high
        done = ~open_still
        result[live[done]] = low[done]
        live, low, high, keys = live[open_still], low[open_still], high[open_still], keys[open_still]
    return result
