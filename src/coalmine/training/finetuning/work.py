"""A fine-tuning as a unit of work, and its result as plain arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coalmine.engines.units import Arrays, Run, Running, Unit
from coalmine.records.documents import sealed
from coalmine.training.data import TrainingText
from coalmine.training.finetuning.base_checkpoint import Base
from coalmine.training.finetuning.options import FinetuningOptions
from coalmine.training.finetuning.record import RECORD_FILE, fingerprint
from coalmine.training.private.card import with_card

# Tokens of the documents, as integers of 64 bits.
_BYTES_PER_CHARACTER = 16


class FinetuningWork(NamedTuple):
    """One fine-tuning; its text travels with the work, and the base is loaded from its directory."""

    directory: Path
    base: Base
    text: TrainingText
    options: FinetuningOptions
    name: str = "finetune/1"

    @property
    def facts(self) -> Any:
        """What the result depends on: the base and the data."""
        return [self.base.weights_sha256, self.text.sha256]

    @property
    def memory_bytes(self) -> int:
        """What a worker may hold: the text and its tokens."""
        return _BYTES_PER_CHARACTER * self.text.characters

    @property
    def fingerprint(self) -> str:
        """Equal to another's exactly when both should end with the same bytes."""
        return fingerprint(
            self.options, self.base, self.text.sha256, self.text.fields, self.text.validation_sha256
        )

    def unit(self) -> Unit:
        """The whole of it."""
        return Unit(self.fingerprint, size=self.text.characters * self.options.epochs)

    def prepare(self) -> Run:
        """The function that runs it."""
        return self._run

    def _run(self, unit: Unit, running: Running) -> Arrays:
        from coalmine.training.finetuning.private_run import PrivateFinetuning
        from coalmine.training.finetuning.run import FinetuningRun

        kind = PrivateFinetuning if self.options.private else FinetuningRun
        run = kind(
            self.directory,
            self.base,
            self.text,
            self.options,
            running,
            size=unit.size,
            fingerprint=self.fingerprint,
        )
        files, record = run.finish()
        contents = {**files, RECORD_FILE: sealed(with_card(record))}
        return {name: np.frombuffer(content, dtype=np.uint8) for name, content in contents.items()}
