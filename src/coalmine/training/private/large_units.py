"""Units with more windows than a forward pass may have: their gradient is summed over several passes, and clipped as a whole."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from coalmine.training.private.clipping.loop import add_gradient, exact, kept, prepared


def add_clipped_in_parts(network: nn.Module, losses: Iterable[Tensor], clip: float) -> Tensor:
    """Add the clipped gradient of one unit to those of the network, given the losses of its rows part by part; returns its norm.

    Only one part is in memory at a time, if `losses` computes each when it is asked for it.
    """
    parameters = prepared(network)
    before = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    for part in losses:
        part.sum().backward()  # type: ignore[no-untyped-call]  # torch leaves this one without types
    found = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
    norm: Tensor = torch.stack([exact(gradient).norm() for gradient in found]).norm()
    for parameter, gradient, earlier in zip(parameters, found, before, strict=True):
        parameter.grad = earlier
        add_gradient(parameter, gradient * kept(norm, clip))
    return norm
