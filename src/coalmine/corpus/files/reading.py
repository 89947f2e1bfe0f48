"""What documents does a corpus hold? Reads .txt, .jsonl, .csv and .parquet as a stream, in constant memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from coalmine.corpus.files.comma_separated import CsvCorpus
from coalmine.corpus.files.documents import Block, Document, Fields, TextCorpus
from coalmine.corpus.files.lines import JsonLinesCorpus, PlainTextCorpus
from coalmine.corpus.files.streams import CorpusKind, kind_of
from coalmine.corpus.files.tables import TableCorpus
from coalmine.errors import CorpusError

__all__ = ["Document", "Fields", "nonempty_blocks", "open_corpus", "read_documents"]


def open_corpus(
    path: str | os.PathLike[str],
    fields: Fields | None = None,
    *,
    hashed: bool = False,
    kind: CorpusKind | None = None,
) -> TextCorpus | TableCorpus:
    """Open a corpus for one pass over its documents as they stand in the file; use it in a `with`.

    With `hashed`, its `sha256()` can be asked for in the end. `kind` is for a file whose name does not say it.
    """
    path = Path(path)
    fields = fields or Fields()
    kind = kind or kind_of(path)
    match kind.kind:
        case ".txt":
            return PlainTextCorpus(path, fields, kind, hashed=hashed)
        case ".jsonl":
            return JsonLinesCorpus(path, fields, kind, hashed=hashed)
        case ".csv":
            return CsvCorpus(path, fields, kind, hashed=hashed)
        case _:
            return TableCorpus(path, fields)


def nonempty_blocks(corpus: TextCorpus | TableCorpus) -> Iterator[Block]:
    """The blocks of a corpus; a CorpusError in the end if there was no document in them."""
    documents = 0
    for block in corpus.blocks():
        documents += block.count
        yield block
    if not documents:
        raise CorpusError(f"{corpus.path} holds no documents; check that it is the file you mean")


def read_documents(path: str | os.PathLike[str], fields: Fields | None = None) -> Iterator[Document]:
    r"""The documents of a corpus, in order.

    In .txt each line that is not empty is a document; in .jsonl each line that is not white space; in .csv each record
    after the column names; in .parquet each row. Files of lines may be compressed (.gz, .zst).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "mail.jsonl")
    ...     _ = path.write_text('{"text": "hello", "from": "ann"}\n')
    ...     list(read_documents(path, Fields(user="from")))
    [Document(number=1, text='hello', user='ann', source=None)]
    """
    with open_corpus(path, fields) as corpus:
        for block in nonempty_blocks(corpus):
            yield from block.documents()
