"""Corpora of every kind with the same documents."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

LINES = [".txt", ".jsonl", ".csv"]
SUFFIXES = [kind + compression for kind in LINES for compression in ("", ".gz", ".zst")] + [".parquet"]


def compressed(content: bytes, suffix: str) -> bytes:
    if suffix.endswith(".gz"):
        return gzip.compress(content)
    if suffix.endswith(".zst"):
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(content)
        return sink.getvalue().to_pybytes()
    return content


def decompressed(content: bytes, suffix: str) -> bytes:
    if suffix.endswith(".gz"):
        return gzip.decompress(content)
    if suffix.endswith(".zst"):
        return pa.CompressedInputStream(pa.BufferReader(content), "zstd").read()
    return content


def rows_of(texts: list[str]) -> list[dict[str, str]]:
    return [{"text": text, "by": f"user {number % 3}", "more": "x"} for number, text in enumerate(texts)]


def content_of(texts: list[str], suffix: str) -> bytes:
    """A corpus of these texts in a kind, before compression."""
    if suffix.startswith(".txt"):
        return "".join(f"{text}\n" for text in texts).encode()
    if suffix.startswith(".jsonl"):
        return "".join(json.dumps(row) + "\n" for row in rows_of(texts)).encode()
    written = io.StringIO(newline="")
    writer = csv.DictWriter(written, ["more", "text", "by"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows_of(texts))
    return written.getvalue().encode()


@pytest.fixture
def make_corpus(tmp_path):
    """Writes a corpus of some texts, in the kind that a suffix names."""

    def make(texts: list[str], suffix: str, name: str = "mail") -> Path:
        path = tmp_path / f"{name}{suffix}"
        if suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist(rows_of(texts)), path, row_group_size=7)
        else:
            path.write_bytes(compressed(content_of(texts, suffix), suffix))
        return path

    return make
