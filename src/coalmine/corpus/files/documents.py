"""What a corpus is made of: documents, the fields they are read from, and blocks of them as they stand in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import msgspec

from coalmine.errors import CorpusError

# Stands between the texts of a block where they are searched together; no UTF-8 text holds this byte, so nothing is
# ever found across the end of a document.
BOUNDARY = b"\xff"
_FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,39}")


class Fields(msgspec.Struct, frozen=True):
    """Which fields of a row hold what; a .txt corpus has no fields and takes only the default.

    `source` and `target` are the two sides of a translation pair, and replace `text`. Training is on the target, so
    the target is where a canary stands.
    """

    text: str = "text"
    user: str | None = None
    source: str | None = None
    target: str | None = None

    def __post_init__(self) -> None:
        if (self.source is None) != (self.target is None):
            given, missing = ("source", "target") if self.target is None else ("target", "source")
            raise CorpusError(
                f"pairs need both fields, but only {given} was given; name the {missing} field too"
            )
        names = list(self.named().values())
        if len(set(names)) < len(names):
            raise CorpusError(
                f"each field needs a column of its own, but got {names}; name different columns"
            )

    @property
    def scored(self) -> str:
        """The name of the field that a model is trained to produce: the target of a pair, or the text."""
        return self.text if self.target is None else self.target

    def named(self) -> dict[str, str]:
        """Role to field name, for the roles in use.

        >>> Fields(user="author").named()
        {'text': 'text', 'user': 'author'}
        """
        names = {"text": self.scored, "user": self.user, "source": self.source}
        return {role: name for role, name in names.items() if name is not None}


class Document(msgspec.Struct, frozen=True, gc=False):
    """One document of a corpus.

    `number` is where it stands, counted from 1: the line on which it begins, or for Parquet the row.
    """

    number: int
    text: str
    user: str | None = None
    source: str | None = None


class Block(Protocol):
    """Some consecutive documents of a corpus."""

    @property
    def first(self) -> int:
        """How many documents stand before this block."""

    @property
    def count(self) -> int:
        """How many documents it holds."""

    def documents(self) -> Sequence[Document]:
        """The documents in it."""

    def haystack(self) -> bytes:
        """All their texts in UTF-8, for searching; no text without line breaks is found across two documents."""

    def number_at(self, offset: int) -> int:
        """The number of the document that holds the byte at `offset` of `haystack()`."""


class TextBlock(Block, Protocol):
    """A block of a file of lines, with its bytes."""

    @property
    def raw(self) -> bytes:
        """The bytes as they stand in the file, with whatever stands between documents."""

    def spans(self) -> Sequence[tuple[int, int]]:
        """Where in `raw` each document begins and, after its line break if there is one, ends."""


class Corpus(Protocol):
    """A corpus that is open for one pass; it is a context manager."""

    path: Path
    size: int

    @property
    def position(self) -> int:
        """How many of the file's `size` bytes were read so far."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def blocks(self) -> Iterator[Block]:
        """The documents in order; can be walked once."""

    def sha256(self) -> str:
        """The SHA-256 of the file's bytes; only if it was opened to be hashed."""


class TextCorpus(Corpus, Protocol):
    """A corpus that is a file of lines, compressed or not."""

    # What stands before the first document and stays there: a byte order mark, the names of CSV columns. Known, as is
    # the line break, once the first block was read.
    header: bytes
    line_break: bytes

    def blocks(self) -> Iterator[TextBlock]:
        """The documents in order; can be walked once."""

    def row(self, values: Mapping[str, str]) -> bytes:
        """A new document, from role to value, as bytes without a line break."""


def missing_field(place: str, field: str, present: Sequence[str]) -> CorpusError:
    """The error for a row that lacks a field."""
    # What does not look like the name of a field may be data in the place of one.
    there = ", ".join(repr(name) if _FIELD_NAME.fullmatch(name) else "..." for name in present) or "none"
    return CorpusError(
        f"{place} has no field {field!r} (its fields: {there}); name the one that holds it, as text field, user field or source and target field"
    )
