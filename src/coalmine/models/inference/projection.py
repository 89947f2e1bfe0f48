"""The last layer in blocks of the vocabulary: probabilities of the tokens that are asked for, without the logits of all tokens at once.

What is kept of a block is its highest logit, the log of its sum, and the logits that were asked for; on request, also how many logits are
higher than these, and the moments of the distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coalmine.models.inference.blocks import ROWS, WIDTH, Block, LastLayer, Pass, TokenQuestions
from coalmine.models.inference.ranking import RankCounts
from coalmine.models.inference.vocabulary_sums import Moments, Normalizer
from coalmine.models.protocols import FloatArray, IntArray

__all__ = ["ROWS", "WIDTH", "JudgedTokens", "Projection"]


class JudgedTokens(NamedTuple):
    """What the logits of a position say of one token; one entry per question."""

    log2: FloatArray  # (questions, temperatures), in bits
    is_argmax: NDArray[np.bool_]  # of equals, the lowest id is the argmax
    highest: FloatArray  # the highest logit of the position; not finite if the model's output is not
    ranks: IntArray | None
    # The mean and the standard deviation of log2 p over the vocabulary at the position, weighted by p, in bits.
    mean_bits: FloatArray | None = None
    deviation_bits: FloatArray | None = None


class Projection:
    """Answers about positions, from the hidden numbers that a network made of them."""

    def __init__(self, layer: LastLayer, *, whole_at_a_time: int) -> None:
        """A last layer that cannot be divided makes at most `whole_at_a_time` logits at a time, and those of one row at least."""
        self._layer = layer
        self._whole = whole_at_a_time

    def log2(self, hidden: Tensor, columns: IntArray) -> FloatArray:
        """(n, width) hidden numbers to (n, columns) log2 probabilities of these tokens."""
        passed = Pass(self._layer, hidden, self._whole)
        order = np.argsort(columns, kind="stable")
        ends = np.searchsorted(columns[order], np.arange(1, passed.blocks + 1) * passed.width)
        chosen = torch.from_numpy(order).to(hidden.device)
        within = torch.from_numpy(columns[order]).to(hidden.device)
        own = passed.kept((len(hidden), len(columns)))
        total = Normalizer(passed)
        for block in passed:
            first, last = (int(ends[block.number - 1]) if block.number else 0, int(ends[block.number]))
            if last > first:
                picked = block.logits.index_select(1, within[first:last] - block.begin)
                own[block.rows, chosen[first:last]] = picked
            total.add(block, overwrite=block.is_scratch)
        return _bits(own.double() - total.log()[:, None])

    def argmax(self, hidden: Tensor) -> Tensor:
        """The token with the highest logit at each of n positions; of equals, the lowest id."""
        passed = Pass(self._layer, hidden, self._whole)
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
        moments: bool = False,
    ) -> JudgedTokens:
        """For each of q questions, what position rows[i] of (n, width) hidden numbers says of the token tokens[i].

        The log2 probabilities are those at each temperature. A rank is 1 plus the number of tokens with a higher logit. Moments are those
        at temperature 1, which is then the only one.
        """
        passed = Pass(self._layer, hidden, self._whole)
        found = _Own(passed, TokenQuestions(passed, rows, tokens))
        counted = RankCounts(passed, found.asked) if ranks else None
        spread = Moments(passed, found.tops) if moments else None
        totals: Sequence[Normalizer | Moments] = (
            [Normalizer(passed, temperature, found.tops) for temperature in temperatures]
            if spread is None
            else [spread]
        )
        for block in passed:
            found.add(block)
            if counted is not None:
                counted.add(block, found.logits)
            for total in totals:
                total.add(block, overwrite=block.is_scratch and total is totals[-1])
        position = torch.from_numpy(rows).to(hidden.device)
        highest = found.tops.amax(dim=0)
        highs = highest.double()
        log2 = np.empty((len(tokens), len(temperatures)))
        for place, (temperature, total) in enumerate(zip(temperatures, totals, strict=True)):
            shifted = (found.logits.double() - highs[position]) / temperature
            log2[:, place] = _bits(shifted - total.log_above(highs)[position])
        judged = JudgedTokens(
            log2,
            found.are_argmax(highest),
            np.asarray(highs[position].cpu().numpy()),
            None if counted is None else counted.of(found.logits, highest[position]),
        )
        if spread is None:
            return judged
        mean, deviation = (_bits(part[position]) for part in spread.mean_and_deviation(highs))
        return judged._replace(mean_bits=mean, deviation_bits=deviation)


class _Own:
    """The own logits of questions, the highest ones of each block and row, and whether a question's own is the first of its block's."""

    def __init__(self, passed: Pass, asked: TokenQuestions) -> None:
        self.asked = asked
        self.logits = passed.kept((len(asked),))
        self.tops = passed.kept((passed.blocks, len(passed.hidden)))
        self._first = torch.zeros(len(asked), dtype=torch.bool, device=passed.hidden.device)
        self._width = passed.width

    def add(self, block: Block) -> None:
        """Take in a block."""
        tops = self.tops[block.number, block.rows]
        torch.amax(block.logits, dim=1, out=tops)
        places, within, columns = self.asked.of(block)
        if len(places):
            picked = block.logits[within, columns]
            self.logits[places] = picked
            # Few tokens are as high as any other in their block, and only for these it matters which of equals comes first.
            high = torch.nonzero(picked == tops[within])[:, 0]
            self._first[places[high]] = block.logits[within[high]].argmax(dim=1) == columns[high]

    def are_argmax(self, highest: Tensor) -> NDArray[np.bool_]:
        """Which questions are about the token with the `highest` logit; of equals, the lowest id."""
        device = highest.device
        position = torch.from_numpy(self.asked.rows).to(device)
        # The first block of equals: `argmax` of a Boolean is the first place that is true.
        leading = (self.tops == highest).to(torch.uint8).argmax(dim=0)
        block_of = torch.from_numpy(self.asked.tokens // self._width).to(device)
        hits = self._first & (self.logits == highest[position]) & (block_of == leading[position])
        return np.asarray(hits.cpu().numpy())


def _bits(nats: Tensor) -> FloatArray:
    return np.asarray((nats / math.log(2)).cpu().numpy())
