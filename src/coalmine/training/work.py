"""Trainings as units of work: what one of them is made of, and what becomes of it, as plain arrays."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from coalmine.engines.sending import why_not_sent
from coalmine.engines.units import Arrays, Run, Running, Unit
from coalmine.models.protocols import IntArray
from coalmine.models.reference.checkpoint import ModelFiles
from coalmine.records.documents import sealed
from coalmine.storage.files import write_bytes
from coalmine.training.data import TrainingText, tokenized
from coalmine.training.options import TrainingOptions
from coalmine.training.private.card import CARD_FILE, card_of, with_card
from coalmine.training.record import (
    RECORD_FILE,
    TRAININGS,
    TrainingRecord,
    Watcher,
    fingerprint,
    read_training,
)

if TYPE_CHECKING:
    from coalmine.training.run import TrainingRun

# Tokens of the documents, and the rows of one epoch with their targets, as integers of 64 bits.
_BYTES_PER_CHARACTER = 32


class Member(NamedTuple):
    """One training of a family, or one alone; `label` tells them apart in notes on their progress."""

    options: TrainingOptions
    watch: Watcher | None
    label: str = ""
    # The places of the documents that it is trained on; None for all of them.
    part: IntArray | None = None
    # The places of those that a part is validated on; None for a share of the part, which is then not trained on.
    held_out: IntArray | None = None


class TrainingWork(NamedTuple):
    """Trainings on one corpus or on parts of it, whose text travels with the work, so that workers need no files."""

    text: TrainingText
    members: tuple[Member, ...]
    name: str = "train/2"

    @property
    def facts(self) -> Any:
        """What all of them depend on."""
        return self.text.sha256

    @property
    def memory_bytes(self) -> int:
        """What a worker may hold: the text and its tokens; the networks of the presets are smaller."""
        return _BYTES_PER_CHARACTER * self.text.characters

    @property
    def only_here(self) -> str | None:
        """Why the trainings cannot run in other processes: what watches them cannot be sent there."""
        for member in self.members:
            problem = why_not_sent(member.watch)
            if problem is not None:
                return f"what watches the training ({member.watch!r}) cannot be sent to other processes ({problem})"
        return None

    def fingerprint(self, place: int) -> str:
        """That of one training: equal to another's exactly when both should end with the same bytes."""
        watch = self.members[place].watch
        facts = None if watch is None else watch.describe()
        text = self._text(place)
        return fingerprint(
            self.members[place].options,
            text.sha256,
            facts,
            text.fields,
            text.validation_sha256,
            text.tokenizer_sha256,
        )

    def unit(self, place: int) -> Unit:
        """One training as a unit of work."""
        size = self._text(place).characters * self.members[place].options.epochs
        return Unit(self.fingerprint(place), payload=place, size=size)

    def prepare(self) -> Run:
        """The function that runs a training."""
        return self._run

    def _run(self, unit: Unit, running: Running) -> Arrays:
        began = time.perf_counter()
        options, watch, label, *_ = self.members[unit.payload]
        data = tokenized(self._text(unit.payload), options)
        run = _kind_of_run(options)(data, options, running, watch=watch, size=unit.size, label=label)
        files, record = run.finish()
        contents = {"weights": files.weights, "config": files.config, "record": sealed(with_card(record))}
        arrays = {name: np.frombuffer(content, dtype=np.uint8) for name, content in contents.items()}
        return {**arrays, "seconds": np.array(time.perf_counter() - began)}

    def _text(self, place: int) -> TrainingText:
        """What one of them is trained on."""
        member = self.members[place]
        return self.text if member.part is None else self.text.part(member.part, member.held_out)


def _kind_of_run(options: TrainingOptions) -> type[TrainingRun]:
    from coalmine.training.private.run import PrivateRun
    from coalmine.training.run import TrainingRun

    return PrivateRun if options.private else TrainingRun


def save_trained(arrays: Arrays, directory: Path) -> TrainingRecord:
    """Write the files of a training that was run as a unit."""
    weights, config, record = (arrays[name].tobytes() for name in ("weights", "config", "record"))
    ModelFiles(weights, config).write(directory)
    claim = msgspec.json.decode(record, type=TrainingRecord).privacy
    if claim is not msgspec.UNSET:
        write_bytes(directory / CARD_FILE, card_of(claim).encode(), mode=TRAININGS.mode)
    write_bytes(directory / RECORD_FILE, record, mode=TRAININGS.mode)
    return read_training(directory)
