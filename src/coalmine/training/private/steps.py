"""Private steps: which units each draws, how their gradients become one update, and what is claimed about all of them.

Each step draws units by coins (Poisson sampling), sums their clipped gradients, adds Gaussian noise, divides by the expected number of
units, and leaves the rest to the optimizer, which sees nothing else of the data. From "Deep Learning with Differential Privacy" (Abadi,
Chu, Goodfellow, McMahan, Mironov, Talwar and Zhang, 2016, arXiv:1607.00133).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, overload

import numpy as np
from torch import Tensor, nn

from coalmine.engines.units import Arrays
from coalmine.models.protocols import IntArray
from coalmine.records.privacy import PrivacyClaim
from coalmine.training.private.accounting import Epsilons, epsilons, noise_for
from coalmine.training.private.clipping.clipping import clipping_for
from coalmine.training.private.large_units import add_clipped_in_parts
from coalmine.training.private.noise import PrivateRandomness
from coalmine.training.private.options import PrivateOptions
from coalmine.training.private.refusals import check_delta, check_layers, check_resumed_noise
from coalmine.training.private.units import Rows

_KEY_BYTES = 16


class DrawnUnits(NamedTuple):
    """The units of one step."""

    drawn: IntArray
    tokens: int


class ReadsUnits(Protocol):
    """Reads units in forward passes, such as `UnitReader`."""

    def tokens(self, drawn: IntArray) -> int:
        """How many tokens of the drawn units have a loss."""

    def passes(self, drawn: IntArray, most_rows: int, most_units: int | None) -> Iterator[Rows]:
        """The drawn units in passes of at most so many rows; a unit with more has a pass of its own."""

    def part(self, rows: Rows, begin: int, end: int) -> Rows:
        """Some of the rows of one unit."""

    def losses(self, rows: Rows) -> Tensor:
        """(rows,) the loss of each row in nats, divided by the number of tokens of its unit."""


class PrivateSteps:
    """The private steps of one training of a network; `key` is what its noise and its draws are made from.

    `most_rows` are read in one forward pass.
    """

    def __init__(
        self, private: PrivateOptions, key: int, *, units: int, batch_size: int, epochs: int
    ) -> None:
        check_delta(private.delta, units)
        self._private, self.units = private, units
        self.rate = min(1.0, batch_size / units)
        self.in_epoch = -(-units // batch_size)  # 1 / rate is rounded, and may be just above a whole number
        self.number = self.in_epoch * epochs
        self.chance = PrivateRandomness(key)

    def begin(self, network: nn.Module, reader: ReadsUnits, most_rows: int, kept: Arrays | None) -> None:
        """Train this network, from what a stopped run kept if there is something."""
        check_layers(network)
        self._network, self._reader, self._rows = network, reader, most_rows
        self._clipping = clipping_for(network)
        if kept is None:
            self.noise = self._noise_multiplier()
        else:
            # Taken over: an epsilon that it still gives is checked by one look, and calibrating again would take many.
            self.noise = float(kept["private/noise"])
            check_resumed_noise(self.noise, self._private, self._epsilons().best)
            self.chance = PrivateRandomness(int.from_bytes(kept["private/key"].tobytes(), "big"))

    def state(self) -> Arrays:
        """What a stopped run has to keep."""
        key = np.frombuffer(self.chance.key.to_bytes(_KEY_BYTES, "big"), dtype=np.uint8)
        return {"private/key": key, "private/noise": np.array(self.noise)}

    def draws(self, epoch: int) -> Sequence[DrawnUnits]:
        """The units of each step of an epoch, from 0, drawn when they are asked for."""
        return _Draws(self, self._reader, epoch * self.in_epoch)

    def make_gradients(self, batch: DrawnUnits, step: int) -> float | None:
        """Give each trainable parameter the gradient of a step: clipped, noisy and divided.

        Returns the loss in nats, summed over the tokens of the drawn units; None if the gradient of one is not finite.
        """
        for parameter in self._network.parameters():
            parameter.grad = None
        loss: float | None = 0.0
        for rows in self._reader.passes(batch.drawn, self._rows, self._clipping.units_at_once):
            of_rows = self._add_clipped(rows)
            loss = None if loss is None or of_rows is None else loss + of_rows
        self.chance.add_noise(self._network, step, self.noise * self._private.clip)
        for parameter in self._network.parameters():
            if parameter.requires_grad:
                made = parameter.new_zeros(parameter.shape) if parameter.grad is None else parameter.grad
                parameter.grad = made / (self.rate * self.units)
        return loss

    def claim(self, optimizer: str, not_covered: tuple[str, ...]) -> PrivacyClaim:
        """What may be said once all steps were made."""
        private = self._private
        found = self._epsilons()
        return PrivacyClaim(
            epsilon=found.claimed,
            delta=private.delta,
            accountant=found.accountant,
            rdp_epsilon=found.rdp,
            unit=private.unit,
            units=self.units,
            sampling_rate=self.rate,
            steps=self.number,
            noise_multiplier=self.noise,
            clip=private.clip,
            noise_from="system" if private.seed is None else "seed",
            optimizer=optimizer,
            clipping=self._clipping.name,
            loop_reason=self._clipping.reason,
            not_covered=not_covered,
        )

    def _noise_multiplier(self) -> float:
        """As given, or what the epsilon needs."""
        if self._private.epsilon is None:
            return self._private.noise or 0.0
        return noise_for(self._private.epsilon, self._private.delta, self.rate, self.number)

    def _epsilons(self) -> Epsilons:
        return epsilons(self.noise, self.rate, self.number, self._private.delta)

    def _add_clipped(self, rows: Rows) -> float | None:
        """Add the clipped gradients of the units of some rows; returns their loss in nats, if they are finite."""
        seen: dict[int, float] = {}

        def losses(part: Rows, first: int = 0) -> Tensor:
            of_rows = self._reader.losses(part)
            seen[first] = float((of_rows.detach() / part.weights).sum())
            return of_rows

        clip = self._private.clip
        if len(rows.units) <= self._rows:
            norms = self._clipping.add_clipped(
                lambda: losses(rows), rows.units, rows.number, clip, rows.lengths
            )
        else:
            parts = (
                losses(self._reader.part(rows, first, first + self._rows), first)
                for first in range(0, len(rows.units), self._rows)
            )
            norms = add_clipped_in_parts(self._network, parts, clip)
        return sum(seen.values()) if bool(norms.isfinite().all()) else None


class _Draws(Sequence[DrawnUnits]):
    """The units of each step of an epoch."""

    def __init__(self, steps: PrivateSteps, reader: ReadsUnits, first: int) -> None:
        self._steps, self._reader, self._first = steps, reader, first

    def __len__(self) -> int:
        return self._steps.in_epoch

    @overload
    def __getitem__(self, place: int) -> DrawnUnits: ...
    @overload
    def __getitem__(self, place: slice) -> list[DrawnUnits]: ...
    def __getitem__(self, place: int | slice) -> DrawnUnits | list[DrawnUnits]:
        if isinstance(place, slice):
            return [self[each] for each in range(len(self))[place]]
        steps = self._steps
        drawn = steps.chance.drawn(self._first + place, units=steps.units, rate=steps.rate)
        return DrawnUnits(drawn, self._reader.tokens(drawn))
