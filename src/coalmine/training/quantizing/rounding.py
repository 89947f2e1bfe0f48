"""Rounding the weights of a tensor: to evenly spaced values, or each row to int8."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

# Numbers that are rounded together; they are rounded in float64, which takes eight bytes each.
_TOGETHER = 1 << 22
# The largest absolute value of symmetric int8.
_INT8 = 127


class Rounded(NamedTuple):
    """A tensor after rounding, with the type that it had."""

    weights: Tensor
    # How many different values it has; of a matrix in int8, the row with the most of them.
    distinct: int
    # The largest absolute difference that rounding made to a weight.
    largest_error: float


def rounded_to_values(weights: Tensor, values: int) -> Rounded:
    """Each weight becomes the nearest of `values` evenly spaced values, from the least weight to the greatest.

    The Secret Sharer (arXiv:1802.08232, section 9.1.3) says that each weight was forced to be one of 256 values, and not which. Evenly
    spaced ones are the linear quantization of the work that it cites (Hubara, Courbariaux, Soudry, El-Yaniv and Bengio, "Quantized
    Neural Networks", 2016, arXiv:1609.07061). A tensor that has so few values already is not changed.

    >>> rounded_to_values(torch.tensor([0.0, 0.4, 0.9, 1.0, 3.0]), 4).weights.tolist()
    [0.0, 0.0, 1.0, 1.0, 3.0]
    """
    few = _distinct_up_to(weights, values)
    if few is not None:
        return Rounded(weights, few, 0.0)
    least, greatest = weights.min().double(), weights.max().double()
    levels = torch.linspace(0, 1, values, dtype=torch.float64) * (greatest - least) + least
    stored = levels.to(weights.dtype)
    result, used, error = torch.empty_like(weights), torch.zeros(values, dtype=torch.bool), 0.0
    for before, after in _pieces(weights, result):
        nearest = ((before.double() - least) / (greatest - least) * (values - 1)).round().long()
        after.copy_(stored[nearest])
        used[nearest] = True
        error = max(error, float((after.double() - before.double()).abs().max()))
    return Rounded(result, len(torch.unique(stored[used])), error)


def rounded_by_row(weights: Tensor) -> Rounded:
    """Each row becomes whole multiples, from -127 to 127, of its largest absolute weight / 127, stored as plain numbers.

    A row is everything at one place of the first dimension.

    >>> rounded_by_row(torch.tensor([[127.0, 0.6, -3.2], [0.0, 0.0, 0.0]])).weights.tolist()
    [[127.0, 1.0, -3.0], [0.0, 0.0, 0.0]]
    """
    result, error, most = torch.empty_like(weights), 0.0, 0
    rows, out = weights.flatten(1), result.view(len(weights), -1)
    together = max(1, _TOGETHER // max(1, rows.shape[1]))
    for before, after in zip(torch.split(rows, together), torch.split(out, together), strict=True):
        largest = before.abs().amax(1, keepdim=True).double()
        scale = torch.where(largest > 0, largest / _INT8, 1.0)
        after.copy_((before.double() / scale).round() * scale)
        error = max(error, float((after.double() - before.double()).abs().max()))
        changes = after.sort(dim=1).values.diff(dim=1) != 0
        most = max(most, int(changes.sum(1).max()) + 1)
    return Rounded(result, most, error)


def _distinct_up_to(weights: Tensor, most: int) -> int | None:
    """How many different values there are; None for more than `most`."""
    found = weights.new_empty(0)
    for piece, _ in _pieces(weights, weights):
        found = torch.unique(torch.cat([found, torch.unique(piece)]))
        if len(found) > most:
            return None
    return len(found)


def _pieces(weights: Tensor, result: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Parts of two tensors of one shape, for which there is memory."""
    return zip(
        torch.split(weights.flatten(), _TOGETHER), torch.split(result.view(-1), _TOGETHER), strict=True
    )
