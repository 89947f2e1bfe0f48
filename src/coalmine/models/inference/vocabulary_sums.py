"""Sums over the vocabulary, block by block: what normalizes a softmax, and the mean and deviation of its log-probabilities."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from coalmine.models.inference.blocks import Block, Pass

# Logits this far below the highest of their block, in nats, have a probability of 0 in every precision; a token that cannot occur has -inf.
FAR_BELOW = -1e4


class Normalizer:
    """The log of the sum of exponentials of each row's logits, after they are divided by a temperature.

    What is kept of a block is its highest logit, and the log of its sum relative to that.
    """

    def __init__(self, passed: Pass, temperature: float = 1.0, tops: Tensor | None = None) -> None:
        """`tops` are the highest logits of each block and row, if someone else finds them."""
        shape = (passed.blocks, len(passed.hidden))
        self._temperature, self._fill = temperature, tops is None
        self._tops = passed.kept(shape) if tops is None else tops
        self._sums = passed.kept(shape)
        self._shifted: Tensor | None = None

    def add(self, block: Block, *, overwrite: bool) -> None:
        """Take in a block, in place of its logits if these are not needed any more."""
        number, rows, _, logits, _ = block
        tops = self._tops[number, rows]
        if self._fill:
            torch.amax(logits, dim=1, out=tops)
        shifted = logits if overwrite else self._scratch(logits)
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

    def _scratch(self, logits: Tensor) -> Tensor:
        if self._shifted is None:  # the first block is the largest
            self._shifted = torch.empty_like(logits).flatten()
        return self._shifted[: logits.numel()].view(logits.shape)


class Moments:
    """The normalizer of each row, and the mean and standard deviation of log p over the vocabulary, weighted by p.

    With x a token's logit minus the highest of its block, what is kept of a block are its sums of exp(x), x exp(x) and x² exp(x). Blocks
    are joined in double precision, relative to the highest logit of all.
    """

    def __init__(self, passed: Pass, tops: Tensor) -> None:
        """`tops` are the highest logits of each block and row, which someone else finds."""
        self._tops = tops
        self._sums = passed.kept((3, *tops.shape))
        self._buffers: tuple[Tensor, Tensor] | None = None

    def add(self, block: Block, *, overwrite: bool) -> None:
        """Take in a block, in place of its logits if these are not needed any more."""
        number, rows, _, logits, _ = block
        if self._buffers is None:  # the first block is the largest
            self._buffers = torch.empty_like(logits).flatten(), torch.empty_like(logits).flatten()
        spare, weights = (buffer[: logits.numel()].view(logits.shape) for buffer in self._buffers)
        tops = self._tops[number, rows]
        # A block with no token that can occur has weights of 0.
        tops = torch.where(tops == -math.inf, 0.0, tops)
        shifted = torch.sub(logits, tops[:, None], out=logits if overwrite else spare)
        shifted.clamp_(min=FAR_BELOW)
        torch.exp(shifted, out=weights)
        whole, first, second = self._sums[:, number, rows]
        torch.sum(weights, dim=1, out=whole)
        torch.sum(weights.mul_(shifted), dim=1, out=first)
        torch.sum(weights.mul_(shifted), dim=1, out=second)

    def log_above(self, highest: Tensor) -> Tensor:
        """The logs of the sums of exponentials, relative to the `highest` logit of each row, in double precision: 0 at least."""
        return self._joined(highest)[0].log().clamp(min=0.0)

    def mean_and_deviation(self, highest: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and the standard deviation of natural log-probabilities, in double precision."""
        whole, first, second = self._joined(highest)
        mean = first / whole
        return mean - whole.log(), (second / whole - mean**2).clamp(min=0.0).sqrt()

    def _joined(self, highest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The three sums over all blocks, of logits relative to `highest`."""
        shift = self._tops.double() - highest
        weight = shift.exp()
        shift = torch.where(self._tops == -math.inf, 0.0, shift)
        whole, first, second = self._sums.double() * weight
        second = second + 2 * shift * first + shift**2 * whole
        first = first + shift * whole
        return whole.sum(dim=0), first.sum(dim=0), second.sum(dim=0)
