"""Private fine-tuning: a fine-tuning whose steps are private, over whole documents or users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import msgspec
import numpy as np
import torch
from torch import Tensor

from coalmine.engines.units import Arrays
from coalmine.errors import InputError
from coalmine.models.protocols import IntArray
from coalmine.records.privacy import PrivacyClaim
from coalmine.training.finetuning.record import RECORD_FILE
from coalmine.training.finetuning.rows import WindowBatch, Windows, batch_of
from coalmine.training.finetuning.run import FinetuningRun
from coalmine.training.private.card import not_covered
from coalmine.training.private.noise import new_key
from coalmine.training.private.options import PrivateOptions
from coalmine.training.private.steps import DrawnUnits, PrivateSteps
from coalmine.training.private.units import Rows, UnitPasses, rows_that_fit, units_of
from coalmine.visible import visible


class WindowUnits(UnitPasses):
    """Units, each with the windows of all its documents; `losses_of` gives the losses of the windows of a batch in nats."""

    def __init__(
        self,
        windows: Windows,
        units: Sequence[IntArray],
        losses_of: Callable[[WindowBatch], Tensor],
        like: Tensor,
    ) -> None:
        """`like` has the device and the precision of the network."""
        self._windows, self._losses_of, self._like = windows, losses_of, like
        lengths = windows.lengths
        self._places = [windows.of_documents(documents) for documents in units]
        super().__init__(
            np.array([lengths[places].sum() for places in self._places]),
            np.array([len(places) for places in self._places]),
            np.array([lengths[places].max(initial=0) for places in self._places]),
        )

    def losses(self, rows: Rows) -> Tensor:
        """(rows,) the loss of each row in nats, divided by the number of tokens of its unit, so that a unit's is its mean."""
        read, positions = rows.read
        return self._losses_of(WindowBatch(read, positions, rows.expected, rows.tokens)) * rows.weights

    def _read_together(self, units: Sequence[int]) -> Rows:
        owners = np.repeat(np.arange(len(units)), [len(self._places[unit]) for unit in units])
        batch = batch_of(self._windows, np.concatenate([self._places[unit] for unit in units]))
        tokens = self._tokens[list(units)]
        return Rows(
            (batch.read, batch.positions),
            None,
            batch.expected,
            torch.from_numpy(owners).to(self._like.device),
            len(units),
            torch.from_numpy(1.0 / tokens[owners]).to(self._like),
            batch.tokens,
        )


class PrivateFinetuning(FinetuningRun):
    """A fine-tuning whose steps are private."""

    def _prepare(self) -> None:
        super()._prepare()
        options, windows = self.options, self.training
        if not isinstance(options.private, PrivateOptions):
            raise InputError("this fine-tuning has no options of privacy; give dp_epsilon or dp_noise")
        self.private = options.private
        units = units_of(self.documents, self.users, self.private.unit)
        self.steps = PrivateSteps(
            self.private,
            new_key(options, self.fingerprint),
            units=len(units),
            batch_size=options.batch_size,
            epochs=options.epochs,
        )
        like = next(self.network.parameters())
        reader = WindowUnits(windows, units, self._losses, like)
        rows = self.private.rows or rows_that_fit(self.length, self.tuned.reader.tokenizer.size)
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

    def _share_done(self) -> Fraction:
        return Fraction(self.position.step, self.steps.number)

    def _claim(self) -> PrivacyClaim | msgspec.UnsetType:
        held_out = self.text.held_out is None and bool(self.validation.tokens)
        limits = not_covered(
            self.private, record=RECORD_FILE, held_out=held_out, base=visible(self.base.name)
        )
        return self.steps.claim(self.options.optimizer, limits)
