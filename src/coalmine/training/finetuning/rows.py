"""Documents as windows of tokens, and the batches of an epoch: what a checkpoint reads while it is fine-tuned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, overload

import numpy as np
import torch
from torch import Tensor

from coalmine.errors import CorpusError, InputError
from coalmine.models.protocols import IntArray
from coalmine.models.tokenizing import OpenTokenizer
from coalmine.randomness import arrays
from coalmine.training.data import IGNORED
from coalmine.training.finetuning.base_checkpoint import TunedNetwork
from coalmine.training.finetuning.options import USUAL_WINDOW, FinetuningOptions
from coalmine.training.lessons import BATCHES_SORTED_TOGETHER, cut, padded


class Windows(NamedTuple):
    """Documents cut into windows, in their order; each token but the first of a document is predicted once."""

    # One more token than the window reads: the last is only predicted.
    tokens: list[IntArray]
    # The document of each window, from 0 and ascending.
    documents: IntArray

    @property
    def lengths(self) -> IntArray:
        """How many tokens each predicts."""
        return np.array([len(window) - 1 for window in self.tokens], dtype=np.int64)

    def of_documents(self, documents: IntArray) -> IntArray:
        """The places of the windows of some documents."""
        first, last = (np.searchsorted(self.documents, documents, side) for side in ("left", "right"))
        return np.concatenate([np.arange(*ends) for ends in zip(first, last, strict=True)])


class WindowBatch(NamedTuple):
    """Some windows side by side, padded on the right."""

    read: Tensor  # (rows, time)
    positions: Tensor  # (rows, time)
    expected: Tensor  # (rows, time), IGNORED where no loss is computed
    tokens: int


def window_length(subject: TunedNetwork, options: FinetuningOptions) -> int:
    """How many tokens are read at once."""
    most = subject.reader.max_length
    if options.window is None:
        return USUAL_WINDOW if most is None else min(USUAL_WINDOW, most)
    if most is not None and options.window > most:
        raise InputError(
            f"window must be at most {most}, the number of tokens that the base can read, got {options.window}; give a smaller one"
        )
    return options.window


def windows_of(texts: Sequence[str], subject: TunedNetwork, length: int) -> Windows:
    """Texts as an audit reads them, each after the context and before the token that ends it, cut into windows."""
    tokenizer = subject.reader.tokenizer
    encode = tokenizer.encode_open if isinstance(tokenizer, OpenTokenizer) else tokenizer.encode
    ends = [] if subject.end is None else [subject.end]
    tokens: list[IntArray] = []
    documents: list[int] = []
    for place, text in enumerate(texts):
        whole = np.array([*subject.reader.context, *encode(text), *ends], dtype=np.int64)
        # Each window begins with the last token that the one before predicts.
        found = [whole[start : start + length + 1] for start in range(0, len(whole) - 1, length)]
        tokens += found
        documents += [place] * len(found)
    return Windows(tokens, np.array(documents, dtype=np.int64))


def batch_of(windows: Windows, places: IntArray) -> WindowBatch:
    """Some of the windows side by side."""
    rows = [windows.tokens[place] for place in places]
    read = padded([row[:-1] for row in rows], 0)
    # Given for each row: a network that makes one row of them for all would hide which window moved their embeddings.
    positions = torch.arange(read.shape[1]).expand(read.shape).contiguous()
    return WindowBatch(
        read, positions, padded([row[1:] for row in rows], IGNORED), sum(map(len, rows)) - len(rows)
    )


class Batches(Sequence[WindowBatch]):
    """Batches that are padded when they are used: all of an epoch would take far more memory than the corpus."""

    def __init__(self, windows: Windows, places: Sequence[IntArray]) -> None:
        self._windows, self._places = windows, places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> WindowBatch: ...
    @overload
    def __getitem__(self, place: slice) -> list[WindowBatch]: ...
    def __getitem__(self, place: int | slice) -> WindowBatch | list[WindowBatch]:
        if isinstance(place, slice):
            return [self[each] for each in range(len(self))[place]]
        return batch_of(self._windows, self._places[place])


def epoch_batches(windows: Windows, options: FinetuningOptions, epoch: int) -> list[IntArray]:
    """The windows of each batch of an epoch: a random order, except that those of similar length are batched together."""
    if not windows.tokens:
        raise CorpusError("there are no tokens to train on; check the corpus")
    order = arrays(options.seed, "finetune", "order", epoch).permutation(len(windows.tokens))
    batches: list[IntArray] = []
    for chunk in cut(order, options.batch_size * BATCHES_SORTED_TOGETHER):
        by_length = chunk[np.argsort(windows.lengths[chunk], kind="stable")]
        batches += cut(by_length, options.batch_size)
    shuffled = arrays(options.seed, "finetune", "batches", epoch).permutation(len(batches))
    return [batches[place] for place in shuffled]


def validation_batches(windows: Windows, options: FinetuningOptions) -> list[IntArray]:
    """The windows of each batch of the validation loss, by length."""
    return cut(np.argsort(windows.lengths, kind="stable"), options.batch_size)
