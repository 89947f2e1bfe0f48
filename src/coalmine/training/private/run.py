"""Private training: a training run in which no unit can change a step by more than noise hides."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from coalmine.records.privacy import PrivacyClaim
from coalmine.training.private.card import not_covered
from coalmine.training.private.epochs import PrivateEpochs
from coalmine.training.private.units import UnitReader
from coalmine.training.record import RECORD_FILE
from coalmine.training.run import TrainingRun


class PrivateRun(PrivateEpochs, TrainingRun):
    """A training run whose steps are private; it runs for a fixed number of epochs and keeps the last weights."""

    def _prepare(self) -> None:
        options, data = self.options, self.data
        self._account(options, len(data.training), data.users, data.sha256)
        super()._prepare()
        self._begin(UnitReader(self.network, data, self.units, options), options.window)

    def _is_kept(self, validation: float | None, earlier: Sequence[float]) -> bool:
        del validation, earlier  # choosing by them would have to be accounted for
        return True

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
