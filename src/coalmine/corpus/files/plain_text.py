"""Corpora in plain text: one document per line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from coalmine.corpus.files.corpora import CorpusKind
from coalmine.corpus.files.documents import BOUNDARY, CorpusDocument, JoinedTexts, LineBlock, TextPiece
from coalmine.corpus.files.lines import LineCorpus
from coalmine.errors import CorpusError

if TYPE_CHECKING:
    from coalmine.corpus.files.strings import Change


class _PlainBlock(LineBlock):
    """Some whole lines of plain text; an empty line is not a document, and stays where it is."""

    def __init__(self, raw: bytes, first: int, line: int) -> None:
        import numpy as np

        self.raw = raw
        self.first = first
        self._line = line
        self._content = np.frombuffer(raw, dtype=np.uint8)
        breaks = np.flatnonzero(self._content == ord("\n"))
        self.lines = len(breaks)
        # Where each line ends without its line break, and with it.
        if not raw.endswith(b"\n"):
            breaks = np.append(breaks, len(raw))
        self._breaks = breaks
        self._ends = np.minimum(breaks + 1, len(raw))
        self._starts = np.concatenate(([0], self._ends[:-1]))
        lengths = breaks - self._starts
        self._full = (lengths > 1) | ((lengths == 1) & (self._content[self._starts] != ord("\r")))
        self.count = int(np.count_nonzero(self._full))

    def spans(self) -> list[tuple[int, int]]:
        """Where in `raw` each document begins and ends."""
        return list(zip(self._starts[self._full].tolist(), self._ends[self._full].tolist(), strict=True))

    def documents(self) -> list[CorpusDocument]:
        """The documents on these lines."""
        return [
            CorpusDocument(number, line.removesuffix(b"\r").decode("utf-8"))
            for number, line in enumerate(self.raw.split(b"\n"), self._line)
            if line not in {b"", b"\r"}
        ]

    def haystack(self) -> bytes:
        """The lines as they are."""
        return self.raw

    def number_at(self, offset: int) -> int:
        """The number of the line that holds a byte."""
        return self._line + self.raw.count(b"\n", 0, offset)

    def joined(self) -> JoinedTexts:
        """The texts with where each ends, without making a string of each."""
        import numpy as np

        content = self._content if self.raw.endswith(b"\n") else np.append(self._content, np.uint8(0))
        # A carriage return before the line break belongs to it.
        returns = (self._breaks > self._starts) & (content[self._breaks - 1] == ord("\r"))
        lengths = self._breaks - self._starts - returns
        joined = content.copy()
        joined[self._breaks] = BOUNDARY[0]
        if returns.any() or not self._full.all():
            kept = np.ones(len(joined), dtype=bool)
            kept[self._breaks[returns] - 1] = False
            kept[self._breaks[~self._full]] = False
            joined = joined[kept]
        numbers = (self._line + np.flatnonzero(self._full)).astype(np.int64)
        return JoinedTexts(numbers, np.cumsum(lengths[self._full] + 1), joined)


class PlainTextCorpus(LineCorpus):
    """A .txt corpus: each line that is not empty is a document."""

    def blocks(self) -> Iterator[_PlainBlock]:
        """The documents in order."""
        first = 0
        for raw in self.whole_lines():
            block = _PlainBlock(raw, first, self.line)
            yield block
            first += block.count
            self.line += block.lines

    def pieces(self) -> Iterator[TextPiece]:
        """The lines in order, in constant memory however long one is."""
        goes_on = False
        for raw in self.parts_of_lines():
            if goes_on and raw.startswith(
                (b"\n", b"\r\n")
            ):  # the long line ends here, and with an empty one no boundary would be left
                yield TextPiece([self.line], None, [1], BOUNDARY, continues=True)
                goes_on = False
            block = _PlainBlock(raw, 0, self.line)
            piece = block.piece(users=False)
            ends_here = raw.endswith(b"\n")
            if not ends_here and piece.ends:
                piece = piece._replace(
                    content=piece.content[:-1], ends=[*piece.ends[:-1], piece.ends[-1] - 1]
                )
            yield piece._replace(continues=goes_on, goes_on=not ends_here)
            goes_on = not ends_here
            self.line += block.lines

    def row(self, values: Mapping[str, str]) -> bytes:
        """A new document as a line, without its line break."""
        text = values["text"]
        if not text or "\n" in text or "\r" in text:
            raise CorpusError(
                f"a document of {self.path.name} is one line, but a canary is empty or has several; "
                "use another format, or a .jsonl corpus"
            )
        return text.encode("utf-8")

    def changed_row(self, document: CorpusDocument, row: bytes, text: str) -> bytes:  # noqa: ARG002 - nothing else is on a line
        """The new text."""
        return text.encode("utf-8")

    def rewritten(self, row: bytes, change: Change) -> bytes:
        """The line, which is one string."""
        return change(row.decode("utf-8")).encode("utf-8")


PLAIN_TEXT = CorpusKind(
    ".txt",
    "plain text",
    PlainTextCorpus,
    note="one document per line",
    has_fields=False,
    empty=frozenset({b"", b"\r"}),
)
