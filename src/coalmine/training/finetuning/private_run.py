"""Private fine-tuning: a fine-tuning whose steps are private, over whole documents or users."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import torch
from torch import Tensor

from coalmine.models.protocols import IntArray
from coalmine.records.privacy import PrivacyClaim
from coalmine.training.finetuning.record import RECORD_FILE
from coalmine.training.finetuning.rows import WindowBatch, Windows, batch_of
from coalmine.training.finetuning.run import FinetuningRun
from coalmine.training.private.card import not_covered
from coalmine.training.private.epochs import PrivateEpochs
from coalmine.training.private.units import Rows, UnitPasses
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


class PrivateFinetuning(PrivateEpochs, FinetuningRun):
    """A fine-tuning whose steps are private."""

    def _prepare(self) -> None:
        super()._prepare()
        self._account(self.options, self.documents, self.users, self.fingerprint)
        like = next(self.network.parameters())
        self._begin(WindowUnits(self.training, self.units, self._losses, like), self.length)

    def _claim(self) -> PrivacyClaim | msgspec.UnsetType:
        held_out = self.text.held_out is None and bool(self.validation.tokens)
        limits = not_covered(
            self.private, record=RECORD_FILE, held_out=held_out, base=visible(self.base.name)
        )
        return self.steps.claim(self.options.optimizer, limits)
