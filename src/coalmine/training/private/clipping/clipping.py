"""The interface of clipping, and the choice between ghost clipping and a loop over units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn

from coalmine.errors import InputError
from coalmine.training.private.clipping.ghost import GhostClipping, rules_of
from coalmine.training.private.clipping.loop import LoopClipping
from coalmine.training.private.clipping.tape import UnfitError


class Clipping(Protocol):
    """A way to compute the sum of the units' gradients, each scaled down to a norm of at most `clip`.

    From "Deep Learning with Differential Privacy" (Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar and Zhang, 2016, arXiv:1607.00133).
    """

    @property
    def name(self) -> str:
        """Either "ghost" or "loop"; a ghost that meets something it does not know becomes a loop, and stays one."""

    @property
    def reason(self) -> str:
        """Why it is a loop, as words that can follow "because"; empty for ghost clipping."""

    @property
    def units_at_once(self) -> int | None:
        """The most units that a call should be given to be fast, or None where more units per call are faster."""

    def add_clipped(
        self,
        losses: Callable[[], Tensor],
        units: Tensor,
        number: int,
        clip: float,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Add the sum over units of min(1, clip / norm) times the unit's gradient to the `grad` of each trainable parameter.

        Afterwards each trainable parameter has a `grad`, even where there are no rows.

        Args:
            losses: runs the forward pass and gives the loss of each row, (rows,). No loss may depend on another row. What layers
                read must have the rows as its first dimension: ghost clipping becomes a loop where places without a loss are
                left out before a layer and not after it. It may be called twice, with the same state of the random generators.
            units: (rows,) which unit each row belongs to: from 0 to `number` - 1, in ascending order. The loss of a unit is the sum
                of the losses of its rows; a unit without rows has a gradient of 0.
            number: the number of units.
            clip: the largest norm that the gradient of a unit, over all trainable parameters, keeps.
            lengths: (rows,) how many places of each row come before its padding, whose losses are 0; recurrent layers then leave out
                the padding, which saves time. What they give there, and their states after it, must not matter.

        Returns:
            (number,) the norm of each unit's gradient before clipping. If one is not finite, neither is the sum.
        """


def clipping_for(network: nn.Module) -> Clipping:
    """The fastest way to clip the gradients of this network, given which of its parameters are trainable now."""
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise InputError("the network has no trainable parameters: unfreeze some of them, or add adapters")
    try:
        return GhostClipping(network, rules_of(network))
    except UnfitError as unfit:
        return LoopClipping(network, str(unfit))
