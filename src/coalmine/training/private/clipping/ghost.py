"""Ghost clipping: norms of per-unit gradients, and their clipped sum, from one backward pass over all units."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from coalmine.training.private.clipping.checking import RandomState, check, random_state, set_random_state
from coalmine.training.private.clipping.factors import Gradient, gradients_on
from coalmine.training.private.clipping.layers.rules import LayerRule, rule_of
from coalmine.training.private.clipping.loop import LoopClipping, exact, kept, prepared
from coalmine.training.private.clipping.tape import Tape, UnfitError
from coalmine.training.private.clipping.units import UnitRows


class GhostClipping:
    """Clips all units at once: in one backward pass, layers record the factors of their gradients and no sums over rows.

    It keeps what layers read and the gradients of what they give until the pass is over, which takes up to twice the memory of a
    plain pass, and at most `KEPT` numbers besides. The first pass, and the first over several units, is checked against autograd,
    for which a plain pass is in memory too. If they disagree, or if a pass is not what the rules of the layers expect, a loop takes
    over for good, and `reason` says why.
    """

    def __init__(self, network: nn.Module, rules: dict[nn.Module, LayerRule]) -> None:
        self._network, self._rules = network, rules
        self._loop: LoopClipping | None = None
        self._checked = 0  # how many units a pass had that was checked, up to 2

    @property
    def name(self) -> str:
        """Either "ghost" or, once it met something that it does not know, "loop"."""
        return "ghost" if self._loop is None else self._loop.name

    @property
    def reason(self) -> str:
        """Why it became a loop."""
        return "" if self._loop is None else self._loop.reason

    @property
    def units_at_once(self) -> int | None:
        """Any number, as long as it is not a loop."""
        return None if self._loop is None else self._loop.units_at_once

    def add_clipped(
        self,
        losses: Callable[[], Tensor],
        units: Tensor,
        number: int,
        clip: float,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Add the clipped sum to the gradients, and return the (number,) norms."""
        if self._loop is not None:
            return self._loop.add_clipped(losses, units, number, clip)
        parameters = prepared(self._network)
        if not len(units):
            return exact(parameters[0]).new_zeros(number)
        before = random_state()
        try:
            return self._add_clipped(losses, UnitRows(units, number), lengths, clip, before)
        except UnfitError as unfit:
            # Nothing has been added yet, and the forward pass begins again with the same random numbers.
            set_random_state(before)
            self._loop = LoopClipping(self._network, str(unfit))
            return self._loop.add_clipped(losses, units, number, clip)

    def _add_clipped(
        self,
        losses: Callable[[], Tensor],
        rows: UnitRows,
        lengths: Tensor | None,
        clip: float,
        before: RandomState,
    ) -> Tensor:
        found = self._backward(losses, rows, lengths)
        squares = [gradient.squares() for gradient in found]
        if not squares:  # no loss depends on the weights
            return exact(next(self._network.parameters())).new_zeros(rows.number)
        norms = torch.stack([each.to(squares[0]) for each in squares]).sum(0).sqrt()
        scales = kept(norms, clip)
        several = 1 if rows.units[0] == rows.units[-1] else 2
        if several > self._checked:
            after = random_state()
            set_random_state(before)
            check(self._network, found, squares, scales, losses(), rows)
            set_random_state(after)
            self._checked = several
        for gradient in found:
            gradient.add_scaled(scales)
        return norms

    def _backward(
        self, losses: Callable[[], Tensor], rows: UnitRows, lengths: Tensor | None
    ) -> list[Gradient]:
        tape = Tape(len(rows.units), lengths)
        named = {name: each for name, each in self._network.named_parameters() if each.requires_grad}
        with self._recording(tape):
            of_rows = losses()
            if not of_rows.requires_grad:
                return []
            reached = torch.autograd.grad(of_rows.sum(), list(named.values()), allow_unused=True)
        outside = [name for name, gradient in zip(named, reached, strict=True) if gradient is not None]
        if outside:
            raise UnfitError(f"{outside[0]} is used outside of its layer")
        return list(gradients_on(tape, rows))

    @contextlib.contextmanager
    def _recording(self, tape: Tape) -> Iterator[None]:
        """While this lasts, layers record onto the tape."""
        try:
            for layer, rule in self._rules.items():
                layer.forward = _recorder(layer, rule, tape)
            yield
        finally:
            for layer in self._rules:
                vars(layer).pop("forward", None)


def rules_of(network: nn.Module) -> dict[nn.Module, LayerRule]:
    """The rule of each layer with weights that are trained now; raises UnfitError at the first layer without one."""
    rules = {}
    for name, layer in network.named_modules():
        if any(weight.requires_grad for weight in layer.parameters(recurse=False)):
            rule = rule_of(layer)
            if isinstance(rule, str):
                raise UnfitError(f"{rule} ({name})" if name else rule)
            rules[layer] = rule
    return rules


def _recorder(layer: nn.Module, rule: LayerRule, tape: Tape) -> Callable[..., Any]:
    def forward(*given: Any, **named: Any) -> Any:
        return rule.forward(layer, tape, *given, *named.values())

    return forward
