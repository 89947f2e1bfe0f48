"""The last layer in blocks of the vocabulary: probabilities of the tokens that are asked for, without the logits of all tokens at once.

A block of logits is made, read while it is in the cache, and overwritten by the next one. What is kept of it is its highest logit, the
log of its sum, and the logits that were asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coalmine.models.inference.token_scores import precise
from coalmine.models.protocols import FloatArray, IntArray
from coalmine.models.reference.networks import Head, Network

# The rows and the tokens of a block. On a CPU these are 8 MB in single precision: of a few sizes, the fastest for one row and for many. The
# tokens of a block do not depend on the number of rows, so that the sums are the same in every batch.
ROWS, ROWS_ELSEWHERE = {"cpu": 1 << 10}, 1 << 12
WIDTH, WIDTH_ELSEWHERE = {"cpu": 1 << 11}, 1 << 12


class Judged(NamedTuple):
    """What the logits of a position say of one token; one entry per question."""

    log2: FloatArray  # (questions, temperatures), in bits
    is_argmax: NDArray[np.bool_]  # of equals, the lowest id is the argmax
    highest: FloatArray  # the highest logit of the position; not finite if the model's output is not
    ranks: IntArray | None


class _Block(NamedTuple):
    number: int
    rows: slice
    begin: int  # the first token
    logits: Tensor  # (rows, tokens), overwritten when the next block is made
    is_scratch: bool  # whether the caller may overwrite them


class Projection:
    """Answers about positions, from the hidden numbers that a network made of them."""

    def __init__(self, network: Network, *, whole_at_a_time: int) -> None:
        """A last layer that cannot be divided makes at most `whole_at_a_time` logits at a time, and those of one row at least."""
        self._network = network
        self._whole = whole_at_a_time

    def log2(self, hidden: Tensor, columns: IntArray) -> FloatArray:
        """(n, width) hidden numbers to (n, columns) log2 probabilities of these tokens."""
        passed = _Pass(self._network, hidden, self._whole)
        order = np.argsort(columns, kind="stable")
        ends = np.searchsorted(columns[order], np.arange(1, passed.blocks + 1) * passed.width)
        chosen = torch.from_numpy(order).to(hidden.device)
        within = torch.from_numpy(columns[order]).to(hidden.device)
        own = passed.kept((len(hidden), len(columns)))
        total = passed.normalizer(1.0)
        for block in passed:
            first, last = (int(ends[block.number - 1]) if block.number else 0, int(ends[block.number]))
            if last > first:
                picked = block.logits.index_select(1, within[first:last] - block.begin)
                own[block.rows, chosen[first:last]] = picked
            total.add(block, overwrite=block.is_scratch)
        return _bits(own.double() - total.log()[:, None])

    def argmax(self, hidden: Tensor) -> Tensor:
        """The token with the highest logit at each of n positions; of equals, the lowest id."""
        passed = _Pass(self._network, hidden, self._whole)
        highest = passed.kept((len(hidden),)).fill_(-math.inf)
        found = torch.zeros(len(hidden), dtype=torch.long, device=hidden.device)
        for block in passed:
            top = block.logits.amax(dim=1)
            # Most blocks hold the highest logit of few rows, and looking for its place takes far longer than looking for its size.
            higher = torch.nonzero(~(top <= highest[block.rows]))[:, 0]
            if len(higher):
                rows = higher + block.rows.start
                highest[rows] = top[higher]
                found[rows] = block.logits[higher].argmax(dim=1) + block.begin
        return found

    def judge(
        self,
        hidden: Tensor,
        rows: IntArray,
        tokens: IntArray,
        *,
        temperatures: Sequence[float] = (1.0,),
        ranks: bool = False,
    ) -> Judged:
        """For each of q questions, what position rows[i] of (n, width) hidden numbers says of the token tokens[i].

        The log2 probabilities are those at each temperature. A rank is 1 plus the number of tokens with a higher logit.
        """
        passed = _Pass(self._network, hidden, self._whole)
        asked = _Questions(passed, rows, tokens)
        own = passed.kept((len(tokens),))
        first = torch.zeros(len(tokens), dtype=torch.bool, device=hidden.device)
        tops = passed.kept((passed.blocks, len(hidden)))
        totals = [passed.normalizer(temperature, tops) for temperature in temperatures]
        for block in passed:
            torch.amax(block.logits, dim=1, out=tops[block.number, block.rows])
            places, within, columns = asked.of(block)
            if len(places):
                picked = block.logits[within, columns]
                own[places] = picked
                # Few tokens are as high as any other in their block, and only for these it matters which of equals comes first.
                high = torch.nonzero(picked == tops[block.number, block.rows][within])[:, 0]
                first[places[high]] = block.logits[within[high]].argmax(dim=1) == columns[high]
            for total in totals:
                total.add(block, overwrite=block.is_scratch and total is totals[-1])
        position = torch.from_numpy(rows).to(hidden.device)
        highest = tops.amax(dim=0)
        # The first block of equals: `argmax` of a Boolean is the first place that is true.
        leading = (tops == highest).to(torch.uint8).argmax(dim=0)
        block_of = torch.from_numpy(tokens // passed.width).to(hidden.device)
        hits = first & (own == highest[position]) & (block_of == leading[position])
        highs = highest.double()
        log2 = np.empty((len(tokens), len(temperatures)))
        for place, (temperature, total) in enumerate(zip(temperatures, totals, strict=True)):
            shifted = (own.double() - highs[position]) / temperature
            log2[:, place] = _bits(shifted - total.log_above(highs)[position])
        return Judged(
            log2,
            np.asarray(hits.cpu().numpy()),
            np.asarray(highs[position].cpu().numpy()),
            _ranks(passed, asked, own) if ranks else None,
        )


class _Pass:
    """The logits of n positions, block by block; each block overwrites the one before."""

    def __init__(self, network: Network, hidden: Tensor, whole_at_a_time: int) -> None:
        self._network, self._hidden = network, hidden
        device, vocabulary = hidden.device, network.vocabulary
        self._head = _usable(network.head(), hidden)
        if self._head is None:
            self.rows, self.width = max(1, whole_at_a_time // vocabulary), vocabulary
        else:
            self.rows = max(1, min(len(hidden), ROWS.get(device.type, ROWS_ELSEWHERE)))
            self.width = min(vocabulary, WIDTH.get(device.type, WIDTH_ELSEWHERE))
        self.blocks = -(-vocabulary // self.width)
        self.dtype = precise(hidden.dtype)
        self._vocabulary = vocabulary

    def kept(self, shape: tuple[int, ...]) -> Tensor:
        """A tensor for logits that are kept."""
        return torch.empty(shape, dtype=self.dtype, device=self._hidden.device)

    def normalizer(self, temperature: float, tops: Tensor | None = None) -> _Normalizer:
        """The log of the sum of exponentials of each row's logits, after they are divided by a temperature."""
        shape = (self.blocks, len(self._hidden))
        own = tops is None
        return _Normalizer(
            temperature, self.kept(shape) if tops is None else tops, self.kept(shape), fill=own
        )

    def __iter__(self) -> Iterator[_Block]:
        if self._head is None:
            yield from self._whole_rows()
            return
        weight, bias, bent = self._head
        many = len(self._hidden)
        made = torch.empty(self.rows * self.width, dtype=self._hidden.dtype, device=self._hidden.device)
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
                    torch.mm(self._hidden[rows], columns, out=logits)
                else:
                    torch.addmm(bias[begin:end], self._hidden[rows], columns, out=logits)
                if bent is not None:
                    bent(logits)
                if exact is not made:
                    logits = exact[: math.prod(shape)].view(shape).copy_(logits)
                yield _Block(number, rows, begin, logits, is_scratch=True)

    def _whole_rows(self) -> Iterator[_Block]:
        for start in range(0, len(self._hidden), self.rows):
            rows = slice(start, min(len(self._hidden), start + self.rows))
            hidden = self._hidden[rows]
            logits = self._network.project(hidden).to(self.dtype)
            yield _Block(0, rows, 0, logits, is_scratch=logits.data_ptr() != hidden.data_ptr())


