"""Writes a corpus again with the texts of some documents replaced, and some documents left out; all else stays as it was."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from coalmine.corpus.files.comma_separated import LONGEST_FIELD, CsvCorpus
from coalmine.corpus.files.documents import Document, TextBlock, TextCorpus
from coalmine.corpus.files.lines import JsonLinesCorpus
from coalmine.corpus.files.streams import HashedWriter, compressed_sink, kind_of, pyarrow_for
from coalmine.corpus.files.tables import TableBlock, TableCorpus, TableSink
from coalmine.errors import CorpusError
from coalmine.storage.decoding import UndecodableError, decode_python_json
from coalmine.storage.files import sha256_of_file

# For each document that changes, by its place among all documents, its new text, or None to leave it out.
Changes = Mapping[int, Callable[[str], str] | None]


def write_with_changes(
    corpus: TextCorpus | TableCorpus, path: Path, changes: Changes, advance: Callable[[], None]
) -> str:
    """Copy a corpus to `path` with changed texts, and give the SHA-256 of the copy.

    Documents that do not change keep their bytes; of one that changes, the other fields keep their values.

    Args:
        corpus: the original, open and not yet read.
        path: where to write, whatever its suffix, in the kind and compression of the original.
        changes: for the place of a document, counted from 0, what makes its new text of the old one; None leaves it out.
        advance: called after each block.
    """
    if isinstance(corpus, TableCorpus):
        return _write_table(corpus, path, changes, advance)
    with contextlib.closing(HashedWriter(path)) as raw:
        with compressed_sink(raw, corpus.path, kind_of(corpus.path).compression) as sink:
            for number, block in enumerate(corpus.blocks()):
                if number == 0:
                    # Known only now: it was read together with the first block.
                    sink.write(corpus.header)
                for piece in _changed_lines(corpus, block, changes):
                    sink.write(piece)
                advance()
        raw.flush()
    return raw.hexdigest()


def _changed_lines(corpus: TextCorpus, block: TextBlock, changes: Changes) -> Iterator[bytes]:
    places = range(block.first, block.first + block.count)
    written = 0
    if any(place in changes for place in places):
        rows = zip(places, block.spans(), block.documents(), strict=True)
        for place, (begin, end), document in rows:
            if place not in changes:
                continue
            yield block.raw[written:begin]
            change = changes[place]
            if change is not None:
                line = block.raw[begin:end]
                body = line.removesuffix(b"\n").removesuffix(b"\r") if line.endswith(b"\n") else line
                yield _changed_row(corpus, document, body, change(document.text)) + line[len(body) :]
            written = end
    yield block.raw[written:]


def _changed_row(corpus: TextCorpus, document: Document, body: bytes, text: str) -> bytes:
    """A row as bytes without its line break, with another text."""
    if isinstance(corpus, JsonLinesCorpus):
        try:
            row = decode_python_json(body, surrogates=True)
        except UndecodableError as problem:
            # It was read without looking into the fields that are not in use.
            raise CorpusError(
                f"{corpus.place(document.number)} cannot be written again ({problem}); fix the row"
            ) from None
        row[corpus.fields.scored] = text
        try:
            return json.dumps(row, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            # Half a surrogate pair in another field is no text, but its escape is JSON.
            return json.dumps(row).encode("ascii")
    if isinstance(corpus, CsvCorpus):
        before = csv.field_size_limit(LONGEST_FIELD)
        try:
            [record] = csv.reader(io.StringIO(body.decode("utf-8"), newline=""), strict=True)
            [columns] = csv.reader(io.StringIO(_header_line(corpus), newline=""), strict=True)
        finally:
            csv.field_size_limit(before)
        record[columns.index(corpus.fields.scored)] = text
        written = io.StringIO(newline="")
        csv.writer(written, lineterminator="\r\n").writerow(record)
        return written.getvalue().removesuffix("\r\n").encode("utf-8")
    return text.encode("utf-8")


def _header_line(corpus: CsvCorpus) -> str:
    return corpus.header.decode("utf-8-sig")


def _write_table(corpus: TableCorpus, path: Path, changes: Changes, advance: Callable[[], None]) -> str:
    sink = TableSink(path, like=corpus)
    try:
        for block in corpus.blocks():
            sink.write(_changed_batch(corpus, block, changes))
            advance()
        sink.close()
    except BaseException:
        sink.abandon()
        raise
    return sha256_of_file(path)


def _changed_batch(corpus: TableCorpus, block: TableBlock, changes: Changes) -> Any:
    places = range(block.first, block.first + block.count)
    if not any(place in changes for place in places):
        return block.batch
    pa = pyarrow_for(f"writing {corpus.path.name}")
    texts: list[str] = []
    kept: list[bool] = []
    for place, document in zip(places, block.documents(), strict=True):
        change = changes.get(place, str)
        kept.append(change is not None)
        texts.append(document.text if change is None else change(document.text))
    column = block.batch.schema.get_field_index(corpus.fields.scored)
    kind = block.batch.schema.field(column).type
    values = pa.array(texts, type=pa.string())
    encoded = values.dictionary_encode() if pa.types.is_dictionary(kind) else values
    batch = block.batch.set_column(column, block.batch.schema.field(column), encoded.cast(kind))
    return batch.filter(pa.array(kept))
