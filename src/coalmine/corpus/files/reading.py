"""Opening a corpus file of any kind, and reading its documents as a stream in constant memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import UNSET

from coalmine.corpus.files.corpora import Corpus, CorpusKind
from coalmine.corpus.files.documents import CorpusDocument, DocumentBlock, Fields
from coalmine.corpus.files.kinds import KINDS, kind_of, suffixes_in_words
from coalmine.errors import CorpusError
from coalmine.progress import Progress
from coalmine.records.chat import Frame


def open_corpus(
    path: str | os.PathLike[str],
    fields: Fields | None = None,
    *,
    hashed: bool = False,
    kind: CorpusKind | None = None,
    frame: Frame | None = None,
) -> Corpus:
    """Open a corpus for one pass over its documents; use it in a `with`.

    With `hashed`, its `sha256()` can be asked for at the end. `kind` is for a file whose name does not say it. `frame` is what new
    documents of chat data are written in.
    """
    path = Path(path)
    fields = fields or Fields()
    kind = kind or kind_of(path)
    if fields.rows is not UNSET and not kind.has_conversations:
        if fields.rows != "text":
            raise CorpusError(
                f"{path} is {kind.title}, whose rows are read as texts, but rows of {fields.rows} were asked for; use "
                f"{suffixes_in_words([each for each in KINDS if each.has_conversations])}"
            )
        fields = msgspec.structs.replace(fields, rows=UNSET)
    if not kind.has_fields and fields != Fields():
        raise CorpusError(
            f"{path} is {kind.title}, which has no fields, but {list(fields.named().values())} were named; "
            f"leave the fields out, or use {suffixes_in_words([each for each in KINDS if each.has_fields])}"
        )
    corpus = kind.opens(path, fields, kind, hashed=hashed)
    corpus.frame = frame
    return corpus


def nonempty_blocks(corpus: Corpus) -> Iterator[DocumentBlock]:
    """The blocks of a corpus; a CorpusError at the end if there was no document in them."""
    documents = 0
    for block in corpus.blocks():
        documents += block.count
        yield block
    if not documents:
        raise CorpusError(f"{corpus.path} holds no documents; check that it is the file you mean")


@contextlib.contextmanager
def reported(corpus: Corpus, progress: Progress, task: str) -> Iterator[Callable[[], None]]:
    """Report to `progress` how many bytes of a corpus were read; yields what is to be called after each block."""
    progress.start(task, corpus.size)
    reported_bytes = 0

    def advance() -> None:
        nonlocal reported_bytes
        progress.advance(corpus.position - reported_bytes)
        reported_bytes = corpus.position

    yield advance
    progress.advance(corpus.size - reported_bytes)
    progress.finish()


def read_documents(path: str | os.PathLike[str], fields: Fields | None = None) -> Iterator[CorpusDocument]:
    r"""The documents of a corpus file, in order and in constant memory.

    In .txt each line that is not empty is a document; in .jsonl each line that is not white space; in .csv and .tsv each
    record after the column names; in .parquet each row. All but Parquet may be compressed (.gz, .zst). The text of a conversation
    is that of its turns, one after the other.

    Args:
        path: the corpus file; its suffix says what kind it is.
        fields: which fields of a row hold what; .txt has none.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "mail.jsonl")
    ...     _ = path.write_text('{"text": "hello", "from": "ann"}\n')
    ...     list(read_documents(path, Fields(user="from")))
    [CorpusDocument(number=1, text='hello', user='ann', source=None, date=None)]
    """
    with open_corpus(path, fields) as corpus:
        for block in nonempty_blocks(corpus):
            yield from block.documents()