class _Normalizer:
    """The highest logit of each block and row, and the log of the sum of exponentials relative to it."""

    def __init__(self, temperature: float, tops: Tensor, sums: Tensor, *, fill: bool) -> None:
        self._temperature, self._tops, self._sums, self._fill = temperature, tops, sums, fill
        self._shifted: Tensor | None = None

    def add(self, block: _Block, *, overwrite: bool) -> None:
        """Take in a block, in place of its logits if these are not needed any more."""
        number, rows, _, logits, _ = block
        tops = self._tops[number, rows]
        if self._fill:
            torch.amax(logits, dim=1, out=tops)
        if not overwrite and self._shifted is None:  # the first block is the largest
            self._shifted = torch.empty(logits.numel(), dtype=logits.dtype, device=logits.device)
        shifted = logits
        if not overwrite and self._shifted is not None:
            shifted = self._shifted[: logits.numel()].view(logits.shape)
        if self._temperature == 1:
            torch.log_softmax(logits, dim=1, out=shifted)
        else:
            # The highest is 0 before the division, so that no temperature overflows a float or rounds away a difference.
            torch.sub(logits, tops[:, None], out=shifted)
            torch.log_softmax(shifted.div_(self._temperature), dim=1, out=shifted)
        # The highest of a log-softmax is minus the log of the sum relative to the highest logit.
        torch.amax(shifted, dim=1, out=self._sums[number, rows])

    def log_above(self, highest: Tensor) -> Tensor:
        """The logs of the sums, relative to the `highest` logit of each row, in double precision: 0 at least."""
        tops = (self._tops.double() - highest) / self._temperature
        # A block with no token that can occur has no sum.
        logs = torch.where(self._tops == -math.inf, -math.inf, tops - self._sums.double().clamp(max=0.0))
        return torch.logsumexp(logs, dim=0)

    def log(self) -> Tensor:
        """The logs of the sums at temperature 1, in double precision; no less than the highest logit."""
        highest = self._tops.amax(dim=0).double()
        return highest + self.log_above(highest)


