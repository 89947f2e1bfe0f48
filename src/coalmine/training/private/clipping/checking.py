"""The check of ghost clipping against autograd, on the pass that it is first used for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from coalmine.training.private.clipping.factors import Gradient
from coalmine.training.private.clipping.loop import gradients_of
from coalmine.training.private.clipping.tape import UnfitError
from coalmine.training.private.clipping.units import UnitRows

# How far norms and sums may be from those of autograd, relative to their size, and for a weight with a small gradient relative to a
# tenth of the whole gradient.
TOLERANCES = {torch.float64: 1e-6, torch.float32: 2e-3}
TOLERANCE_OF_HALVES = 0.1
SMALL = 0.1
# How many units have their norms checked, one backward pass each.
CHECKED = 3


class RandomState(NamedTuple):
    """The state of torch's global generators."""

    cpu: Tensor
    cuda: list[Tensor]


def random_state() -> RandomState:
    """Where the generators are now."""
    return RandomState(
        torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    )


def set_random_state(state: RandomState) -> None:
    """Back to where they were, so that dropout leaves out the same again."""
    torch.set_rng_state(state.cpu)
    if state.cuda:
        torch.cuda.set_rng_state_all(state.cuda)


def check(
    network: nn.Module,
    found: Sequence[Gradient],
    squares: Sequence[Tensor],
    scales: Tensor,
    losses: Tensor,
    rows: UnitRows,
) -> None:
    """Raise UnfitError if norms or the clipped sum are not those of autograd.

    Args:
        network: the network, with gradients that are left as they are.
        found: the gradients.
        squares: the squared norms of each of these, (units,) each.
        scales: (units,) what clipping keeps of each unit.
        losses: (rows,) the losses of the same pass without recording.
        rows: which rows belong to which unit.
    """
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    for unit in _some(rows.units):
        alone = dict(zip(parameters, gradients_of(losses[rows.units == unit].sum(), parameters), strict=True))
        wanted = [_norm([alone[weight] for weight in gradient.weights]) for gradient in found]
        _compare(
            [square[unit].sqrt() for square in squares], wanted, _norm(list(alone.values())), losses.dtype
        )
    held = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    for gradient in found:
        gradient.add_scaled(scales)
    sums = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
    for parameter, gradient_before in zip(parameters, held, strict=True):
        parameter.grad = gradient_before
    expected = gradients_of((losses * scales[rows.units].to(losses)).sum(), parameters)
    apart = [_norm([one - other]) for one, other in zip(sums, expected, strict=True)]
    sizes = [_norm([each]) for each in expected]
    _compare(
        [size + far for size, far in zip(sizes, apart, strict=True)], sizes, _norm(expected), losses.dtype
    )


def _some(units: Tensor) -> list[int]:
    distinct = sorted(set(units.tolist()))
    return sorted({distinct[place * (len(distinct) - 1) // (CHECKED - 1)] for place in range(CHECKED)})


def _norm(parts: Sequence[Tensor]) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(
        torch.stack([torch.linalg.vector_norm(part.double()) for part in parts])
    )
    return found


def _compare(found: Sequence[Tensor], wanted: Sequence[Tensor], whole: Tensor, kind: torch.dtype) -> None:
    """Raise UnfitError unless each number is as wanted, up to rounding."""
    tolerance = TOLERANCES.get(kind, TOLERANCE_OF_HALVES)
    for one, other in zip(found, wanted, strict=True):
        alike = (one.double() - other).abs() <= tolerance * torch.maximum(other, SMALL * whole)
        # A gradient that is not finite is the caller's to notice.
        if other.isfinite() and not alike:
            raise UnfitError("its gradients are not those of autograd for this network")
