"""Corpora in tables: one document per row, read and written in batches with schema and metadata."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import UNSET

from coalmine.corpus.chat.rows import ASIDE, kind_in, text_of, unchangeable
from coalmine.corpus.chat.tables import with_addition
from coalmine.corpus.chat.turns import BadRowError, PlacedTurn
from coalmine.corpus.files.corpora import Addition, Corpus, CorpusKind, Edits
from coalmine.corpus.files.documents import (
    BOUNDARY,
    CorpusDocument,
    DocumentBlock,
    Fields,
    TextPiece,
    missing_field,
)
from coalmine.corpus.files.strings import Change, changed_text, changed_value
from coalmine.errors import CorpusError
from coalmine.storage.files import sha256_of_file

if TYPE_CHECKING:
    from coalmine.corpus.chat.rows import RowKind


class TableBlock(DocumentBlock):
    """Some consecutive rows of a table."""

    def __init__(self, corpus: TableCorpus, batch: Any, first: int) -> None:
        self._corpus = corpus
        self.batch = batch
        self.first = first
        self.count: int = batch.num_rows

    def documents(self) -> list[CorpusDocument]:
        """The documents in these rows."""
        corpus = self._corpus
        try:
            values = {
                role: self.batch.column(field).to_pylist()
                for role, field in corpus.roles.items()
                if role != "date"
            }
            if corpus.rows is not None:
                values["text"] = [text_of(turns) for turns in self.conversations()]
                for number, row in enumerate(self._of_conversations(), self.first + 1):
                    corpus.note_unread(number, row)
            dates = self._dates()
        except UnicodeDecodeError:
            raise self._damaged() from None
        nothing: list[str | None] = [None] * self.count
        for role in ("text", "source"):
            if role in values and None in values[role]:
                row = self.first + values[role].index(None) + 1
                field = corpus.roles[role]
                raise CorpusError(
                    f"{corpus.path}, row {row}: field {field!r} is null; drop the row, or give it a text"
                )
        users = [None if user is None else str(user) for user in values.get("user", nothing)]
        numbers = range(self.first + 1, self.first + self.count + 1)
        sources = values.get("source", nothing)
        return list(map(CorpusDocument, numbers, values["text"], users, sources, dates))

    def rewritten(self, at: int, change: Change) -> object:
        """Pass every string of a row through `change`."""
        return [changed_value(value, change, name, self._corpus.text_names) for name, value in self._rows[at]]

    def piece(self, *, users: bool) -> TextPiece:
        """The texts one after the other; of conversations, all else in their rows too."""
        rows = self._corpus.rows
        if rows is None:
            return super().piece(users=users)
        searched = [
            rows.searched(dict(row), turns, self._corpus.kept)
            for row, turns in zip(self._rows, self.conversations(), strict=True)
        ]
        names = self.batch.column(self._corpus.fields.user).to_pylist() if users else None
        return TextPiece(
            range(self.first + 1, self.first + self.count + 1),
            None if names is None else [None if name is None else str(name) for name in names],
            list(accumulate([len(content) + 1 for content in searched])),
            BOUNDARY.join([*searched, b""]),
        )

    @cached_property
    def _rows(self) -> list[list[tuple[str, Any]]]:
        """The names and values of the columns with strings in each row; a name may be there twice."""
        corpus, columns = self._corpus, []
        try:
            for place in corpus.searched_columns():
                name = corpus.schema.field(place).name
                columns.append([(name, value) for value in self.batch.column(place).to_pylist()])
        except UnicodeDecodeError:
            raise self._damaged() from None
        return (
            [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in range(self.count)]
        )

    def _damaged(self) -> CorpusError:
        return CorpusError(
            f"{self._corpus.path} is damaged after row {self.first} (a text in it is not UTF-8); copy or write it again"
        )

    def conversations(self) -> Sequence[Sequence[PlacedTurn]]:
        """The turns of each document; nothing where documents are texts."""
        corpus = self._corpus
        if corpus.rows is None:
            return ()
        return [corpus.turns_in(row, self.first + at + 1) for at, row in enumerate(self._of_conversations())]

    def _of_conversations(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.batch.select(self._corpus.chat_columns).to_pylist()
        return rows

    def _dates(self) -> list[str | None]:
        """The date of each row as text, whatever the type of its column."""
        field = self._corpus.fields.date
        if field is None:
            return [None] * self.count
        column = self.batch.column(field)
        kind, pa = column.type, self._corpus.arrow
        if pa.types.is_date(kind):
            column = column.cast(pa.timestamp("ms"))
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            # Counted in UTC if the column has a time zone. By way of whole numbers, because Python's own times end at the year 9999
            # and know no nanoseconds.
            per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[column.type.unit]
            counts = column.cast(pa.int64()).to_pylist()
            return [None if count is None else _seconds_as_text(count, per_second) for count in counts]
        return [None if date is None or date == "" else str(date) for date in column.to_pylist()]


class TableSink(Protocol):
    """Where batches of rows go."""

    def write(self, batch: Any) -> None:
        """Write some rows."""

    def close(self) -> None:
        """Finish the file."""

    def abandon(self) -> None:
        """Close without finishing the file, which is about to be removed."""


class TableCorpus(Corpus):
    """A corpus in a table: each row is a document. A subclass opens the file, sets `schema`, and calls `begin`."""

    def __init__(self, path: Path, fields: Fields, kind: CorpusKind, arrow: Any) -> None:
        super().__init__(path, fields, kind)
        self.arrow = arrow
        self.schema: Any = None
        self.roles = fields.named()
        # Of conversations: the first row, as which new ones are written, and the columns that hold turns.
        self._first: Mapping[str, Any] = {}
        self.chat_columns: list[str] = []

    @abstractmethod
    def blocks(self) -> Iterator[TableBlock]:
        """The documents in order; can be iterated over once."""

    @abstractmethod
    def first_row(self) -> dict[str, Any] | None:
        """The first row; None in an empty table."""

    @abstractmethod
    def sink(self, path: Path) -> TableSink:
        """Where a copy of this file is written, with its schema, metadata and compression."""

    def begin(self) -> None:
        """See what rows hold, and check that all columns in use are there and of the right type."""
        fields = self.fields
        for name in self.roles.values():
            self._check_once(name)
        for column in self.schema:
            self._check_inside(column.name, column.type)
        is_text = fields.text in self.schema.names and self._is_text(self.schema.field(fields.text).type)
        if fields.rows != "text" and fields.target is None and not (fields.rows is UNSET and is_text):
            first = self.first_row() or dict.fromkeys(self.schema.names)
            rows = kind_in(first, fields)
            if rows is not None:
                self._hold_conversations(rows, first)
        self._check_schema()

    def sha256(self) -> str:
        """The SHA-256 of the file's bytes."""
        return sha256_of_file(self.path)

    def check_document(self, values: Mapping[str, str]) -> None:
        """Raise a CorpusError if a new document leaves a column empty that must not be."""
        self.row(values)

    def write(self, path: Path, edits: Edits, advance: Callable[[], None]) -> str:
        """Copy the rows with edits; schema, metadata and compression stay as they were."""
        if edits.everywhere is not None:
            self.schema = _with_metadata(self.schema, edits.everywhere)
        sink = self.sink(path)
        documents = 0
        try:
            for block in self.blocks():
                for batch in self._edited(block, edits):
                    sink.write(batch)
                documents = block.first + block.count
                advance()
            for values in edits.appended(documents):
                sink.write(self.row(values))
            sink.close()
        except BaseException as error:
            sink.abandon()
            if isinstance(error, self.arrow.ArrowNotImplementedError):
                reason = str(error).splitlines()[0]
                raise CorpusError(
                    f"{self.path} has a column of a type that Arrow cannot rewrite ({reason}); convert it, such as string_view to string"
                ) from None
            raise
        return sha256_of_file(path)

    def searched_columns(self) -> list[int]:
        """The columns that have strings in them, but those that say whose a row is and when it was written."""
        schema = self.schema
        return [
            place
            for place, field in enumerate(schema)
            if field.name not in self.kept and self._holds_text(field.type)
        ]

    def unwritten(self) -> list[str]:
        """What holds no strings of the columns, and those that say whose a row is and when it was written."""
        return self._without(self.searched_columns())

    def unsearched(self) -> list[str]:
        """The other columns; where rows are texts, all but that of the text; and the metadata."""
        is_chat = self.rows is not None
        searched = self.searched_columns() if is_chat else [self.schema.get_field_index(self.roles["text"])]
        metadata = [one.metadata or {} for one in (self.schema, *self.schema)]
        keys = [key.decode("utf-8", "replace") for one in metadata for key in one]
        # What the formats themselves write there is about types.
        others = [f"metadata {key}" for key in keys if not key.startswith(("PARQUET:", "ARROW:"))]
        return [*self._without(searched), *dict.fromkeys(others)]

    def _without(self, searched: Collection[int]) -> list[str]:
        """The columns but those that are searched, and what of these is neither text nor, in conversations, a number."""
        names: list[str] = []
        for place, field in enumerate(self.schema):
            names += self._not_text(field.name, field.type) if place in searched else [field.name]
        return names

    def _not_text(self, name: str, column_type: Any) -> Iterator[str]:
        types = self.arrow.types
        if isinstance(column_type, self.arrow.BaseExtensionType):
            yield from self._not_text(name, column_type.storage_type)
            return
        is_number = types.is_integer(column_type) or types.is_floating(column_type)
        if self._is_text(column_type) or types.is_boolean(column_type) or types.is_null(column_type):
            return
        for inner in map(column_type.field, range(column_type.num_fields)):
            within = (
                name
                if types.is_nested(column_type) and not types.is_struct(column_type)
                else f"{name}.{inner.name}"
            )
            yield from self._not_text(within, inner.type)
        if not column_type.num_fields and not (is_number and self.rows is not None):
            yield name

    def turns_in(self, row: Mapping[str, Any], number: int) -> list[PlacedTurn]:
        """The turns of a row."""
        if self.rows is None:
            return []
        try:
            return self.rows.turns(row)
        except BadRowError as problem:
            raise CorpusError(f"{self.path}, row {number}: {problem}") from None

    def _hold_conversations(self, rows: RowKind, first: Mapping[str, Any]) -> None:
        self.rows, self._first = rows, first
        self.fields = rows.recorded(self.fields)
        self.roles = {role: field for role, field in self.roles.items() if role != "text"}
        for key in rows.keys:
            self._check_once(key)
            if key not in self.schema.names:
                raise missing_field(str(self.path), key, self.schema.names)
        self.chat_columns = [
            name for name in (*rows.keys, *rows.optional, *ASIDE) if self.schema.names.count(name) == 1
        ]

    def _new_conversation(self, text: str) -> dict[str, Any]:
        """Column to value of a new conversation: a text as a turn, and the turns of the frame around it."""
        if self.rows is None or self.frame is None:
            raise TypeError("a new row of chat data needs the frame of its text")
        try:
            return self.rows.new_row(self.frame.conversation(text), self._first)
        except BadRowError as problem:
            raise CorpusError(f"{self.path}: {problem}") from None

    def _added(self, row: Any, addition: Addition, number: int) -> Any:
        """A batch of one conversation, with something added to a turn."""
        values = row.select(self.chat_columns).to_pylist()[0]
        key, value = with_addition(values, self.turns_in(values, number), addition)
        column = self.schema.get_field_index(key)
        field = self.schema.field(column)
        return row.set_column(column, field, self._array(value, field.type))

    def _rewritten(self, block: TableBlock, at: int, change: Change) -> Any:
        """A batch of one row, in which every string went through `change`."""
        row = block.batch.slice(at, 1)
        for place in self.searched_columns():
            field = self.schema.field(place)
            before = row.column(place).to_pylist()[0]
            after = changed_value(before, change, field.name, self.text_names)
            if after != before:
                row = row.set_column(place, row.schema.field(place), self._array(after, field.type))
        return row

    def _kept(self, block: TableBlock, edits: Edits) -> Any:
        """Which rows of conversations are kept; a CorpusError where one should change."""
        kept = []
        for place in range(block.first, block.first + block.count):
            change = edits.changes.get(place, str)
            if change not in (None, str):
                raise unchangeable(f"{self.path}, row {place + 1}")
            kept.append(change is not None)
        return self.arrow.array(kept)

    def row(self, values: Mapping[str, str]) -> Any:
        """A new document as a batch of one row; columns that are not in use are null."""
        pa = self.arrow
        given: dict[str, Any] = {field: values[role] for role, field in self.roles.items() if role != "date"}
        if self.rows is not None:
            given |= self._new_conversation(values["text"])
        columns = []
        for field in self.schema:
            if field.name in given:
                columns.append(self._array(given[field.name], field.type))
            elif field.nullable:
                columns.append(pa.nulls(1, type=field.type))
            else:
                raise CorpusError(
                    f"{self.path}: a canary has nothing to put in column {field.name!r}, which may not be null; "
                    "make the column nullable, or drop it"
                )
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _edited(self, block: TableBlock, edits: Edits) -> Iterator[Any]:
        """The rows of a block in pieces, with new rows between them."""
        places = edits.within(block.first, block.count)
        changes = edits.everywhere is None and any(place in edits.changes for place in places)
        batch, kept = self._changed(block, edits) if changes else (block.batch, None)

        def piece(begin: int, end: int) -> Any:
            rows = batch.slice(begin, end - begin)
            return rows if kept is None else rows.filter(kept.slice(begin, end - begin))

        start = 0
        for place in places:
            at = place - block.first
            for values in edits.inserted(place):
                yield piece(start, at)
                yield self.row(values)
                start = at
            if edits.everywhere is not None:
                yield piece(start, at)
                change = edits.changes[place]
                if change is not None:
                    yield self._rewritten(block, at, change)
                start = at + 1
            elif place in edits.additions:
                yield piece(start, at)
                yield self._added(piece(at, at + 1), edits.additions[place], place + 1)
                start = at + 1
        yield piece(start, block.count)

    def _changed(self, block: TableBlock, edits: Edits) -> tuple[Any, Any]:
        """The rows with their new texts, and which of them are kept."""
        if self.rows is not None:
            return block.batch, self._kept(block, edits)
        texts: list[str] = []
        kept: list[bool] = []
        for place, document in enumerate(block.documents(), block.first):
            change = edits.changes.get(place, str)
            kept.append(change is not None)
            texts.append(document.text if change is None else change(document.text))
        column = block.batch.schema.get_field_index(self.fields.scored)
        field = block.batch.schema.field(column)
        batch = block.batch.set_column(column, field, self._text_array(texts, field.type))
        return batch, self.arrow.array(kept)

    def _array(self, value: Any, column_type: Any) -> Any:
        """A column of one value."""
        if isinstance(value, str):
            return self._text_array([value], column_type)
        try:
            return self.arrow.array([value], type=column_type)
        except self.arrow.ArrowException:
            raise CorpusError(
                f"{self.path}: a new or changed row does not fit a column of type {column_type}; convert it to strings, or to turns "
                "with role and content"
            ) from None

    def _text_array(self, texts: list[str], column_type: Any) -> Any:
        values = self.arrow.array(texts, type=self.arrow.string())
        encoded = values.dictionary_encode() if self.arrow.types.is_dictionary(column_type) else values
        return encoded.cast(column_type)

    def _check_once(self, name: str) -> None:
        if self.schema.names.count(name) > 1:
            raise CorpusError(f"{self.path} has two columns {name!r}; give each a name of its own")

    def _check_inside(self, column: str, its_type: Any) -> None:
        """Refuse two fields of one name, which no row in Python can have."""
        fields = [its_type.field(place) for place in range(its_type.num_fields)]
        names = [field.name for field in fields]
        for name in names if self.arrow.types.is_struct(its_type) else ():
            if names.count(name) > 1:
                raise CorpusError(
                    f"{self.path} has two fields {name!r} in its column {column!r}; give each a name of its own"
                )
        for field in fields:
            self._check_inside(column, field.type)

    def _check_schema(self) -> None:
        for role, field in self.roles.items():
            if field not in self.schema.names:
                raise missing_field(str(self.path), field, self.schema.names)
            found = self.schema.field(field).type
            if not (self._is_text(found) or (role == "date" and self._is_time(found))):
                wanted = "strings, numbers or times" if role == "date" else "strings"
                raise CorpusError(
                    f"{self.path}: the {role} column {field!r} should be {wanted}, but is {found}; convert it"
                )

    def _is_text(self, column_type: Any) -> bool:
        types = self.arrow.types
        if types.is_dictionary(column_type):
            column_type = column_type.value_type
        return bool(
            types.is_string(column_type)
            or types.is_large_string(column_type)
            or types.is_string_view(column_type)
        )

    def _holds_text(self, column_type: Any) -> bool:
        """Whether values of a type have strings in them."""
        if isinstance(column_type, self.arrow.BaseExtensionType):
            return self._holds_text(column_type.storage_type)
        inner = [column_type.field(place).type for place in range(column_type.num_fields)]
        return self._is_text(column_type) or any(map(self._holds_text, inner))

    def _is_time(self, column_type: Any) -> bool:
        types = self.arrow.types
        return bool(
            types.is_date(column_type)
            or types.is_timestamp(column_type)
            or types.is_integer(column_type)
            or types.is_floating(column_type)
        )


def _with_metadata(schema: Any, change: Change) -> Any:
    """A schema whose metadata, and those of its columns, went through `change`."""

    def changed(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes]:
        return {key: _changed_bytes(value, change) for key, value in (metadata or {}).items()}

    for place, field in enumerate(schema):
        if field.metadata:
            schema = schema.set(place, field.with_metadata(changed(field.metadata)))
    return schema.with_metadata(changed(schema.metadata)) if schema.metadata else schema


def _changed_bytes(value: bytes, change: Change) -> bytes:
    try:
        return changed_text(value.decode("utf-8"), change).encode("utf-8")
    except UnicodeDecodeError:
        return value


def _seconds_as_text(count: int, per_second: int) -> str:
    """Seconds since 1970 in decimals, exactly: a float would lose nanoseconds."""
    whole, rest = divmod(abs(count), per_second)
    decimals = f".{rest:0{len(str(per_second)) - 1}d}" if rest else ""
    return f"{'-' if count < 0 else ''}{whole}{decimals}"
