"""Arrow on disk, as the package datasets saves it: one document per row, in a stream of batches."""

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

# Rows that are read, and written, together.
_ROWS = 1000


class ArrowCorpus(TableCorpus):
    """An .arrow file: each row is a document."""

    def __init__(self, path: Path, fields: Fields, kind: CorpusKind, *, hashed: bool = False) -> None:  # noqa: ARG002
        arrow = pyarrow_for(f"reading {path.name}")
        open_metered(path, hashed=False).close()  # for the checks of the path
        super().__init__(path, fields, kind, arrow)
        self._stream: Any = arrow.OSFile(os.fsencode(path))
        self._rows_read = 0
        try:
            with self._readable():
                self._reader: Any = arrow.ipc.open_stream(self._stream)
            self.schema = self._reader.schema
            self.begin()
        except CorpusError:
            self.close()
            raise

    @property
    def position(self) -> int:
        """How many of the file's bytes were read so far."""
        return 0 if self._stream.closed else int(self._stream.tell())

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def first_row(self) -> dict[str, Any] | None:
        """The first row; None in an empty table."""
        with self._readable(), self.arrow.OSFile(os.fsencode(self.path)) as stream:
            for batch in self.arrow.ipc.open_stream(stream):
                if batch.num_rows:
                    batch.validate(full=True)
                    row: dict[str, Any] = batch.slice(0, 1).to_pylist()[0]
                    return row
        return None

    def blocks(self) -> Iterator[TableBlock]:
        """The documents in order."""
        while (batch := self._next()) is not None:
            for begin in range(0, batch.num_rows, _ROWS):
                some = batch.slice(begin, _ROWS)
                first = self._rows_read
                self._rows_read += some.num_rows
                yield TableBlock(self, some, first)

    def sink(self, path: Path) -> _ArrowSink:
        """Where a copy of this file is written."""
        return _ArrowSink(path, self.arrow, self.schema)

    def _next(self) -> Any:
        """The next batch; None after the last one."""
        with self._readable():
            try:
                batch = self._reader.read_next_batch()
            except StopIteration:
                return None
            # Arrow follows a damaged offset out of its memory.
            batch.validate(full=True)
            return batch

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (self.arrow.ArrowException, OSError, UnicodeError):
            raise CorpusError(
                f"{self.path} is not a whole stream of Arrow data (after row {self._rows_read}); save the dataset again"
            ) from None


class _ArrowSink:
    """Writes batches of rows to a stream with the schema of another."""

    def __init__(self, path: Path, arrow: Any, schema: Any) -> None:
        self._arrow, self._schema = arrow, schema
        self._file = open(path, "wb")  # noqa: SIM115 - closed with this object
        self._writer = arrow.ipc.new_stream(self._file, schema)
        self._waiting: list[Any] = []
        self._rows = 0

    def write(self, batch: Any) -> None:
        """Write some rows, once there are enough of them."""
        self._waiting.append(batch)
        self._rows += batch.num_rows
        if self._rows >= _ROWS:
            self._write_waiting()

    def close(self) -> None:
        """Write what is waiting, and the end of the stream."""
        self._write_waiting()
        self._writer.close()
        self._file.close()

    def abandon(self) -> None:
        """Close without finishing the file, which is about to be removed."""
        with contextlib.suppress(self._arrow.ArrowException, OSError):
            self._writer.close()
        with contextlib.suppress(OSError):
            self._file.close()

    def _write_waiting(self) -> None:
        if self._waiting:
            table = self._arrow.Table.from_batches(self._waiting, schema=self._schema)
            self._writer.write_table(table.unify_dictionaries().combine_chunks())
        self._waiting, self._rows = [], 0


# Only in the directories of datasets.
ARROW = CorpusKind(".arrow", "Arrow", ArrowCorpus, unit="row", compressible=False, has_conversations=True)