class _Questions:
    """Questions about single tokens, found by the block that answers them."""

    def __init__(self, passed: _Pass, rows: IntArray, tokens: IntArray) -> None:
        self._passed, self._groups = passed, -(-max(1, int(rows.max(initial=0)) + 1) // passed.rows)
        keys = (tokens // passed.width) * self._groups + rows // passed.rows
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        self._rows, self._tokens = rows, tokens

    def of(self, block: _Block) -> tuple[Tensor, Tensor, Tensor]:
        """The places of the questions that this block answers, and the rows and columns of the block that do."""
        group = block.rows.start // self._passed.rows
        key = block.number * self._groups + group
        first, last = np.searchsorted(self._keys, [key, key + 1]) if group < self._groups else (0, 0)
        places = self._order[first:last]
        parts = places, self._rows[places] - block.rows.start, self._tokens[places] - block.begin
        places_, rows, columns = (torch.from_numpy(part).to(block.logits.device) for part in parts)
        return places_, rows, columns

    def in_rows(self, rows: slice) -> IntArray:
        """The places of all questions about these rows."""
        return np.flatnonzero((self._rows >= rows.start) & (self._rows < rows.stop))

    def row(self, places: IntArray) -> IntArray:
        """The rows of questions."""
        return self._rows[places]


def _ranks(passed: _Pass, asked: _Questions, own: Tensor) -> IntArray:
    """How many logits are higher than each question's own, plus 1; all logits are made a second time."""
    ranks = torch.ones(len(own), dtype=torch.long, device=own.device)
    for block in passed:
        every = asked.in_rows(block.rows)
        most = max(1, passed.rows * passed.width // block.logits.shape[1])
        for begin in range(0, len(every), most):
            places = every[begin : begin + most]
            rows = torch.from_numpy(asked.row(places) - block.rows.start).to(own.device)
            at = torch.from_numpy(places).to(own.device)
            ranks[at] += (block.logits[rows] > own[at, None]).sum(dim=1)
    return np.asarray(ranks.cpu().numpy())


def _usable(head: Head | None, hidden: Tensor) -> Head | None:
    """A layer whose weights fit these hidden numbers as they are."""
    if head is None or head.weight.dtype != hidden.dtype or head.weight.device != hidden.device:
        return None
    return head


def _bits(nats: Tensor) -> FloatArray:
    return np.asarray((nats / math.log(2)).cpu().numpy())
