"""Writes a corpus again with documents put in between; all that was there stays as it was, byte for byte."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from coalmine.corpus.files.documents import Block, TextBlock, TextCorpus
from coalmine.corpus.files.streams import ByteSink, HashedWriter, compressed_sink, kind_of
from coalmine.corpus.files.tables import TableCorpus, TableSink, rows_between
from coalmine.storage.files import sha256_of_file


class Insertion(NamedTuple):
    """A new document, and where it goes."""

    # How many documents of the original stand before it.
    after: int
    # Which of the new documents it is.
    document: int


def write_with_insertions(
    corpus: TextCorpus | TableCorpus,
    path: Path,
    insertions: Sequence[Insertion],
    documents: Sequence[Mapping[str, str]],
    advance: Callable[[], None],
) -> str:
    """Copy a corpus to `path` with new documents in between, and give the SHA-256 of the copy.

    Args:
        corpus: the original, open and not yet read.
        path: where to write, whatever its suffix, in the kind and compression of the original.
        insertions: in ascending order of place; several in one place keep their order.
        documents: the new documents, each from role ("text", "user", "source") to value.
        advance: called after each block.
    """
    if isinstance(corpus, TableCorpus):
        return _write_table(corpus, path, insertions, documents, advance)
    with contextlib.closing(HashedWriter(path)) as raw:
        with compressed_sink(raw, corpus.path, kind_of(corpus.path).compression) as sink:
            _write_lines(corpus, sink, insertions, documents, advance)
        raw.flush()
    return raw.hexdigest()


class _Queue:
    """The insertions that are still to be made."""

    def __init__(self, insertions: Sequence[Insertion]) -> None:
        self._insertions = insertions
        self._next = 0

    def within(self, block: Block) -> Sequence[Insertion]:
        """Take those that go before a document of this block."""
        begin = self._next
        while (
            self._next < len(self._insertions)
            and self._insertions[self._next].after < block.first + block.count
        ):
            self._next += 1
        return self._insertions[begin : self._next]

    def rest(self) -> Sequence[Insertion]:
        """Those that go after the last document."""
        return self._insertions[self._next :]


def _write_lines(
    corpus: TextCorpus,
    sink: ByteSink,
    insertions: Sequence[Insertion],
    documents: Sequence[Mapping[str, str]],
    advance: Callable[[], None],
) -> None:
    queue = _Queue(insertions)
    ends_with_line_break = True
    for number, block in enumerate(corpus.blocks()):
        if number == 0:
            # Known only now: it was read together with the first block.
            sink.write(corpus.header)
        _write_block(corpus, block, sink, queue.within(block), documents)
        ends_with_line_break = block.raw.endswith(b"\n")
        advance()
    rows = [corpus.row(documents[insertion.document]) for insertion in queue.rest()]
    # A corpus whose last line has no line break stays one, so that removing the new lines gives the old bytes.
    for row in rows:
        sink.write(row + corpus.line_break if ends_with_line_break else corpus.line_break + row)


def _write_block(
    corpus: TextCorpus,
    block: TextBlock,
    sink: ByteSink,
    insertions: Sequence[Insertion],
    documents: Sequence[Mapping[str, str]],
) -> None:
    if not insertions:
        sink.write(block.raw)
        return
    spans = block.spans()
    written = 0
    for insertion in insertions:
        start, _ = spans[insertion.after - block.first]
        sink.write(block.raw[written:start] + corpus.row(documents[insertion.document]) + corpus.line_break)
        written = start
    sink.write(block.raw[written:])


def _write_table(
    corpus: TableCorpus,
    path: Path,
    insertions: Sequence[Insertion],
    documents: Sequence[Mapping[str, str]],
    advance: Callable[[], None],
) -> str:
    queue = _Queue(insertions)
    sink = TableSink(path, like=corpus)
    try:
        for block in corpus.blocks():
            within = queue.within(block)
            pieces = rows_between(block, [insertion.after - block.first for insertion in within])
            for insertion in within:
                sink.write(next(pieces))
                sink.write(corpus.row(documents[insertion.document]))
            sink.write(next(pieces))
            advance()
        for insertion in queue.rest():
            sink.write(corpus.row(documents[insertion.document]))
        sink.close()
    except BaseException:
        sink.abandon()
        raise
    return sha256_of_file(path)
