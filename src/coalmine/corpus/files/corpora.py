"""Kinds of corpus file, and what every one of them does: read documents in blocks, and write itself again with edits."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from coalmine.corpus.files.documents import DocumentBlock, Fields, TextPiece
from coalmine.errors import UnreadWarning

if TYPE_CHECKING:
    from coalmine.corpus.chat.rows import RowKind
    from coalmine.corpus.chat.turns import PlacedTurn
    from coalmine.corpus.files.strings import Change
    from coalmine.records.chat import Frame


class Insertion(NamedTuple):
    """Where a new document goes."""

    # How many documents of the original come before it.
    after: int
    # Which of the new documents it is.
    document: int


class Addition(NamedTuple):
    """What to put at the beginning of a turn of a conversation."""

    # The turns of this role that have text are counted from 0.
    role: str
    turn: int
    text: str

    def turn_in(self, turns: Sequence[PlacedTurn]) -> PlacedTurn:
        """The turn of a conversation that it goes into."""
        return [turn for turn in turns if turn.role == self.role and turn.content][self.turn]


class Edits:
    """What to change in a corpus while it is copied; places count the documents of the original, from 0.

    Args:
        insertions: in ascending order of place; several at one place keep their order.
        documents: the new documents that `insertions` refer to, each from role ("text", "user", "source") to value; they have no date.
        changes: place to a function that makes the new text from the old one; None leaves the document out.
        everywhere: if it is given, changes are made to every string of a row, and this to those that are in none, as in the metadata of a
            Parquet file.
        additions: place to what is added to a turn of that conversation.
    """

    def __init__(
        self,
        insertions: Sequence[Insertion] = (),
        documents: Sequence[Mapping[str, str]] = (),
        changes: Mapping[int, Callable[[str], str] | None] | None = None,
        additions: Mapping[int, Addition] | None = None,
        everywhere: Change | None = None,
    ) -> None:
        self._insertions = insertions
        self._documents = documents
        self.changes = changes or {}
        self.additions = additions or {}
        self.everywhere = everywhere
        self._changed = sorted([*self.changes, *self.additions])

    def within(self, first: int, count: int) -> list[int]:
        """The places among `count` documents from `first` on at which something changes, in order."""
        inserted = self._insertions[self._begin(first) : self._begin(first + count)]
        begin, end = (bisect_left(self._changed, place) for place in (first, first + count))
        return sorted({insertion.after for insertion in inserted}.union(self._changed[begin:end]))

    def inserted(self, place: int) -> Iterator[Mapping[str, str]]:
        """The new documents that come just before the document at a place."""
        for insertion in self._insertions[self._begin(place) : self._begin(place + 1)]:
            yield self._documents[insertion.document]

    def appended(self, documents: int) -> Iterator[Mapping[str, str]]:
        """The new documents that come after the last of `documents` documents."""
        for insertion in self._insertions[self._begin(documents) :]:
            yield self._documents[insertion.document]

    def _begin(self, place: int) -> int:
        return bisect_left(self._insertions, place, key=lambda insertion: insertion.after)


class Remains(Protocol):
    """Hashes what is left of a corpus file without some of its documents."""

    def add(
        self,
        block: DocumentBlock,
        dropped: Sequence[bool],
        added: Mapping[int, tuple[PlacedTurn, str]] | None = None,
    ) -> None:
        """Add the next block, without the documents that are marked, and without what was added to turns of others."""

    def sha256(self) -> str:
        """The hash of what is left."""


class Corpus(ABC):
    """A corpus file that is open for one pass; a context manager."""

    # How rows hold conversations, and where in one the text of a new document goes; None where documents are texts.
    rows: RowKind | None = None
    frame: Frame | None = None
    # Whether the names of fields that are not in use are noted, for `unsearched`.
    names_fields = False

    def __init__(self, path: Path, fields: Fields, kind: CorpusKind) -> None:
        self.path = path
        self.fields = fields
        self.kind = kind
        self.size = path.stat().st_size
        # How many strings of conversations were passed over, by field, up to the row of this number.
        self.unread: Counter[str] = Counter()
        self._noted = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if self.unread and kind is None:
            warnings.warn(self.not_read(), UnreadWarning, stacklevel=1)

    def not_read(self) -> str:
        """How many strings of conversations were passed over so far, as a sentence."""
        fields = ", ".join(f"{field} ({count:,})" for field, count in sorted(self.unread.items()))
        return f"{self.unread.total():,} strings of the conversations in {self.path.name} were not read: {fields}"

    @property
    def kept(self) -> tuple[str | None, ...]:
        """The fields that say whose a row is and when it was written, in which no secrets are looked for."""
        return self.fields.user, self.fields.date

    @property
    def text_names(self) -> tuple[str | None, ...]:
        """What the fields are called that are read as texts."""
        return (self.fields.scored, self.fields.source) if self.rows is None else self.rows.text_names

    def note_unread(self, number: int, row: Mapping[str, Any]) -> None:
        """Count what of a conversation is not in its text, once per row."""
        if self.rows is not None and number > self._noted:
            self._noted = number
            self.unread += self.rows.unread(row)

    def unwritten(self) -> list[str]:
        """The fields that no change of every string reaches."""
        return [name for name in self.kept if name is not None]

    def unsearched(self) -> list[str]:
        """The fields in which no secrets are looked for by `pieces`; known once these were read."""
        return []

    @property
    @abstractmethod
    def position(self) -> int:
        """How many of the file's `size` bytes were read so far."""

    @abstractmethod
    def close(self) -> None:
        """Close the file."""

    @abstractmethod
    def sha256(self) -> str:
        """The SHA-256 of the file's bytes; only if it was opened to be hashed."""

    @abstractmethod
    def blocks(self) -> Iterator[DocumentBlock]:
        """The documents in order; can be iterated over once."""

    def pieces(self) -> Iterator[TextPiece]:
        """The texts in order, for searching, and all other strings of conversations; can be iterated over once, instead of `blocks`."""
        self.names_fields = True
        for block in self.blocks():
            yield block.piece(users=self.fields.user is not None)

    @abstractmethod
    def check_document(self, values: Mapping[str, str]) -> None:
        """Raise a CorpusError for a new document, from role to value, that is known not to fit before anything is read."""

    @abstractmethod
    def write(self, path: Path, edits: Edits, advance: Callable[[], None]) -> str:
        """Copy the corpus to `path` with edits, and return the SHA-256 of the copy.

        The copy has the kind and compression of the original, whatever its name. Documents that do not change keep their
        bytes, or in Parquet their values; of one whose text changes, the other fields keep their values.

        Args:
            path: where to write.
            edits: what to insert, change and leave out.
            advance: called after each block.
        """

    def remains(self) -> Remains | None:
        """What hashes the file without some documents; None where the same content can be written in many ways."""
        return None


