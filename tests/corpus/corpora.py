"""Corpora of every kind with the same documents, written by other libraries than those under test where there are any."""

from __future__ import annotations

import csv
import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq

from coalmine.corpus.files.kinds import all_suffixes

SUFFIXES = all_suffixes()


def rows_of(texts: list[str]) -> list[dict[str, str]]:
    return [{"text": text, "by": f"user {number % 3}", "more": "x"} for number, text in enumerate(texts)]


def delimited(rows: list[dict[str, str]], delimiter: str) -> bytes:
    written = io.StringIO(newline="")
    columns = list(dict.fromkeys(["more", "text", "by", *(column for row in rows for column in row)]))
    writer = csv.DictWriter(written, columns, lineterminator="\n", delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue().encode()


def parquet(rows: list[dict[str, str]]) -> bytes:
    written = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), written, row_group_size=7)
    return written.getvalue()


# How to write rows as a corpus of each kind: a new kind gets a line here, and is then in all tests of corpora.
WRITERS = {
    ".txt": lambda rows: "".join(f"{row['text']}\n" for row in rows).encode(),
    ".jsonl": lambda rows: "".join(json.dumps(row) + "\n" for row in rows).encode(),
    ".csv": lambda rows: delimited(rows, ","),
    ".parquet": parquet,
    ".tsv": lambda rows: delimited(rows, "\t"),
}


def compressed(content: bytes, suffix: str) -> bytes:
    if suffix.endswith(".gz"):
        return gzip.compress(content)
    if suffix.endswith(".zst"):
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(content)
        return sink.getvalue().to_pybytes()
    return content


def content_of(texts: list[str], suffix: str) -> bytes:
    """A corpus of these texts in a kind, before compression."""
    return rows_as(rows_of(texts), suffix)


def rows_as(rows: list[dict[str, str]], suffix: str) -> bytes:
    """A corpus of these rows in a kind, before compression."""
    return WRITERS["." + suffix.split(".")[1]](rows)


class RecordedProgress:
    """A progress that remembers what was reported."""

    def __init__(self):
        self.tasks = []

    def start(self, task, total):
        self.tasks.append([task, total, 0, False])

    def advance(self, amount=1, note=""):  # noqa: ARG002 - the protocol's name
        self.tasks[-1][2] += amount

    def finish(self):
        self.tasks[-1][3] = True
