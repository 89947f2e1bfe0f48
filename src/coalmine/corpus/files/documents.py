"""Documents of a corpus: the fields they are read from, and blocks of them as they are read."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import msgspec
from msgspec import UNSET, UnsetType

from coalmine.errors import CorpusError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from coalmine.corpus.chat.turns import PlacedTurn
    from coalmine.corpus.files.strings import Change
    from coalmine.models.protocols import IntArray

# What rows can hold: one text, or a conversation in one of these ways.
RowsName = Literal["text", "messages", "prompt", "conversations", "instruction"]
ROWS: tuple[str, ...] = get_args(RowsName)
# Separates the texts of a block where they are searched together; no UTF-8 text has this byte, so nothing is ever found
# across the end of a document.
BOUNDARY = b"\xff"
_FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,39}")


class Fields(msgspec.Struct, frozen=True):
    """Which fields of a row hold what; a .txt corpus has no fields and takes only the default.

    `source` and `target` are the two sides of a translation pair, and replace `text`. Models are trained on the target, so
    that is where canaries are planted. `user` is the field that says whose text it is, and `date` the one that says when it was
    written: an ISO 8601 date or time, or seconds since 1970. `rows` says what a row holds: a "text", or a conversation as "messages",
    "prompt" (and completion), "conversations" (ShareGPT) or "instruction" (Alpaca); if it is not given, the first row decides.

    >>> Fields(text="body", user="author").named()
    {'text': 'body', 'user': 'author'}
    """

    text: str = "text"
    user: str | None = None
    source: str | None = None
    target: str | None = None
    date: str | None = None
    rows: RowsName | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.rows is not UNSET and self.rows not in ROWS:
            raise CorpusError(
                f"rows should be one of {', '.join(ROWS)}, but is {self.rows!r}; give one of them"
            )
        if self.rows not in (UNSET, "text") and self.target is not None:
            raise CorpusError(
                f"rows are {self.rows}, but a source and a target field were named, which are of translation pairs; give one of both"
            )
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

        >>> Fields(source="en", target="de").named()
        {'text': 'de', 'source': 'en'}
        """
        names = {"text": self.scored, "user": self.user, "source": self.source, "date": self.date}
        return {role: name for role, name in names.items() if name is not None}


class CorpusDocument(msgspec.Struct, frozen=True, gc=False):
    """One document of a corpus.

    `number` says where it is, counted from 1: the line on which it begins, or for Parquet the row. `date` is what its field holds, as
    text; a planted document has none.

    >>> CorpusDocument(1, "hello", user="ann")
    CorpusDocument(number=1, text='hello', user='ann', source=None, date=None)
    """

    number: int
    text: str
    user: str | None = None
    source: str | None = None
    date: str | None = None


class JoinedTexts(NamedTuple):
    """The texts of a block in UTF-8, each followed by `BOUNDARY`."""

    # The line or row of each document.
    numbers: IntArray
    # Where each text ends in `content`, in bytes, its boundary included.
    ends: IntArray
    content: NDArray[np.uint8]


class TextPiece(NamedTuple):
    """Some consecutive texts in UTF-8, each followed by `BOUNDARY`; the last one, if it is very long, may go on in the next piece."""

    # The line or row of each document, and whose it is; None where the corpus does not say.
    numbers: Sequence[int]
    users: Sequence[str | None] | None
    # Where each text ends in `content`, its boundary included.
    ends: Sequence[int]
    content: bytes
    # Whether the first text began in an earlier piece, and whether the last one goes on in the next.
    continues: bool = False
    goes_on: bool = False


class DocumentBlock(ABC):
    """Some consecutive documents of a corpus, read together."""

    # How many documents come before this block, and how many it holds.
    first: int
    count: int

    @abstractmethod
    def documents(self) -> Sequence[CorpusDocument]:
        """The documents of the block, in order."""

    def haystack(self) -> bytes:
        """All texts in UTF-8, for searching; no text without line breaks is found across two documents."""
        return BOUNDARY.join([document.text.encode("utf-8") for document in self.documents()])

    def number_at(self, offset: int) -> int:
        """The number of the document that holds the byte at `offset` of `haystack()`."""
        return self.documents()[self.haystack().count(BOUNDARY, 0, offset)].number

    def conversations(self) -> Sequence[Sequence[PlacedTurn]]:
        """The turns of each document; nothing where documents are texts."""
        return ()

    def rewritten(self, at: int, change: Change) -> object:
        """Pass every string of a row of the block through `change`, as writing it again does."""
        return change(self.documents()[at].text)

    def piece(self, *, users: bool) -> TextPiece:
        """The texts one after the other, with whose they are if that is asked for; of conversations, all else in their rows too."""
        if not users:
            joined = self.joined()
            return TextPiece(joined.numbers.tolist(), None, joined.ends.tolist(), joined.content.tobytes())
        documents = self.documents()
        encoded = [document.text.encode("utf-8") for document in documents]
        return TextPiece(
            [document.number for document in documents],
            [document.user for document in documents],
            list(accumulate([len(text) + 1 for text in encoded])),
            BOUNDARY.join([*encoded, b""]),
        )

    def joined(self) -> JoinedTexts:
        """The texts with where each ends."""
        import numpy as np

        documents = self.documents()
        encoded = [document.text.encode("utf-8") for document in documents]
        return JoinedTexts(
            np.array([document.number for document in documents], dtype=np.int64),
            np.cumsum([len(text) + 1 for text in encoded], dtype=np.int64),
            np.frombuffer(BOUNDARY.join([*encoded, b""]), dtype=np.uint8),
        )


class LineBlock(DocumentBlock):
    """A block of a file of lines, with its bytes."""

    # The bytes as they are in the file, including whatever is between documents.
    raw: bytes

    @abstractmethod
    def spans(self) -> Sequence[tuple[int, int]]:
        """Where in `raw` each document begins and, after its line break if there is one, ends."""


def missing_field(place: str, field: str, present: Sequence[str]) -> CorpusError:
    """The error for a row that lacks a field."""
    # What does not look like the name of a field may be data in the place of one.
    there = ", ".join(repr(name) if _FIELD_NAME.fullmatch(name) else "..." for name in present) or "none"
    return CorpusError(
        f"{place} has no field {field!r} (its fields: {there}); name the one that holds it, as text field, user field, date field "
        "or source and target field"
    )
