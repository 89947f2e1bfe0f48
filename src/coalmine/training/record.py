"""The record of a training: what decided it, how it went, and what a watcher saw; training.json beside the weights."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Protocol

import msgspec

from coalmine.errors import InputError
from coalmine.files import read_bytes, to_json
from coalmine.models.protocols import Scorer
from coalmine.training.options import TrainingOptions

RECORD_FILE = "training.json"
SCHEMA = "coalmine.training/1"


class Watcher(Protocol):
    """Something that looks at the model while it is trained, such as `coalmine.ExposureWatch`."""

    every: int

    def measure(self, model: Scorer) -> list[dict[str, Any]]:
        """What it sees now, as plain JSON; must leave the model and torch's generator as they were."""

    def describe(self) -> dict[str, Any]:
        """What it looks at, so that a run with another watch is not taken for the same run."""


class EpochRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How an epoch went; losses are in bits a token."""

    epoch: int
    steps: int
    training_loss_bits: float
    validation_loss_bits: float | None


class WatchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a watcher saw after some number of batches in all."""

    step: int
    epoch: int
    seen: list[dict[str, Any]]


class TrainingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How a model came to be; stands beside its weights as training.json."""

    schema: str = SCHEMA
    options: TrainingOptions
    data_sha256: str
    # Which fields of the data were read, where they are not the default, and the hash of a validation corpus, if there was one.
    fields: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    validation_sha256: str | msgspec.UnsetType = msgspec.UNSET
    documents: int
    tokens: int
    parameters: int
    epochs: list[EpochRecord]
    # The epoch whose weights were kept: the one with the least validation loss, or the last where there was no validation.
    best_epoch: int
    stopped_early: bool
    watch: dict[str, Any] | None = None
    watched: list[WatchRecord] = msgspec.field(default_factory=list)


def read_record(directory: Path) -> TrainingRecord:
    """The training.json of a model."""
    path = directory / RECORD_FILE
    try:
        return msgspec.json.decode(read_bytes(path, "the record of a training"), type=TrainingRecord)
    except msgspec.DecodeError as problem:
        raise InputError(f"{path} is damaged ({problem}); train the model again") from None


def fingerprint(
    options: TrainingOptions,
    data_sha256: str,
    watch: dict[str, Any] | None,
    fields: dict[str, str] | msgspec.UnsetType = msgspec.UNSET,
    validation_sha256: str | msgspec.UnsetType = msgspec.UNSET,
) -> str:
    """Equal for two runs exactly when they should end with the same bytes."""
    further = [given for given in (fields, validation_sha256) if given is not msgspec.UNSET]
    return hashlib.sha256(to_json([options, data_sha256, watch, *further])).hexdigest()
