"""Log-probability, argmax flag and rank of observed tokens, from logits."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coalmine.models.protocols import FloatArray, IntArray, SequenceScore


class TokenScores(NamedTuple):
    """The scores of many tokens; all arrays have the shape of the tokens."""

    log2_probabilities: FloatArray
    is_argmax: NDArray[np.bool_]
    ranks: IntArray | None

    def part(self, index: Any) -> SequenceScore:
        """The scores of one sequence, which NumPy finds at `index`."""
        ranks = None if self.ranks is None else self.ranks[index]
        return SequenceScore(self.log2_probabilities[index], self.is_argmax[index], ranks)


def precise(dtype: torch.dtype) -> torch.dtype:
    """The precision that sums over a vocabulary need: in half precision, a sum over fifty thousand tokens is off by whole percents."""
    return dtype if dtype in {torch.float32, torch.float64} else torch.float32


def log2_softmax(logits: Tensor) -> Tensor:
    """Log2 probabilities, in float32 at least."""
    return torch.log_softmax(logits.to(precise(logits.dtype)), dim=-1).mul_(1 / math.log(2))


def score_tokens(logits: Tensor, tokens: Tensor, *, ranks: bool) -> TokenScores:
    """Score each of (batch, time) tokens by its (batch, time, vocabulary) logits; ranks only on request."""
    log2 = log2_softmax(logits)  # (batch, time, vocabulary)
    own = log2.gather(2, tokens[:, :, None])  # (batch, time, 1)
    places = ((log2 > own).sum(dim=2) + 1).cpu().numpy() if ranks else None
    # The argmax of raw logits, as in generation: the softmax can round two different ones to equal ones.
    return TokenScores(own[:, :, 0].cpu().numpy(), (logits.argmax(dim=2) == tokens).cpu().numpy(), places)
