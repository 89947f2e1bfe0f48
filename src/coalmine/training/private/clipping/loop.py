"""Clipping with one backward pass per unit: slow, right for every network, and what ghost clipping is tested against."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


class LoopClipping:
    """Clips one unit after the other. Each backward pass goes through all rows of a call, so it is fastest with one unit per call."""

    name = "loop"
    units_at_once = 1

    def __init__(self, network: nn.Module, reason: str) -> None:
        self._network, self.reason = network, reason

    def add_clipped(
        self,
        losses: Callable[[], Tensor],
        units: Tensor,
        number: int,
        clip: float,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Add the clipped sum to the gradients, and return the (number,) norms."""
        del lengths  # padding is read like the rest
        parameters = prepared(self._network)
        norms = exact(parameters[0]).new_zeros(number)
        if not len(units):
            return norms
        of_rows = losses()
        if not of_rows.requires_grad:  # no loss depends on the weights
            return norms
        for unit in sorted(set(units.tolist())):
            gradients = gradients_of(of_rows[units == unit].sum(), parameters)
            norms[unit] = torch.stack([exact(gradient).norm() for gradient in gradients]).norm()
            scale = kept(norms[unit], clip)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                add_gradient(parameter, gradient * scale)
        return norms


def prepared(network: nn.Module) -> list[nn.Parameter]:
    """The trainable parameters, each with a gradient."""
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return parameters


def add_gradient(parameter: nn.Parameter, amount: Tensor) -> None:
    """Add to the gradient of a parameter."""
    parameter.grad = amount if parameter.grad is None else parameter.grad.add_(amount)


def gradients_of(loss: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """The gradient of each parameter, zeros where the loss does not depend on it; the graph stays usable."""
    found = torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
    return list(found)


def exact(values: Tensor) -> Tensor:
    """The same in single precision if they are less exact: a norm of rounded squares is not a bound."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def kept(norms: Tensor, clip: float) -> Tensor:
    """The share of each gradient that clipping keeps.

    >>> kept(torch.tensor([0.0, 0.5, 4.0]), 1.0).tolist()
    [1.0, 1.0, 0.25]
    """
    return (clip / norms).clamp(max=1)
