"""Ranks of tokens in the vocabulary, by counting the logits above a token's own; nothing is sorted.

A token's own logit comes with its block, when other blocks have gone by. So it is bounded before the pass by one dot product, which may
round in another way: logits above the upper bound are counted, and so are those above the lower one. If only the token's own logit is
between the two, its rank is known exactly. The few tokens that have neighbors closer than rounding are counted a second time.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from coalmine.models.inference.blocks import Block, Pass, TokenQuestions
from coalmine.models.protocols import IntArray

# The bounds on a logit are this many roundings of the product of two norms away from the dot product. Of 500 logits of 64 to 1,024 terms,
# the one that is farthest from it is 0.87 of them away, and half are within 0.1; a logit outside its bounds is counted again.
ROUNDINGS = 1


class RankCounts:
    """The number of logits above the own one of each question, plus 1; found along a pass that someone else makes."""

    def __init__(self, passed: Pass, asked: TokenQuestions) -> None:
        self._passed, self._asked = passed, asked
        self._counter = _Counter(passed, asked)
        # In half precision many logits are equal, and nothing is between two of them.
        self._bounds = (
            _bounds(passed, asked) if passed.blocks > 1 and passed.hidden.dtype == passed.dtype else None
        )
        self._above = [self._counter.zeros(), self._counter.zeros()]

    def add(self, block: Block, own: Tensor) -> None:
        """Count in a block; `own` has the logits of the questions that this block answers, and maybe others."""
        if self._passed.blocks == 1:
            self._counter.count(block, own, self._above[0])
        elif self._bounds is not None:
            for bound, above in zip(self._bounds, self._above, strict=True):
                self._counter.count(block, bound, above)

    def of(self, own: Tensor, highest: Tensor) -> IntArray:
        """The ranks, given the own logit of each question and the highest one of its position."""
        at_top = own == highest
        if self._passed.blocks == 1:
            return _ranks(self._above[0], at_top)
        unclear = ~at_top
        if self._bounds is not None:
            low, high = self._bounds
            # The own logit is one of those above the lower bound.
            unclear &= ~((low < own) & (own <= high) & (self._above[0] == self._above[1] + 1))
        again = torch.nonzero(unclear)[:, 0]
        above = self._above[1]
        if 2 * len(again) > len(own):
            above = _counted(self._passed, self._asked, own)
        elif len(again):
            above[again] = self._counted_again(again)
        return _ranks(above, at_top)

    def _counted_again(self, places: Tensor) -> Tensor:
        """The number of logits above the own ones of some questions, among the logits of a pass over their positions alone."""
        chosen = places.cpu().numpy()
        rows, within = np.unique(self._asked.rows[chosen], return_inverse=True)
        passed = self._passed.at(torch.from_numpy(rows).to(places.device))
        asked = TokenQuestions(passed, within.reshape(-1), self._asked.tokens[chosen])
        own = passed.kept((len(chosen),))
        for block in passed:
            at, inside, columns = asked.of(block)
            own[at] = block.logits[inside, columns]
        return _counted(passed, asked, own)


class _Counter:
    """Counts the logits of a question's position that are above a threshold of the question."""

    def __init__(self, passed: Pass, asked: TokenQuestions) -> None:
        self._device, self._block = passed.hidden.device, passed.rows * passed.width
        self._many = len(asked)
        # Most positions have one question. The first one of each is compared with the logits where they are; others need copies of them.
        rows, firsts = np.unique(asked.rows, return_index=True)
        own = np.full(len(passed.hidden), -1)
        own[rows] = firsts
        self._first_of = torch.from_numpy(own).to(self._device)
        others = np.setdiff1d(np.arange(len(asked)), firsts)
        others = others[np.argsort(asked.rows[others], kind="stable")]
        self._others, self._rows = torch.from_numpy(others).to(self._device), asked.rows[others]
        self._marks: Tensor | None = None

    def zeros(self) -> Tensor:
        """Counts to begin with."""
        return torch.zeros(self._many, dtype=torch.long, device=self._device)

    def count(self, block: Block, thresholds: Tensor, counts: Tensor) -> None:
        """Add the numbers of logits of a block that are above the thresholds."""
        if not self._many:
            return
        own = self._first_of[block.rows]
        above = self._above(block.logits, thresholds[own])
        counts.index_add_(0, own.clamp(min=0), torch.where(own < 0, 0, above))
        first, last = np.searchsorted(self._rows, [block.rows.start, block.rows.stop]).tolist()
        most = max(1, self._block // block.logits.shape[1])
        for begin in range(first, last, most):
            end = min(last, begin + most)
            within = torch.from_numpy(self._rows[begin:end] - block.rows.start).to(self._device)
            places = self._others[begin:end]
            counts[places] += self._above(block.logits[within], thresholds[places])

    def _above(self, logits: Tensor, thresholds: Tensor) -> Tensor:
        if self._marks is None or self._marks.numel() < logits.numel():
            self._marks = torch.empty_like(logits).flatten()
        # Ones and zeros in the type of the logits: sums of these are exact, and far faster than those of Booleans.
        marks = self._marks[: logits.numel()].view(logits.shape)
        torch.gt(logits, thresholds[:, None], out=marks)
        return marks.sum(dim=1).long()


def _counted(passed: Pass, asked: TokenQuestions, own: Tensor) -> Tensor:
    """The number of logits above the own one of each question; all logits are made once more."""
    counter = _Counter(passed, asked)
    counts = counter.zeros()
    for block in passed:
        counter.count(block, own, counts)
    return counts


def _bounds(passed: Pass, asked: TokenQuestions) -> tuple[Tensor, Tensor] | None:
    """What the own logit of each question is above, and what it is not above, unless rounding is unusually large."""
    if passed.head is None:
        return None
    weight, bias, bent = passed.head
    low, high = passed.kept((len(asked),)), passed.kept((len(asked),))
    for begin in range(0, len(asked), passed.rows):
        some = slice(begin, begin + passed.rows)
        rows, tokens = (
            torch.from_numpy(part[some]).to(passed.hidden.device) for part in (asked.rows, asked.tokens)
        )
        hidden, own = passed.hidden[rows], weight[tokens]
        logits, size = (hidden * own).sum(dim=1), hidden.norm(dim=1) * own.norm(dim=1)
        if bias is not None:
            logits, size = logits + bias[tokens], size + bias[tokens].abs()
        off = size * (ROUNDINGS * torch.finfo(passed.dtype).eps)
        low[some], high[some] = logits - off, logits + off
    if bent is not None:
        bent(low)
        bent(high)
    return low, high


def _ranks(above: Tensor, at_top: Tensor) -> IntArray:
    """Ranks from 1; nothing is above a logit that is as high as the highest, and something is above any other."""
    ranks = torch.where(at_top, 1, (above + 1).clamp(min=2))
    return np.asarray(ranks.cpu().numpy())
