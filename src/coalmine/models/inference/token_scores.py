"""Log-probability, argmax flag, rank and moments of the distribution of observed tokens: of many, and of each sequence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coalmine.errors import NoNumberError
from coalmine.models.protocols import DistributionScore, FloatArray, IntArray, SequenceScore


class Wanted(NamedTuple):
    """What is asked of the distribution at each position, besides the log-probability of a token.

    `kept` has a row of ones and zeros for each ablation: hidden numbers are multiplied by it before the last layer reads them.
    """

    ranks: bool = False
    moments: bool = False
    kept: Tensor | None = None  # (ablations, width)


def check_numbers(finite: bool) -> None:
    """Refuse what a model gave, unless it is `finite`: anything else hides a failure."""
    if not finite:
        raise NoNumberError(
            "the model gave values that are not numbers; nothing can be concluded from it: check the weights, or use float32"
        )


class TokenScores(NamedTuple):
    """The scores of many tokens; all arrays have the shape of the tokens, and what was not asked for is None."""

    log2_probabilities: FloatArray
    is_argmax: NDArray[np.bool_]
    ranks: IntArray | None = None
    mean_bits: FloatArray | None = None
    deviation_bits: FloatArray | None = None
    predicted: NDArray[np.bool_] | None = None  # (tokens, ablations)

    @classmethod
    def of_none(cls, asked: Wanted) -> TokenScores:
        """The scores of no token."""
        number = np.empty(0)
        moments = number if asked.moments else None
        ranks = np.empty(0, np.int64) if asked.ranks else None
        predicted = None if asked.kept is None else np.empty((0, len(asked.kept)), bool)
        return cls(number, np.empty(0, bool), ranks, moments, moments, predicted)

    def part(self, index: Any) -> TokenScores:
        """The scores of some tokens, which NumPy finds at `index`."""
        parts: Iterator[Any] = (None if array is None else array[index] for array in self)
        return TokenScores(*parts)

    def followed_by(self, *others: TokenScores) -> TokenScores:
        """These scores and those of others, one after the other."""
        columns = zip(self, *others, strict=True)
        joined: Iterator[Any] = (None if parts[0] is None else np.concatenate(parts) for parts in columns)
        return TokenScores(*joined)

    def sequence(self) -> SequenceScore:
        """As a Scorer gives them."""
        return SequenceScore(self.log2_probabilities, self.is_argmax, self.ranks)

    def ablated(self) -> NDArray[np.bool_]:
        """(ablations, tokens): whether each token is the argmax; ablations must have been asked for."""
        if self.predicted is None:
            raise TypeError("ablations were not asked for")
        return self.predicted.T

    def distribution(self) -> DistributionScore:
        """As a DistributionScorer gives them; ranks and moments must have been asked for."""
        if self.ranks is None or self.mean_bits is None or self.deviation_bits is None:
            raise TypeError("ranks and moments were not asked for")
        return DistributionScore(
            self.log2_probabilities, self.is_argmax, self.ranks, self.mean_bits, self.deviation_bits
        )


def precise(dtype: torch.dtype) -> torch.dtype:
    """The precision that sums over a vocabulary need: in half precision, a sum over fifty thousand tokens is off by whole percents."""
    return dtype if dtype in {torch.float32, torch.float64} else torch.float32


def log2_softmax(logits: Tensor) -> Tensor:
    """Log2 probabilities, in float32 at least."""
    return torch.log_softmax(logits.to(precise(logits.dtype)), dim=-1).mul_(1 / math.log(2))
