"""Corpora in CSV (RFC 4180): commas, double quotes, column names in the first row, line breaks allowed inside quotes."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from coalmine.corpus.files.corpora import CorpusKind
from coalmine.corpus.files.documents import CorpusDocument, Fields, LineBlock
from coalmine.corpus.files.lines import LineCorpus
from coalmine.corpus.files.streams import BLOCK_BYTES
from coalmine.corpus.files.strings import changed_text
from coalmine.errors import CorpusError

if TYPE_CHECKING:
    from coalmine.corpus.files.strings import Change

# Python's own limit of 128 kB is shorter than many documents; without any, one quote that is never closed would read
# the rest of the corpus into memory.
LONGEST_FIELD = 1 << 26


class _CsvBlock(LineBlock):
    """Some whole CSV records, as bytes of the file and as documents."""

    def __init__(
        self,
        corpus: CsvCorpus,
        raw: bytes,
        first: int,
        spans: list[tuple[int, int]],
        documents: list[CorpusDocument],
    ) -> None:
        self._corpus = corpus
        self.raw = raw
        self.first = first
        self.count = len(documents)
        self._spans = spans
        self._documents = documents

    def spans(self) -> list[tuple[int, int]]:
        """Where in `raw` each document begins and ends."""
        return self._spans

    def documents(self) -> list[CorpusDocument]:
        """The documents in these records."""
        return self._documents

    def rewritten(self, at: int, change: Change) -> object:
        """Pass every field of a record through `change`."""
        begin, end = self._spans[at]
        return self._corpus.rewritten(self.raw[begin:end].removesuffix(b"\n").removesuffix(b"\r"), change)


class CsvCorpus(LineCorpus):
    """A .csv corpus: each record after the first is a document; an empty line is not."""

    # What separates the fields of a record, and its plural in messages.
    delimiter: ClassVar[str] = ","
    delimiters: ClassVar[str] = "commas"

    def __init__(self, path: Path, fields: Fields, kind: CorpusKind, *, hashed: bool = False) -> None:
        super().__init__(path, fields, kind, hashed=hashed)
        self._columns: list[str] = []
        self._roles: dict[str, int] = {}
        # The lines that the parser took for the current record.
        self._taken: list[bytes] = []
        self._parser = csv.reader(self._feed(), strict=True, delimiter=self.delimiter)

    def blocks(self) -> Iterator[_CsvBlock]:
        """The documents in order."""
        if not self._read_columns():
            return
        first = 0
        while block := self._next_block(first):
            yield block
            first += block.count

    def row(self, values: Mapping[str, str]) -> bytes:
        """A new document as a record, without its line break; columns that are not in use are empty."""
        record = [""] * len(self._columns)
        for role, column in self._roles.items():
            record[column] = values.get(role, "") if role == "date" else values[role]
        return self._encoded(record)

    def changed_row(self, document: CorpusDocument, row: bytes, text: str) -> bytes:  # noqa: ARG002 - nothing can be wrong with it
        """The record with another text; its other bytes stay as they are."""
        content = row.decode("utf-8")
        begin, end = self._span(content, self._roles["text"])
        written = self._field(text, quoted=content.startswith('"', begin))
        return (content[:begin] + written + content[end:]).encode("utf-8")

    def rewritten(self, row: bytes, change: Change) -> bytes:
        """The record in which every field went through `change`; its other bytes stay as they are."""
        content = row.decode("utf-8")
        for column in reversed(range(len(self._columns))):
            begin, end = self._span(content, column)
            quoted, name = content.startswith('"', begin), self._columns[column]
            text = content[begin + 1 : end - 1].replace('""', '"') if quoted else content[begin:end]
            new = text if name in self.kept else changed_text(text, change, name, self.text_names)
            if new != text:
                content = content[:begin] + self._field(new, quoted=quoted) + content[end:]
        return content.encode("utf-8")

    def _field(self, text: str, *, quoted: bool) -> str:
        """A field as it is written, in quotes where the one before it was."""
        written = self._encoded([text, ""]).decode("utf-8").removesuffix(self.delimiter)
        return (
            f'"{written}"' if not written.startswith('"') and (quoted or len(self._columns) == 1) else written
        )

    def _span(self, record: str, column: int) -> tuple[int, int]:
        """Where a field of a record begins and ends, with its quotes."""
        begin, end = 0, -1
        for _ in range(column + 1):
            begin = end + 1
            if record.startswith('"', begin):
                end = record.index('"', begin + 1)
                while record.startswith('""', end):
                    end = record.index('"', end + 2)
                end += 1
            else:
                end = record.find(self.delimiter, begin)
                end = len(record) if end < 0 else end
        return begin, end

    def unsearched(self) -> list[str]:
        """All columns but that of the text."""
        return [name for name in self._columns if name != self.fields.scored]

    def check_document(self, values: Mapping[str, str]) -> None:
        """Do nothing: every text can be quoted, and the columns are known only once the first line was read."""

    def _encoded(self, record: list[str]) -> bytes:
        written = io.StringIO(newline="")
        # Some versions quote a carriage return only if it is part of the line terminator.
        csv.writer(written, lineterminator="\r\n", delimiter=self.delimiter).writerow(record)
        return written.getvalue().removesuffix("\r\n").encode("utf-8")

    def _feed(self) -> Iterator[str]:
        for raw in self.whole_lines():
            lines = raw.split(b"\n")
            for line in lines[:-1]:
                self._taken.append(line + b"\n")
                yield line.decode("utf-8") + "\n"
            if lines[-1]:
                self._taken.append(lines[-1])
                yield lines[-1].decode("utf-8")
            self.line += len(lines) - 1

    def _next_record(self) -> tuple[int, bytes, list[str]] | None:
        """The line on which the next record begins, its bytes and its values."""
        line = self._parser.line_num + 1
        self._taken.clear()
        try:
            record = next(self._parser, None)
        except csv.Error as error:
            raise CorpusError(
                f"{self.place(line)} begins a record that is not {self.kind.title} ({error}); "
                "look for a quote that is not closed, and write quotes inside quotes twice"
            ) from None
        return None if record is None else (line, b"".join(self._taken), record)

    def _read_columns(self) -> bool:
        with _long_fields():
            record = self._next_record()
        if record is None:
            return False
        line, raw, self._columns = record
        self.header += raw
        for role, field in self.fields.named().items():
            if self._columns.count(field) > 1:
                raise CorpusError(
                    f"{self.place(line)} names two columns {field!r}; give each a name of its own"
                )
            if field not in self._columns:
                # If the names are missing, the first document is in their place, so nothing of it is quoted.
                raise CorpusError(
                    f"{self.place(line)} names no column {field!r} among its {len(self._columns)}; put column names into the first line, "
                    "and name the one that holds it, as text field, user field, date field or source and target field"
                )
            self._roles[role] = self._columns.index(field)
        return True

    def _next_block(self, first: int) -> _CsvBlock | None:
        pieces: list[bytes] = []
        spans: list[tuple[int, int]] = []
        documents: list[CorpusDocument] = []
        end = 0
        with _long_fields():
            while end < BLOCK_BYTES and (record := self._next_record()):
                line, raw, values = record
                if values:
                    spans.append((end, end + len(raw)))
                    documents.append(self._document(line, values))
                pieces.append(raw)
                end += len(raw)
        return _CsvBlock(self, b"".join(pieces), first, spans, documents) if pieces else None

    def _document(self, line: int, values: list[str]) -> CorpusDocument:
        if len(values) != len(self._columns):
            raise CorpusError(
                f"{self.place(line)} begins a record of {len(values)} fields, but there are {len(self._columns)} columns; "
                f"put quotes around fields with {self.delimiters}"
            )
        role = self._roles
        return CorpusDocument(
            line,
            values[role["text"]],
            values[role["user"]] if "user" in role else None,
            values[role["source"]] if "source" in role else None,
            (values[role["date"]] or None) if "date" in role else None,
        )


@contextlib.contextmanager
def _long_fields() -> Iterator[None]:
    """Raise the limit on the length of a field, which belongs to the whole process, for as long as it is needed."""
    before = csv.field_size_limit(LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


CSV = CorpusKind(".csv", "CSV", CsvCorpus)
