"""Parts of texts that occur elsewhere in the corpus too: what one round of exact deduplication removes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.corpus.index.queries import CorpusIndex, raw_sequences
from coalmine.corpus.index.scanning import Slice, scan
from coalmine.corpus.index.searching import intervals
from coalmine.corpus.index.shards import Shard
from coalmine.models.protocols import IntArray
from coalmine.progress import Progress

_COPY, _FIRST = 1, 2
_BLOCK = 1 << 20


class RepeatedPart(NamedTuple):
    """A part of a document that is to be removed."""

    # Which document, counted from 0, and where in its UTF-8.
    document: int
    begin: int
    end: int
    # How often the text that begins it occurs in the corpus, and where it occurs first.
    copies: int
    first_document: int
    first_offset: int


def repeated_parts(
    index: CorpusIndex, length: int, *, keep_first: bool, work: Path, progress: Progress
) -> list[RepeatedPart]:
    """The parts to remove so that what occurs several times occurs once (or not at all), in the order of the corpus.

    A text of `length` bytes or more that begins with a whole character and occurs several times is covered by these
    parts, all but its first copy if that is kept. Parts begin and end between characters. A first copy is left whole even
    where it overlaps later copies of something else, so more may be left for another round; but each round that finds something
    repeated removes something, because nothing protects the end of the last copy.

    Args:
        index: over bytes.
        length: in bytes.
        keep_first: keep the first copy; otherwise none is kept.
        work: a directory for a file of a byte for each byte of the corpus.
        progress: gets the scan.
    """
    marks = _zeros(work / "marks", max(1, int(index.shard_begins[-1])))
    for some in scan(
        index, shortest=length, longest=length, progress=progress, task="looking for repeated text"
    ):
        _mark(some, length, marks, keep_first=keep_first)
    found: list[RepeatedPart] = []
    before = 0
    for shard in index.shards:
        begin = int(index.shard_begins[shard.number])
        found += _parts(index, shard, np.asarray(marks[begin : begin + shard.length]), length, before)
        before += shard.documents
    del marks
    (work / "marks").unlink()
    return found


def _zeros(path: Path, size: int) -> np.memmap[tuple[int], np.dtype[np.uint8]]:
    """A mapped file of zeros that are really written: a full disk raises an error here, and would kill the process later."""
    with open(path, "xb") as out:
        out.writelines(bytes(min(_BLOCK, size - begin)) for begin in range(0, size, _BLOCK))
    return np.memmap(path, dtype=np.uint8, mode="r+", shape=(size,))


def _mark(some: Slice, length: int, marks: NDArray[np.uint8], *, keep_first: bool) -> None:
    runs = some.repeats(length)
    if not len(runs.begins):
        return
    members = np.repeat(runs.begins - np.cumsum(runs.counts) + runs.counts, runs.counts) + np.arange(
        runs.counts.sum()
    )
    marks[some.places[members]] = _COPY
    if keep_first:
        marks[runs.firsts] = _FIRST


def _parts(
    index: CorpusIndex, shard: Shard, marks: NDArray[np.uint8], length: int, before: int
) -> list[RepeatedPart]:
    symbols = shard.symbols
    copies, firsts = (_at_characters(symbols, np.flatnonzero(marks == mark)) for mark in (_COPY, _FIRST))
    if not len(copies):
        return []
    removed = _covered(shard.length, copies, _to_boundary(symbols, copies + length, 1))
    removed &= ~_covered(shard.length, firsts, _to_boundary(symbols, firsts + length, -1))
    edges = np.flatnonzero(np.diff(removed.astype(np.int8), prepend=0, append=0))
    begins, ends = edges[::2], edges[1::2]
    # The copy that covers the beginning of each part is the last one that does not begin after it.
    sources = copies[np.searchsorted(copies, begins, side="right") - 1]
    counts, places = _copies_and_firsts(index, shard, sources, length)
    documents = shard.documents_at(begins)
    offsets = shard.starts[documents].astype(np.int64)
    origins = _documents_at(index, places)
    return [
        RepeatedPart(before + document, begin - offset, end - offset, count, *origin)
        for document, begin, end, offset, count, origin in zip(
            documents.tolist(),
            begins.tolist(),
            ends.tolist(),
            offsets.tolist(),
            counts.tolist(),
            origins,
            strict=True,
        )
    ]


def _at_characters(symbols: NDArray[np.uint8], positions: IntArray) -> IntArray:
    """Those of the positions at which a character begins."""
    return positions[~_continues(symbols, positions)]


def _continues(symbols: NDArray[np.uint8], positions: IntArray) -> NDArray[np.bool_]:
    """Whether the byte at each position is inside a character; symbols are bytes + 1, so 0x80 to 0xbf are one more."""
    found = symbols[positions]
    return (found >= 0x81) & (found <= 0xC0)


def _to_boundary(symbols: NDArray[np.uint8], positions: IntArray, step: int) -> IntArray:
    """The next place between two characters at or after each position, or with a step of -1 at or before it."""
    moved = positions.copy()
    for _ in range(3):
        moved[_continues(symbols, moved)] += step
    return moved


def _covered(length: int, begins: IntArray, ends: IntArray) -> NDArray[np.bool_]:
    """Which of `length` positions are in one of the spans; both begins and ends ascend."""
    apart = np.flatnonzero(begins[1:] > ends[:-1])
    change = np.zeros(length + 1, dtype=np.int8)
    if len(begins):
        change[begins[np.append(0, apart + 1)]] += 1
        change[ends[np.append(apart, len(ends) - 1)]] -= 1
    covered: NDArray[np.bool_] = np.cumsum(change[:-1], dtype=np.int8).astype(bool)
    return covered


def _copies_and_firsts(
    index: CorpusIndex, shard: Shard, positions: IntArray, length: int
) -> tuple[IntArray, IntArray]:
    """How often the text at each position of a shard occurs in the corpus, and the place of its first copy."""
    counts = np.zeros(len(positions), dtype=np.int64)
    firsts = np.full(len(positions), -1, dtype=np.int64)
    for begin in range(0, len(positions), 4096):
        some = raw_sequences(shard, positions[begin : begin + 4096], length)
        for other in index.shards:
            low, high = intervals(other, some)
            counts[begin : begin + 4096] += high - low
            for place in np.flatnonzero((high > low) & (firsts[begin : begin + 4096] < 0)).tolist():
                first = int(other.suffixes[low[place] : high[place]].min())
                firsts[begin + place] = first + int(index.shard_begins[other.number])
    return counts, firsts


def _documents_at(index: CorpusIndex, places: IntArray) -> list[tuple[int, int]]:
    """The document, counted from 0, and the offset in it of some places in the whole corpus."""
    documents_before = np.cumsum([0] + [shard.documents for shard in index.shards])
    numbers = np.searchsorted(index.shard_begins, places, side="right") - 1
    found: list[tuple[int, int]] = []
    for place, number in zip(places.tolist(), numbers.tolist(), strict=True):
        shard = index.shards[number]
        position = place - int(index.shard_begins[number])
        document = int(np.searchsorted(shard.starts, np.uint32(position), side="right")) - 1
        found.append((int(documents_before[number]) + document, position - int(shard.starts[document])))
    return found
