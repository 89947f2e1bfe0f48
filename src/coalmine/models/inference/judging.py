"""What logits say of the tokens that stand there."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coalmine.models.protocols import FloatArray, IntArray


class Judged(NamedTuple):
    """What a model says of tokens; all arrays have the shape of the tokens."""

    log2_probabilities: FloatArray
    is_argmax: NDArray[np.bool_]
    ranks: IntArray | None


def log2_softmax(logits: Tensor) -> Tensor:
    """Log2 probabilities, in float32 at least: in half precision a sum of fifty thousand is off by whole percents."""
    precise = logits if logits.dtype in {torch.float32, torch.float64} else logits.float()
    return torch.log_softmax(precise, dim=-1).mul(1 / math.log(2))


def judge(logits: Tensor, tokens: Tensor, *, ranks: bool) -> Judged:
    """Log2 probability, whether it is the argmax, and on request the rank, of each of (batch, time) tokens under its logits."""
    log2 = log2_softmax(logits)  # (batch, time, vocabulary)
    own = log2.gather(2, tokens[:, :, None])  # (batch, time, 1)
    places = ((log2 > own).sum(dim=2) + 1).cpu().numpy() if ranks else None
    # The argmax of raw logits, as generating takes it: the softmax can round two that differ to equal ones.
    return Judged(own[:, :, 0].cpu().numpy(), (logits.argmax(dim=2) == tokens).cpu().numpy(), places)