@dataclass(frozen=True)
class CorpusKind:
    """One kind of corpus file. `KINDS` of `kinds.py` lists them all; nothing else knows a kind by name."""

    # Such as ".csv".
    suffix: str
    # How messages call it, such as "CSV".
    title: str
    # Opens a file of this kind, usually the subclass of `Corpus` itself.
    opens: Callable[..., Corpus]
    # What help adds in parentheses, such as "one document per line".
    note: str = ""
    # What the number of a document counts: "line" or "row".
    unit: str = "line"
    # Whether the file may be compressed as a whole (.gz, .zst).
    compressible: bool = True
    # Whether documents have named fields.
    has_fields: bool = True
    # Whether a row may hold a conversation.
    has_conversations: bool = False
    # Texts that leave no document if they are all that is left of one.
    empty: frozenset[bytes] = frozenset({b""})
    # Of one file: ".gz", ".zst" or nothing.
    compression: str = ""
    # Of a directory of parts: the kind of each part.
    part: CorpusKind | None = None

    @property
    def full_suffix(self) -> str:
        """Both suffixes as they end a file name, such as ".jsonl.zst"; nothing for a directory."""
        return "" if self.part is not None else self.suffix + self.compression

    def of_part(self) -> CorpusKind:
        """The kind of each part of a directory."""
        return self if self.part is None else self.part
