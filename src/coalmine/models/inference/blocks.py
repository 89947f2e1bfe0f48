"""The logits of many positions in blocks of the vocabulary, and which block answers which question.

A block of logits is made, read while it is in the cache, and overwritten by the next one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from coalmine.models.inference.token_scores import precise
from coalmine.models.protocols import IntArray
from coalmine.models.reference.networks import Head

# The rows and the tokens of a block. On a CPU these are 8 MB in single precision: of a few sizes, the fastest for one row and for many. The
# tokens of a block do not depend on the number of rows, so that the sums are the same in every batch.
ROWS, ROWS_ELSEWHERE = {"cpu": 1 << 10}, 1 << 12
WIDTH, WIDTH_ELSEWHERE = {"cpu": 1 << 11}, 1 << 12


class LastLayer(Protocol):
    """What turns the hidden numbers of a position into the logits of the vocabulary."""

    @property
    def vocabulary(self) -> int:
        """The number of logits of a position."""

    def project(self, hidden: Tensor) -> Tensor:
        """(n, width) hidden numbers to (n, vocabulary) logits, which the caller may overwrite unless they are the hidden numbers."""

    def head(self) -> Head | None:
        """What `project` does, where it can be done in parts."""


class Block(NamedTuple):
    """The logits of some positions for some tokens."""

    number: int
    rows: slice
    begin: int  # the first token
    logits: Tensor  # (rows, tokens), overwritten when the next block is made
    is_scratch: bool  # whether the caller may overwrite them


class Pass:
    """The logits of n positions, block by block; each block overwrites the one before."""

    def __init__(self, layer: LastLayer, hidden: Tensor, whole_at_a_time: int) -> None:
        self._layer, self.hidden, self._whole = layer, hidden, whole_at_a_time
        device, vocabulary = hidden.device, layer.vocabulary
        self.head = _usable(layer.head(), hidden)
        if self.head is None:
            self.rows, self.width = max(1, whole_at_a_time // vocabulary), vocabulary
        else:
            self.rows = max(1, min(len(hidden), ROWS.get(device.type, ROWS_ELSEWHERE)))
            self.width = min(vocabulary, WIDTH.get(device.type, WIDTH_ELSEWHERE))
        self.blocks = -(-vocabulary // self.width)
        self.dtype = precise(hidden.dtype)
        self._vocabulary = vocabulary

    def kept(self, shape: tuple[int, ...]) -> Tensor:
        """A tensor for numbers that are kept, in the precision of the sums."""
        return torch.empty(shape, dtype=self.dtype, device=self.hidden.device)

    def at(self, rows: Tensor) -> Pass:
        """A pass over some of the positions; rounding may differ from this one."""
        return Pass(self._layer, self.hidden[rows], self._whole)

    def __iter__(self) -> Iterator[Block]:
        if self.head is None:
            yield from self._whole_rows()
            return
        weight, bias, bent = self.head
        many = len(self.hidden)
        made = torch.empty(self.rows * self.width, dtype=self.hidden.dtype, device=self.hidden.device)
        exact = made if self.dtype == made.dtype else torch.empty_like(made, dtype=self.dtype)
        # The rows of a block of weights are read for all positions before those of the next.
        for number in range(self.blocks):
            begin, end = number * self.width, min(self._vocabulary, (number + 1) * self.width)
            columns = weight[begin:end].T
            for start in range(0, many, self.rows):
                rows = slice(start, min(many, start + self.rows))
                shape = rows.stop - start, end - begin
                logits = made[: math.prod(shape)].view(shape)
                if bias is None:
                    torch.mm(self.hidden[rows], columns, out=logits)
                else:
                    torch.addmm(bias[begin:end], self.hidden[rows], columns, out=logits)
                if bent is not None:
                    bent(logits)
                if exact is not made:
                    logits = exact[: math.prod(shape)].view(shape).copy_(logits)
                yield Block(number, rows, begin, logits, is_scratch=True)

    def _whole_rows(self) -> Iterator[Block]:
        for start in range(0, len(self.hidden), self.rows):
            rows = slice(start, min(len(self.hidden), start + self.rows))
            hidden = self.hidden[rows]
            logits = self._layer.project(hidden).to(self.dtype)
            yield Block(0, rows, 0, logits, is_scratch=logits.data_ptr() != hidden.data_ptr())


class TokenQuestions:
    """Questions about single tokens, found by the block that answers them."""

    def __init__(self, passed: Pass, rows: IntArray, tokens: IntArray) -> None:
        self._passed, self._groups = passed, -(-max(1, int(rows.max(initial=0)) + 1) // passed.rows)
        keys = (tokens // passed.width) * self._groups + rows // passed.rows
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        self.rows, self.tokens = rows, tokens

    def __len__(self) -> int:
        return len(self.tokens)

    def of(self, block: Block) -> tuple[Tensor, Tensor, Tensor]:
        """The places of the questions that this block answers, and the rows and columns of the block that do."""
        group = block.rows.start // self._passed.rows
        key = block.number * self._groups + group
        first, last = np.searchsorted(self._keys, [key, key + 1]) if group < self._groups else (0, 0)
        places = self._order[first:last]
        parts = places, self.rows[places] - block.rows.start, self.tokens[places] - block.begin
        places_, rows, columns = (torch.from_numpy(part).to(block.logits.device) for part in parts)
        return places_, rows, columns


def _usable(head: Head | None, hidden: Tensor) -> Head | None:
    """A layer whose weights fit these hidden numbers as they are."""
    if head is None or head.weight.dtype != hidden.dtype or head.weight.device != hidden.device:
        return None
    return head
