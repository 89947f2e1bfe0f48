"""Records of training runs: what decided them, how they went, and what a watcher measured (training.json)."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Protocol

import msgspec

from coalmine.engines.ledger import UNITS_FILE
from coalmine.models.protocols import Scorer
from coalmine.models.reference.checkpoint import (
    CONFIG_FILE,
    TRAINING_FILE,
    TRAINING_SCHEMA,
    WEIGHTS_FILE,
    TrainedFiles,
)
from coalmine.records.documents import Document, Origin
from coalmine.records.estimate import Bits, Count, Positive
from coalmine.records.watching import Moment, manifests_of_watch, said_of_canaries
from coalmine.storage.files import PUBLIC, to_json
from coalmine.training.options import TrainingOptions
from coalmine.training.private.card import written_card

RECORD_FILE = TRAINING_FILE
SCHEMA = TRAINING_SCHEMA


class Watcher(Protocol):
    """Something that measures the model while it is trained, such as `coalmine.ExposureWatch`."""

    @property
    def every(self) -> int:
        """Batches between two measurements."""

    def measure(self, model: Scorer) -> list[dict[str, Any]]:
        """What it measures now, as plain JSON; must leave the model and torch's generator as they were."""

    def describe(self) -> dict[str, Any]:
        """What it measures, so that a run with another watch is not taken for the same run."""


class EpochRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How an epoch went; losses are in bits per token."""

    epoch: Positive
    steps: Positive
    # None where private training drew no unit in a whole epoch.
    training_loss_bits: Bits | None
    validation_loss_bits: Bits | None


class TrainingRecord(TrainedFiles, frozen=True, kw_only=True):
    """How a model was trained; training.json beside its weights, with their checksums."""

    options: TrainingOptions
    # Which fields of the data were read, where they are not the default, and the hash of a validation corpus, if there was one.
    fields: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    validation_sha256: str | msgspec.UnsetType = msgspec.UNSET
    # Of a tokenizer that was given, and not made from the data.
    tokenizer_sha256: str | msgspec.UnsetType = msgspec.UNSET
    documents: Positive
    tokens: Positive
    parameters: Count
    epochs: list[EpochRecord]
    # The epoch whose weights were kept: the one with the least validation loss, or the last where there was no validation or the
    # training was private.
    best_epoch: Positive
    stopped_early: bool
    watch: dict[str, Any] | None = None
    watched: list[Moment] = msgspec.field(default_factory=list)


TRAININGS = Document(
    record=TrainingRecord,
    schema=SCHEMA,
    file=RECORD_FILE,
    title="training",
    by="`coalmine train`",
    others={
        UNITS_FILE: "a training that is not finished; its state, and until it ends the key of its noise, is in `unfinished-*.npz`"
    },
    mode=PUBLIC,
    name_is_common=True,
    companions=lambda record: {
        WEIGHTS_FILE: record.weights_sha256,
        CONFIG_FILE: record.config_sha256,
        **written_card(record),
    },
    verifies_companions=False,
    origin=Origin(
        manifests=lambda record: manifests_of_watch(record.watch),
        canaries=lambda record: said_of_canaries(record.watched),
        is_measurement=False,
    ),
)


def read_training(path: str | os.PathLike[str]) -> TrainingRecord:
    """A training.json, or the one in a model's directory; the weights are verified when the model is loaded."""
    place = Path(path)
    return TRAININGS.alone(place / RECORD_FILE if place.is_dir() else place)


def fingerprint(
    options: TrainingOptions,
    data_sha256: str,
    watch: dict[str, Any] | None,
    fields: dict[str, str] | msgspec.UnsetType = msgspec.UNSET,
    validation_sha256: str | msgspec.UnsetType = msgspec.UNSET,
    tokenizer_sha256: str | msgspec.UnsetType = msgspec.UNSET,
) -> str:
    """Equal for two runs exactly when they should end with the same bytes."""
    further: list[Any] = [given for given in (fields, validation_sha256) if given is not msgspec.UNSET]
    if tokenizer_sha256 is not msgspec.UNSET:
        further.append({"tokenizer": tokenizer_sha256})
    return hashlib.sha256(
        to_json([options.without_seed_of_noise(), data_sha256, watch, *further])
    ).hexdigest()
