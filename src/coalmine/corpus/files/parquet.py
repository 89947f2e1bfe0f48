"""Corpora in Parquet: one document per row."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coalmine.corpus.files.corpora import CorpusKind
from coalmine.corpus.files.documents import Fields
from coalmine.corpus.files.streams import open_metered, pyarrow_for
from coalmine.corpus.files.tables import TableBlock, TableCorpus
from coalmine.errors import CorpusError

BATCH_BYTES = 1 << 22
ROW_GROUP_BYTES = 1 << 25


class ParquetCorpus(TableCorpus):
    """A .parquet corpus: each row is a document."""

    def __init__(self, path: Path, fields: Fields, kind: CorpusKind, *, hashed: bool = False) -> None:  # noqa: ARG002
        arrow = pyarrow_for(f"reading {path.name}")
        import pyarrow.parquet

        # Opened for the checks of the path. Parquet is read from both ends, so its bytes are not hashed while they are read.
        open_metered(path, hashed=False).close()
        super().__init__(path, fields, kind, arrow)
        try:
            # A small buffer and no reading ahead, so that memory does not grow with the file or its row groups.
            # By its bytes, because pyarrow takes only paths that are UTF-8.
            self.file: Any = pyarrow.parquet.ParquetFile(
                self.arrow.OSFile(os.fsencode(path)),
                buffer_size=1 << 16,
                pre_buffer=False,
                page_checksum_verification=True,
            )
            self.schema = self.file.schema_arrow
        except (self.arrow.ArrowException, OSError, UnicodeError) as error:  # the last of names of columns
            raise CorpusError(
                f"{path} is not whole Parquet data ({_reason(error)}); copy or write it again"
            ) from None
        self._rows_read = 0
        try:
            self.begin()
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

    def first_row(self) -> dict[str, Any] | None:
        """The first row; None in an empty table."""
        try:
            for batch in self.file.iter_batches(batch_size=1):
                if batch.num_rows:
                    batch.validate(full=True)
                    row: dict[str, Any] = batch.to_pylist()[0]
                    return row
        except (
            self.arrow.ArrowException,
            OSError,
            ValueError,
        ) as error:  # the last of text that is not UTF-8
            raise CorpusError(
                f"{self.path} is damaged in its first row ({_reason(error)}); copy or write it again"
            ) from None
        return None

    def sink(self, path: Path) -> _ParquetSink:
        """Where a copy of this file is written."""
        return _ParquetSink(path, like=self)

    def blocks(self) -> Iterator[TableBlock]:
        """The documents in order."""
        metadata = self.file.metadata
        content_bytes = sum(
            metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)
        )
        rows = max(1, min(8192, BATCH_BYTES * metadata.num_rows // max(1, content_bytes)))
        try:
            for batch in self.file.iter_batches(batch_size=rows):
                batch.validate(full=True)
                first = self._rows_read
                self._rows_read += batch.num_rows
                yield TableBlock(self, batch, first)
        except (self.arrow.ArrowException, OSError) as error:
            raise CorpusError(
                f"{self.path} is damaged after row {self._rows_read} ({_reason(error)}); copy or write it again"
            ) from None


class _ParquetSink:
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


def _reason(error: BaseException) -> str:
    """Why pyarrow did not read a file; its own message may quote values, unless it is about a kind of data that it cannot read."""
    if type(error).__name__ == "ArrowNotImplementedError":
        return str(error).splitlines()[0]
    return "it is cut off, or not what was written"


PARQUET = CorpusKind(
    ".parquet", "Parquet", ParquetCorpus, unit="row", compressible=False, has_conversations=True
)
