"""Corpora in Parquet: one document per row, read and written in batches with schema and metadata."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from coalmine.corpus.files.corpora import Corpus, CorpusKind, Edits
from coalmine.corpus.files.documents import CorpusDocument, DocumentBlock, Fields, missing_field
from coalmine.corpus.files.streams import open_metered, pyarrow_for
from coalmine.errors import CorpusError
from coalmine.storage.files import sha256_of_file

BATCH_BYTES = 1 << 22
ROW_GROUP_BYTES = 1 << 25


class TableBlock(DocumentBlock):
    """Some consecutive rows of a table."""

    def __init__(self, corpus: ParquetCorpus, batch: Any, first: int) -> None:
        self._corpus = corpus
        self.batch = batch
        self.first = first
        self.count: int = batch.num_rows

    def documents(self) -> list[CorpusDocument]:
        """The documents in these rows."""
        corpus = self._corpus
        names = corpus.fields.named()
        try:
            values = {
                role: self.batch.column(field).to_pylist() for role, field in names.items() if role != "date"
            }
            dates = self._dates()
        except UnicodeDecodeError:
            raise CorpusError(
                f"{corpus.path} is damaged after row {self.first} (a text in it is not UTF-8); copy or write it again"
            ) from None
        nothing: list[str | None] = [None] * self.count
        for role in ("text", "source"):
            if role in values and None in values[role]:
                row = self.first + values[role].index(None) + 1
                field = corpus.fields.named()[role]
                raise CorpusError(
                    f"{corpus.path}, row {row}: field {field!r} is null; drop the row, or give it a text"
                )
        users = [None if user is None else str(user) for user in values.get("user", nothing)]
        numbers = range(self.first + 1, self.first + self.count + 1)
        sources = values.get("source", nothing)
        return list(map(CorpusDocument, numbers, values["text"], users, sources, dates))

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


class ParquetCorpus(Corpus):
    """A .parquet corpus: each row is a document."""

    def __init__(self, path: Path, fields: Fields, kind: CorpusKind, *, hashed: bool = False) -> None:  # noqa: ARG002
        self.arrow = pyarrow_for(f"reading {path.name}")
        import pyarrow.parquet

        # Opened for the checks of the path. Parquet is read from both ends, so its bytes are not hashed while they are read.
        open_metered(path, hashed=False).close()
        super().__init__(path, fields, kind)
        try:
            # A small buffer and no reading ahead, so that memory does not grow with the file or its row groups.
            # By its bytes, because pyarrow takes only paths that are UTF-8.
            self.file: Any = pyarrow.parquet.ParquetFile(
                self.arrow.OSFile(os.fsencode(path)),
                buffer_size=1 << 16,
                pre_buffer=False,
                page_checksum_verification=True,
            )
            self.schema: Any = self.file.schema_arrow
        except (self.arrow.ArrowException, OSError, UnicodeError) as error:  # the last of names of columns
            raise CorpusError(
                f"{path} is not whole Parquet data ({_reason(error)}); copy or write it again"
            ) from None
        self._rows_read = 0
        try:
            self._check_schema()
        except CorpusError:
            self.file.close(force=True)
            raise

    @property
    def position(self) -> int:
        """About how many of the file's bytes were read so far, as if all rows had the same length."""
        rows: int = self.file.metadata.num_rows
        return self.size * self._rows_read // rows if rows else self.size

    def close(self) -> None:
        """Close the file."""
        self.file.close(force=True)

    def sha256(self) -> str:
        """The SHA-256 of the file's bytes."""
        return sha256_of_file(self.path)

    def check_document(self, values: Mapping[str, str]) -> None:
        """Raise a CorpusError if a new document leaves a column empty that must not be."""
        self.row(values)

    def write(self, path: Path, edits: Edits, advance: Callable[[], None]) -> str:
        """Copy the rows with edits; schema, metadata and compression stay as they were."""
        sink = _TableSink(path, like=self)
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
        except BaseException:
            sink.abandon()
            raise
        return sha256_of_file(path)

    def blocks(self) -> Iterator[TableBlock]:
        """The documents in order."""
        metadata = self.file.metadata
        content_bytes = sum(
            metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)
        )
        rows = max(1, min(8192, BATCH_BYTES * metadata.num_rows // max(1, content_bytes)))
        try:
            for batch in self.file.iter_batches(batch_size=rows):
                first = self._rows_read
                self._rows_read += batch.num_rows
                yield TableBlock(self, batch, first)
        except (self.arrow.ArrowException, OSError) as error:
            raise CorpusError(
                f"{self.path} is damaged after row {self._rows_read} ({_reason(error)}); copy or write it again"
            ) from None

    def row(self, values: Mapping[str, str]) -> Any:
        """A new document as a batch of one row; columns that are not in use are null."""
        pa = self.arrow
        given = {field: values[role] for role, field in self.fields.named().items() if role != "date"}
        columns = []
        for field in self.schema:
            if field.name in given:
                columns.append(self._text_array([given[field.name]], field.type))
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
        changes = any(place in edits.changes for place in places)
        batch, kept = self._changed(block, edits) if changes else (block.batch, None)

        def piece(begin: int, end: int) -> Any:
            rows = batch.slice(begin, end - begin)
            return rows if kept is None else rows.filter(kept.slice(begin, end - begin))

        start = 0
        for place in places:
            for values in edits.inserted(place):
                yield piece(start, place - block.first)
                yield self.row(values)
                start = place - block.first
        yield piece(start, block.count)

    def _changed(self, block: TableBlock, edits: Edits) -> tuple[Any, Any]:
        """The rows with their new texts, and which of them are kept."""
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

    def _text_array(self, texts: list[str], column_type: Any) -> Any:
        values = self.arrow.array(texts, type=self.arrow.string())
        encoded = values.dictionary_encode() if self.arrow.types.is_dictionary(column_type) else values
        return encoded.cast(column_type)

    def _check_schema(self) -> None:
        for role, field in self.fields.named().items():
            if self.schema.names.count(field) > 1:
                raise CorpusError(f"{self.path} has two columns {field!r}; give each a name of its own")
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

    def _is_time(self, column_type: Any) -> bool:
        types = self.arrow.types
        return bool(
            types.is_date(column_type)
            or types.is_timestamp(column_type)
            or types.is_integer(column_type)
            or types.is_floating(column_type)
        )


class _TableSink:
    """Writes batches of rows to a Parquet file with the schema, metadata and compression of another."""

    def __init__(self, path: Path, like: ParquetCorpus) -> None:
        import pyarrow.parquet

        self._pa = pyarrow_for(f"writing {path.name}")
        self._schema = like.schema
        metadata = like.file.metadata
        compression = "snappy"
        if metadata.num_row_groups and metadata.num_columns:
            compression = metadata.row_group(0).column(0).compression.lower()
        self._stream = open(path, "wb")  # noqa: SIM115 - closed with this object
        self._writer = pyarrow.parquet.ParquetWriter(
            self._stream, like.schema, compression="none" if compression == "uncompressed" else compression
        )
        self._waiting: list[Any] = []
        self._waiting_bytes = 0

    def write(self, batch: Any) -> None:
        """Write some rows, once there are enough of them for a row group."""
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write_row_group()

    def close(self) -> None:
        """Write what is waiting, and the footer."""
        self._write_row_group()
        self._writer.close()
        self._stream.close()

    def abandon(self) -> None:
        """Close without finishing the file, which is about to be removed."""
        self._waiting = []
        # The error because of which the file is abandoned is being raised already.
        with contextlib.suppress(self._pa.ArrowException, OSError):
            self._writer.close()
        with contextlib.suppress(OSError):
            self._stream.close()

    def _write_row_group(self) -> None:
        if self._waiting:
            table = self._pa.Table.from_batches(self._waiting, schema=self._schema)
            self._writer.write_table(table.unify_dictionaries())
        self._waiting = []
        self._waiting_bytes = 0


def _seconds_as_text(count: int, per_second: int) -> str:
    """Seconds since 1970 in decimals, exactly: a float would lose nanoseconds."""
    whole, rest = divmod(abs(count), per_second)
    decimals = f".{rest:0{len(str(per_second)) - 1}d}" if rest else ""
    return f"{'-' if count < 0 else ''}{whole}{decimals}"


def _reason(error: BaseException) -> str:
    """Why pyarrow did not read a file; its own message may quote values, unless it is about a kind of data that it cannot read."""
    if type(error).__name__ == "ArrowNotImplementedError":
        return str(error).splitlines()[0]
    return "it is cut off, or not what was written"


PARQUET = CorpusKind(".parquet", "Parquet", ParquetCorpus, unit="row", compressible=False)
