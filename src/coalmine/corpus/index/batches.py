"""Batches of documents as symbols, which an index is built from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.corpus.files.corpora import Corpus
from coalmine.corpus.files.documents import CorpusDocument, DocumentBlock
from coalmine.corpus.files.reading import nonempty_blocks
from coalmine.corpus.index.shards import to_symbols
from coalmine.corpus.index.tokenizing import ByteTokens, IndexTokenizer, template_in, written_turns
from coalmine.errors import CorpusError, ModelError
from coalmine.models.protocols import IntArray
from coalmine.records.chat import Turn

_GROUP_CHARACTERS = 1 << 17


class Batch(NamedTuple):
    """Some consecutive documents."""

    # The line or row of each in the corpus.
    numbers: IntArray
    # Where each ends, in symbols of this batch, its end symbol included.
    ends: IntArray
    symbols: NDArray[np.uint8]

    def part(self, begin: int, end: int, symbol_bytes: int) -> Batch:
        """The documents from `begin` to before `end`."""
        start = int(self.ends[begin - 1]) if begin else 0
        stop = int(self.ends[end - 1]) if end else 0
        symbols = self.symbols[start * symbol_bytes : stop * symbol_bytes]
        return Batch(self.numbers[begin:end], self.ends[begin:end] - start, symbols)


def batches(corpus: Corpus, tokenizer: IndexTokenizer, symbol_bytes: int, *, skip: int) -> Iterator[Batch]:
    """All documents but the first `skip`, in order; a CorpusError if the corpus has none at all."""
    if isinstance(tokenizer, ByteTokens):
        yield from _byte_batches(corpus, skip)
        return
    for documents in _groups(corpus, tokenizer, skip):
        numbers = np.array([document.number for document in documents], dtype=np.int64)
        found = tokenizer.encode_documents([document.text for document in documents])
        lengths = np.array([len(tokens) for tokens in found], dtype=np.int64)
        yield Batch(numbers, np.cumsum(lengths + 1), _with_ends(found, tokenizer.size, symbol_bytes))


def _byte_batches(corpus: Corpus, skip: int) -> Iterator[Batch]:
    for block in nonempty_blocks(corpus):
        numbers, ends, content = block.joined()
        # No UTF-8 has the byte 255, and one more than it is the 0 that ends a document.
        batch = Batch(numbers, ends, content + np.uint8(1))
        known = min(block.count, max(0, skip - block.first))
        if known < block.count:
            yield batch.part(known, block.count, 1)


def _documents(block: DocumentBlock, corpus: Corpus, tokenizer: IndexTokenizer) -> Sequence[CorpusDocument]:
    """The documents of a block; conversations as the chat template writes them, where the tokenizer has one."""
    documents = block.documents()
    if corpus.rows is None or template_in(tokenizer) is None:
        return documents
    found = []
    for document, turns in zip(documents, block.conversations(), strict=True):
        try:
            text = written_turns(tokenizer, [Turn(turn.role, turn.content) for turn in turns])
        except ModelError as problem:
            raise CorpusError(f"{corpus.path}, {corpus.kind.unit} {document.number}: {problem}") from None
        found.append(msgspec.structs.replace(document, text=text))
    return found


def _groups(corpus: Corpus, tokenizer: IndexTokenizer, skip: int) -> Iterator[list[CorpusDocument]]:
    """The documents in groups that are tokenized together; small ones, because lists of tokens take much memory."""
    for block in nonempty_blocks(corpus):
        group: list[CorpusDocument] = []
        characters = 0
        for document in _documents(block, corpus, tokenizer)[max(0, skip - block.first) :]:
            group.append(document)
            characters += len(document.text)
            if characters > _GROUP_CHARACTERS:
                yield group
                group, characters = [], 0
        if group:
            yield group


def _with_ends(found: list[IntArray], vocabulary: int, symbol_bytes: int) -> NDArray[np.uint8]:
    end = np.array([-1], dtype=np.int64)
    flat = np.concatenate([part for tokens in found for part in (tokens, end)])
    if flat.max() >= vocabulary:
        raise ModelError(
            f"the tokenizer made token {flat.max()}, but says that it has only {vocabulary}; repair its vocabulary"
        )
    return to_symbols(flat, symbol_bytes)
