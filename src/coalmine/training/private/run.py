"""Private training: a training run in which no unit can change a step by more than noise hides."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import msgspec

from coalmine.engines.units import Arrays
from coalmine.errors import InputError
from coalmine.records.privacy import PrivacyClaim
from coalmine.training.private.card import not_covered
from coalmine.training.private.noise import new_key
from coalmine.training.private.options import PrivateOptions
from coalmine.training.private.steps import DrawnUnits, PrivateSteps
from coalmine.training.private.units import UnitReader, rows_that_fit, units_of
from coalmine.training.record import RECORD_FILE
from coalmine.training.run import TrainingRun


class PrivateRun(TrainingRun):
    """A training run whose steps are private; it runs for a fixed number of epochs and keeps the last weights."""

    def _prepare(self) -> None:
        options, data = self.options, self.data
        if not isinstance(options.private, PrivateOptions):
            raise InputError("this training has no options of privacy; give dp_epsilon or dp_noise")
        self.private = options.private
        units = units_of(len(data.training), data.users, self.private.unit)
        self.steps = PrivateSteps(
            self.private,
            new_key(options, data.sha256),
            units=len(units),
            batch_size=options.batch_size,
            epochs=options.epochs,
        )
        super()._prepare()
        reader = UnitReader(self.network, data, units, options)
        rows = self.private.rows or rows_that_fit(options.window, self.network.vocabulary)
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

    def _is_kept(self, validation: float | None, earlier: Sequence[float]) -> bool:
        del validation, earlier  # choosing by them would have to be accounted for
        return True

    def _should_stop(self) -> bool:
        return False

    def _share_done(self) -> Fraction:
        return Fraction(self.position.step, self.steps.number)

    def _claim(self) -> PrivacyClaim | msgspec.UnsetType:
        kind = self.data.tokenizer.kind
        vocabulary = (
            f"The vocabulary was made from the text without noise: it shows which {kind} occur in it."
        )
        if self.data.tokenizer_sha256 is not msgspec.UNSET:
            vocabulary = (
                "The vocabulary was given, and nothing is claimed about the text that it was made from."
            )
        held_out = bool(self.data.validation) and self.data.validation_sha256 is msgspec.UNSET
        limits = not_covered(self.private, record=RECORD_FILE, held_out=held_out, vocabulary=vocabulary)
        return self.steps.claim(self.options.optimizer, limits)
