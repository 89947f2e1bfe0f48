"""Private training: a training run in which no unit can change a step by more than noise hides.

Each step draws units by coins (Poisson sampling), sums their clipped gradients, adds Gaussian noise, divides by the expected number of
units, and leaves the rest to the optimizer, which sees nothing else of the data. From "Deep Learning with Differential Privacy" (Abadi,
Chu, Goodfellow, McMahan, Mironov, Talwar and Zhang, 2016, arXiv:1607.00133).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple, overload

import msgspec
import numpy as np
from torch import Tensor

from coalmine.engines.units import Arrays
from coalmine.errors import InputError
from coalmine.models.protocols import IntArray
from coalmine.records.privacy import PrivacyClaim
from coalmine.training.private.accounting import epsilons, noise_for
from coalmine.training.private.card import not_covered
from coalmine.training.private.clipping.clipping import clipping_for
from coalmine.training.private.large_units import add_clipped_in_parts
from coalmine.training.private.noise import PrivateRandomness, new_key
from coalmine.training.private.options import PrivateOptions
from coalmine.training.private.refusals import check_delta, check_layers, check_resumed_noise
from coalmine.training.private.units import Rows, UnitReader, rows_that_fit, units_of
from coalmine.training.run import TrainingRun

_KEY_BYTES = 16


class DrawnUnits(NamedTuple):
    """The units of one step."""

    drawn: IntArray
    tokens: int


class PrivateRun(TrainingRun):
    """A training run whose steps are private; it runs for a fixed number of epochs and keeps the last weights."""

    def _prepare(self) -> None:
        if not isinstance(self.options.private, PrivateOptions):
            raise InputError("this training has no options of privacy; give dp_epsilon or dp_noise")
        self.private = self.options.private
        units = units_of(self.data, self.private.unit)
        check_delta(self.private.delta, len(units))
        self.units = len(units)
        self.rate = min(1.0, self.options.batch_size / self.units)
        self.steps_per_epoch = math.ceil(1 / self.rate)
        self.steps = self.steps_per_epoch * self.options.epochs
        self.noise = self._noise()
        self.chance = PrivateRandomness(new_key(self.options, self.data.sha256))
        super()._prepare()
        check_layers(self.network)
        self.clipping = clipping_for(self.network)
        self.reader = UnitReader(self.network, self.data, units, self.options)
        self.rows = self.private.rows or rows_that_fit(self.options.window, self.network.vocabulary)
        kept = self.running.kept()
        if kept is not None:
            self._resume(kept)

    def _noise(self) -> float:
        """The noise multiplier: as given, or what the epsilon needs."""
        if self.private.epsilon is None:
            return self.private.noise or 0.0
        return noise_for(self.private.epsilon, self.private.delta, self.rate, self.steps)

    def _resume(self, kept: Arrays) -> None:
        check_resumed_noise(float(kept["private/noise"]), self.noise)
        self.chance = PrivateRandomness(int.from_bytes(kept["private/key"].tobytes(), "big"))

    def _state(self) -> Arrays:
        key = np.frombuffer(self.chance.key.to_bytes(_KEY_BYTES, "big"), dtype=np.uint8)
        return super()._state() | {"private/key": key, "private/noise": np.array(self.noise)}

    def _batches(self) -> Sequence[DrawnUnits]:
        return _Draws(self, self.position.epoch * self.steps_per_epoch)

    def _learn(self, batch: DrawnUnits) -> float:
        """One step: the clipped gradients of the units that were drawn, if any, and noise."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = 0.0
        for rows in self.reader.passes(batch.drawn, self.rows, self.clipping.units_at_once):
            loss += self._add_clipped(rows)
        self.chance.add_noise(self.network, self.position.step, self.noise * self.private.clip)
        expected = self.rate * self.units
        for parameter in self.network.parameters():
            parameter.grad = (
                parameter.new_zeros(parameter.shape) if parameter.grad is None else parameter.grad / expected
            )
        self.optimizer.step()
        return self._checked_loss(loss, batch.tokens) if batch.tokens else 0.0

    def _add_clipped(self, rows: Rows) -> float:
        """Add the clipped gradients of the units of some rows; returns their loss in nats, summed over tokens."""
        seen: dict[int, float] = {}

        def losses(part: Rows, first: int = 0) -> Tensor:
            of_rows = self.reader.losses(part)
            seen[first] = float((of_rows.detach() / part.weights).sum())
            return of_rows

        if len(rows.units) <= self.rows:
            norms = self.clipping.add_clipped(
                lambda: losses(rows), rows.units, rows.number, self.private.clip
            )
        else:
            parts = (
                losses(self.reader.part(rows, first, first + self.rows), first)
                for first in range(0, len(rows.units), self.rows)
            )
            norms = add_clipped_in_parts(self.network, parts, self.private.clip)
        if not bool(norms.isfinite().all()):
            raise self._diverged("the norm of a gradient is not a number")
        return sum(seen.values())

    def _is_kept(self, validation: float | None, earlier: Sequence[float]) -> bool:
        del validation, earlier  # choosing by them would have to be accounted for
        return True

    def _should_stop(self) -> bool:
        return False

    def _share_done(self) -> Fraction:
        return Fraction(self.position.step, self.steps)

    def _claim(self) -> PrivacyClaim | msgspec.UnsetType:
        private = self.private
        found = epsilons(self.noise, self.rate, self.steps, private.delta)
        return PrivacyClaim(
            epsilon=found.best,
            delta=private.delta,
            accountant=found.accountant,
            rdp_epsilon=found.rdp,
            unit=private.unit,
            units=self.units,
            sampling_rate=self.rate,
            steps=self.steps,
            noise_multiplier=self.noise,
            clip=private.clip,
            noise_from="system" if private.seed is None else "seed",
            optimizer=self.options.optimizer,
            clipping=self.clipping.name,
            loop_reason=self.clipping.reason,
            not_covered=not_covered(self.data, private),
        )


class _Draws(Sequence[DrawnUnits]):
    """The units of each step of an epoch, drawn when they are asked for."""

    def __init__(self, run: PrivateRun, first: int) -> None:
        self._run, self._first = run, first

    def __len__(self) -> int:
        return self._run.steps_per_epoch

    @overload
    def __getitem__(self, place: int) -> DrawnUnits: ...
    @overload
    def __getitem__(self, place: slice) -> list[DrawnUnits]: ...
    def __getitem__(self, place: int | slice) -> DrawnUnits | list[DrawnUnits]:
        if isinstance(place, slice):
            return [self[each] for each in range(len(self))[place]]
        run = self._run
        drawn = run.chance.drawn(self._first + place, units=run.units, rate=run.rate)
        return DrawnUnits(drawn, run.reader.tokens(drawn))
