"""Epochs of a private run: each of its steps is private, and all that are accounted for are made."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

from coalmine.engines.units import Arrays
from coalmine.errors import InputError
from coalmine.models.protocols import IntArray
from coalmine.training.epochs import EpochOptions, EpochRun
from coalmine.training.private.noise import TrainsPrivately, new_key
from coalmine.training.private.options import PrivateOptions
from coalmine.training.private.steps import DrawnUnits, PrivateSteps, ReadsUnits
from coalmine.training.private.units import rows_that_fit, units_of


class PrivateEpochOptions(TrainsPrivately, EpochOptions, Protocol):
    """What the loop has to know of the options of a private run."""

    @property
    def batch_size(self) -> int:
        """Units expected in a step."""


class PrivateEpochs(EpochRun):
    """What private runs of both trainers share; `_prepare` of a subclass calls `_account` and then `_begin`."""

    steps: PrivateSteps
    private: PrivateOptions
    # The documents of each unit.
    units: Sequence[IntArray]

    def _account(
        self,
        options: PrivateEpochOptions,
        documents: int,
        users: Sequence[str] | None,
        fingerprint: str,
    ) -> None:
        """Choose units and noise; `fingerprint` is of the data, so that other data have other noise."""
        if not isinstance(options.private, PrivateOptions):
            raise InputError(f"this {self.what} has no options of privacy; give dp_epsilon or dp_noise")
        self.private = options.private
        self.units = units_of(documents, users, self.private.unit)
        self.steps = PrivateSteps(
            self.private,
            new_key(options, fingerprint),
            units=len(self.units),
            batch_size=options.batch_size,
            epochs=options.epochs,
        )

    def _begin(self, reader: ReadsUnits, window: int) -> None:
        """Read units with `reader`, in windows of so many tokens, from what a stopped run kept if there is something."""
        rows = self.private.rows or rows_that_fit(window, self._vocabulary())
        self.steps.begin(self.network, reader, rows, self.running.kept())

    def _state(self) -> Arrays:
        return super()._state() | self.steps.state()

    def _batches(self) -> Sequence[DrawnUnits]:
        return self.steps.draws(self.position.epoch)

    def _learn(self, batch: DrawnUnits) -> float:
        """One step: the clipped gradients of the units that were drawn, if any, and noise."""
        loss = self.steps.make_gradients(batch, self.position.step)
        if loss is None:
            raise self._diverged("the norm of a gradient is not a number")
        self.optimizer.step()
        return self._checked_loss(loss, batch.tokens) if batch.tokens else 0.0

    def _should_stop(self) -> bool:
        return False

    def _share_done(self) -> Fraction:
        return Fraction(self.position.step, self.steps.number)
