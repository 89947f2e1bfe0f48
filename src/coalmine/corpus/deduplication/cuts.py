"""What is left of each document of a corpus after parts of some were cut out?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from coalmine.corpus.files.documents import Fields
from coalmine.corpus.files.reading import read_documents
from coalmine.corpus.files.streams import kind_of


class CutDocument(NamedTuple):
    """One document with what is left of its text."""

    # Its place among all documents, counted from 0, and its line or row.
    place: int
    number: int
    # How many bytes of UTF-8 it had.
    size: int
    text: bytes


class Survey(NamedTuple):
    """Sizes of all documents in bytes, before and after, and the places of those of which nothing is left."""

    sizes: list[int]
    left: list[int]
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

    def survey(self) -> Survey:
        """How much there was of each document, and how much is left."""
        sizes: list[int] = []
        left: list[int] = []
        emptied: set[int] = set()
        # A line that holds nothing else than this is no document.
        nothing = {b"", b"\r"} if kind_of(self.source).kind == ".txt" else {b""}
        for document in self.documents():
            left.append(len(document.text))
            pieces = self.pieces.get(document.place)
            sizes.append(document.size)
            if pieces is not None and document.text in nothing:
                emptied.add(document.place)
        return Survey(sizes, left, emptied)

    def original_offset(self, place: int, offset: int) -> int:
        """Where in the text as it was an offset in what is left of it lies."""
        for begin, end in self.pieces.get(place, []):
            if offset < end - begin:
                return begin + offset
            offset -= end - begin
        return offset

    def cut(self, place: int, size: int, begin: int, end: int) -> list[tuple[int, int]]:
        """Take a span out of what is left of a document; gives the spans of the text as it was that went with it."""
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
    """What makes the text that is left of the text as it was."""

    def cut(text: str) -> str:
        raw = text.encode("utf-8")
        return b"".join([raw[begin:end] for begin, end in pieces]).decode("utf-8")

    return cut
