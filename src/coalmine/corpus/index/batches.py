"""The documents of a corpus as symbols, some at a time: what the building of an index reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.corpus.files.documents import Document, TextCorpus
from coalmine.corpus.files.lines import PlainTextCorpus
from coalmine.corpus.files.reading import nonempty_blocks
from coalmine.corpus.files.tables import TableCorpus
from coalmine.corpus.index.shards import to_symbols
from coalmine.corpus.index.tokenizing import ByteTokens, IndexTokenizer
from coalmine.errors import CorpusError, ModelError
from coalmine.models.protocols import IntArray

_LINE_BREAK, _CARRIAGE_RETURN = 10, 13
_GROUP_CHARACTERS = 1 << 17


class Batch(NamedTuple):
    """Some consecutive documents."""

    # Where each stands in the corpus: its line or row.
    numbers: IntArray
    # Where each ends, in symbols of this batch, its own end counted.
    ends: IntArray
    symbols: NDArray[np.uint8]

    def part(self, begin: int, end: int, symbol_bytes: int) -> Batch:
        """The documents from `begin` to before `end`."""
        start = int(self.ends[begin - 1]) if begin else 0
        stop = int(self.ends[end - 1]) if end else 0
        symbols = self.symbols[start * symbol_bytes : stop * symbol_bytes]
        return Batch(self.numbers[begin:end], self.ends[begin:end] - start, symbols)


def batches(
    corpus: TextCorpus | TableCorpus, tokenizer: IndexTokenizer, symbol_bytes: int, *, skip: int
) -> Iterator[Batch]:
    """All documents but the first `skip`, in order; a CorpusError if the corpus has none at all."""
    if isinstance(corpus, PlainTextCorpus) and isinstance(tokenizer, ByteTokens):
        yield from _plain_batches(corpus, skip)
        return
    for documents in _groups(corpus, skip):
        numbers = np.array([document.number for document in documents], dtype=np.int64)
        texts = [document.text for document in documents]
        if isinstance(tokenizer, ByteTokens):
            encoded = [text.encode("utf-8") for text in texts]
            lengths = np.array([len(text) for text in encoded], dtype=np.int64)
            # No UTF-8 has this byte, and one more than it is the 0 that ends a document.
            joined = np.frombuffer(b"\xff".join([*encoded, b""]), dtype=np.uint8)
            symbols = joined + np.uint8(1)
        else:
            found = tokenizer.encode_documents(texts)
            lengths = np.array([len(tokens) for tokens in found], dtype=np.int64)
            symbols = _with_ends(found, tokenizer.size, symbol_bytes)
        yield Batch(numbers, np.cumsum(lengths + 1), symbols)


def _groups(corpus: TextCorpus | TableCorpus, skip: int) -> Iterator[list[Document]]:
    """The documents in groups that are cut into tokens at once; small ones, because lists of tokens take much memory."""
    for block in nonempty_blocks(corpus):
        group: list[Document] = []
        characters = 0
        for document in block.documents()[max(0, skip - block.first) :]:
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


def _plain_batches(corpus: PlainTextCorpus, skip: int) -> Iterator[Batch]:
    """Lines of plain text without making a string of each."""
    seen = 0
    for raw in corpus.whole_lines():
        content = np.frombuffer(raw, dtype=np.uint8)
        if content[-1] != _LINE_BREAK:
            content = np.append(content, np.uint8(_LINE_BREAK))
        breaks = np.flatnonzero(content == _LINE_BREAK)
        begins = np.concatenate(([0], breaks[:-1] + 1))
        # A carriage return before the line break belongs to it.
        returns = (breaks > begins) & (content[breaks - 1] == _CARRIAGE_RETURN)
        lengths = breaks - begins - returns
        full = lengths > 0
        numbers = corpus.line + np.flatnonzero(full)
        corpus.line += len(breaks)
        symbols = content + np.uint8(1)
        symbols[breaks] = 0
        if returns.any() or not full.all():
            kept = np.ones(len(symbols), dtype=bool)
            kept[breaks[returns] - 1] = False
            kept[breaks[~full]] = False
            symbols = symbols[kept]
        batch = Batch(numbers.astype(np.int64), np.cumsum(lengths[full] + 1), symbols)
        known = min(len(batch.numbers), max(0, skip - seen))
        seen += len(batch.numbers)
        if known < len(batch.numbers):
            yield batch.part(known, len(batch.numbers), 1)
    if not seen:
        raise CorpusError(f"{corpus.path} holds no documents; check that it is the file you mean")
