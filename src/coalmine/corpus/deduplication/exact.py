"""Exact deduplication: cuts repeated text out of documents, round by round, until nothing is repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from coalmine.corpus.deduplication.options import DedupOptions
from coalmine.corpus.deduplication.repeated_text import RepeatedPart, repeated_parts
from coalmine.corpus.deduplication.report import ExactSummary, Removed
from coalmine.corpus.files.documents import Fields
from coalmine.corpus.files.kinds import kind_of
from coalmine.corpus.files.reading import read_documents
from coalmine.corpus.index.building import build_index
from coalmine.engines.engine import Engine
from coalmine.progress import Progress


class CutDocument(NamedTuple):
    """One document with what is left of its text."""

    # Its place among all documents, counted from 0, and its line or row.
    place: int
    number: int
    # How many bytes of UTF-8 it had.
    size: int
    text: bytes


class Sizes(NamedTuple):
    """Sizes of all documents in bytes, before and after, and the places of those of which nothing is left."""

    before: list[int]
    after: list[int]
    emptied: set[int]


class CutCorpus:
    """What is left of each document: for those that were cut, the kept spans of their UTF-8."""

    def __init__(self, source: Path, fields: Fields) -> None:
        self.source = source
        self.fields = fields
        # By the place of a document among all, counted from 0.
        self.pieces: dict[int, list[tuple[int, int]]] = {}

    def documents(self) -> Iterator[CutDocument]:
        """All documents with what is left of their texts."""
        for place, document in enumerate(read_documents(self.source, self.fields)):
            text = document.text.encode("utf-8")
            size = len(text)
            if place in self.pieces:
                text = b"".join([text[begin:end] for begin, end in self.pieces[place]])
            yield CutDocument(place, document.number, size, text)

    def sizes(self) -> Sizes:
        """How much there was of each document, and how much is left."""
        sizes: list[int] = []
        left: list[int] = []
        emptied: set[int] = set()
        nothing = kind_of(self.source).empty
        for document in self.documents():
            left.append(len(document.text))
            pieces = self.pieces.get(document.place)
            sizes.append(document.size)
            if pieces is not None and document.text in nothing:
                emptied.add(document.place)
        return Sizes(sizes, left, emptied)

    def original_offset(self, place: int, offset: int) -> int:
        """Where in the original text an offset in what is left of it is."""
        for begin, end in self.pieces.get(place, []):
            if offset < end - begin:
                return begin + offset
            offset -= end - begin
        return offset

    def cut(self, place: int, size: int, begin: int, end: int) -> list[tuple[int, int]]:
        """Take a span out of what is left of a document; returns the spans of the original text that went with it."""
        kept: list[tuple[int, int]] = []
        removed: list[tuple[int, int]] = []
        at = 0
        for first, last in self.pieces.get(place, [(0, size)]):
            low = first + min(max(begin - at, 0), last - first)
            high = first + min(max(end - at, 0), last - first)
            at += last - first
            kept += [span for span in ((first, low), (high, last)) if span[0] < span[1]]
            removed += [(low, high)] if low < high else []
        self.pieces[place] = kept
        return removed


def as_change(pieces: list[tuple[int, int]]) -> Callable[[str], str]:
    """A function from the original text to what is left of it."""

    def cut(text: str) -> str:
        raw = text.encode("utf-8")
        return b"".join([raw[begin:end] for begin, end in pieces]).decode("utf-8")

    return cut


def remove_repeats(
    state: CutCorpus, options: DedupOptions, work: Path, progress: Progress, engine: Engine
) -> tuple[int, list[Removed]]:
    """Cut what is repeated out of the documents until nothing is; returns the number of searches, and what was cut."""
    removed: list[Removed] = []
    source, fields, rounds = state.source, state.fields, 0
    length = options.exact or 0
    numbers = np.empty(0, dtype=np.int64)
    while True:
        rounds += 1
        index = build_index(
            source,
            work / "index",
            fields=fields,
            memory=options.memory,
            overwrite=True,
            engine=engine,
            progress=progress,
        )
        if rounds == 1:
            numbers = np.concatenate([shard.numbers for shard in index.shards])
        sizes = np.concatenate([np.diff(shard.starts.astype(np.int64)) - 1 for shard in index.shards])
        parts = repeated_parts(index, length, keep_first=options.keep == "one", work=work, progress=progress)
        if not parts:
            return rounds, removed
        # Before anything is cut: offsets refer to this round.
        origins = [state.original_offset(part.first_document, part.first_offset) for part in parts]
        removed += _cut(state, parts, origins, rounds, sizes, numbers)
        source, fields = work / "round.jsonl", Fields()
        with open(source, "wb") as out:
            texts = (document.text.decode("utf-8") for document in state.documents())
            out.writelines(msgspec.json.encode({"text": text}) + b"\n" for text in texts)


def _cut(
    state: CutCorpus,
    parts: Sequence[RepeatedPart],
    origins: Sequence[int],
    rounds: int,
    sizes: np.ndarray[tuple[int], np.dtype[np.int64]],
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> list[Removed]:
    removed: list[Removed] = []
    for place, some in groupby(zip(parts, origins, strict=True), key=lambda one: one[0].document):
        # From the last to the first, so that the offsets of the remaining ones stay right.
        here: list[Removed] = []
        for part, origin in reversed(list(some)):
            for begin, end in reversed(state.cut(place, int(sizes[place]), part.begin, part.end)):
                here.append(
                    Removed(
                        document=int(numbers[place]),
                        reason="repeated text",
                        offset=begin,
                        bytes=end - begin,
                        round=rounds,
                        copies=part.copies,
                        of=int(numbers[part.first_document]),
                        of_offset=origin,
                    )
                )
        removed += reversed(here)
    return removed


def exact_summary(
    options: DedupOptions, rounds: int, removed: Sequence[Removed], state: CutCorpus, sizes: Sizes
) -> ExactSummary | None:
    """What exact deduplication did; None where it was not asked for."""
    if options.exact is None:
        return None
    return ExactSummary(
        options.exact,
        options.keep,
        rounds,
        len(removed),
        sum(one.bytes for one in removed),
        len(state.pieces) - len(sizes.emptied),
        len(sizes.emptied),
    )
