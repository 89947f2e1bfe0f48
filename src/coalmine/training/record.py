"""Records of training runs: what decided them, how they went, and what a watcher measured (training.json)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec

from coalmine.engines.ledger import UNITS_FILE, WORK_FILES
from coalmine.models.protocols import Scorer
from coalmine.models.reference.checkpoint import (
    CONFIG_FILE,
    TRAINING_FILE,
    TRAINING_SCHEMA,
    WEIGHTS_FILE,
    TrainedFiles,
)
from coalmine.records.contradictions import count_problems, in_range
from coalmine.records.documents import Document, Origin
from coalmine.records.privacy import PrivacyClaim, claim_problems
from coalmine.records.watching import Moment, check_moments, manifests_of_watch
from coalmine.storage.files import PUBLIC, to_json
from coalmine.training.options import TrainingOptions
from coalmine.training.private.card import written_card
from coalmine.training.private.options import PrivateOptions
from coalmine.training.watched_canaries import watched_manifest_problems

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

    epoch: int
    steps: int
    # None where private training drew no unit in a whole epoch.
    training_loss_bits: float | None
    validation_loss_bits: float | None


class TrainingRecord(TrainedFiles, frozen=True, kw_only=True):
    """How a model was trained; training.json beside its weights, with their checksums."""

    options: TrainingOptions
    # Which fields of the data were read, where they are not the default, and the hash of a validation corpus, if there was one.
    fields: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    validation_sha256: str | msgspec.UnsetType = msgspec.UNSET
    # Of a tokenizer that was given, and not made from the data.
    tokenizer_sha256: str | msgspec.UnsetType = msgspec.UNSET
    documents: int
    tokens: int
    parameters: int
    epochs: list[EpochRecord]
    # The epoch whose weights were kept: the one with the least validation loss, or the last where there was no validation or the
    # training was private.
    best_epoch: int
    stopped_early: bool
    watch: dict[str, Any] | None = None
    watched: list[Moment] = msgspec.field(default_factory=list)


def training_problems(record: TrainingRecord) -> Iterator[str]:
    """What cannot be true in the record of a training."""
    for what, number, least in (
        ("documents", record.documents, 1),
        ("tokens", record.tokens, 1),
        ("parameters", record.parameters, 0),
    ):
        yield from count_problems(f"the number of {what}", number, least)
    numbers = [one.epoch for one in record.epochs]
    if not numbers or numbers != list(range(1, len(numbers) + 1)) or len(numbers) > record.options.epochs:
        yield f"its {len(numbers)} epochs are not numbered from 1 to at most {record.options.epochs}"
        return
    for one in record.epochs:
        yield from count_problems(f"epoch {one.epoch}: the number of steps", one.steps, 1)
        yield from in_range(f"epoch {one.epoch}: the training loss", one.training_loss_bits, 0)
        yield from in_range(f"epoch {one.epoch}: the validation loss", one.validation_loss_bits, 0)
    losses = [one.validation_loss_bits for one in record.epochs if one.validation_loss_bits is not None]
    chosen = bool(losses) and record.privacy is msgspec.UNSET
    best = losses.index(min(losses)) + 1 if chosen else len(numbers)
    if len(losses) not in {0, len(numbers)}:
        yield "some of its epochs have a validation loss, and others have none"
    elif record.best_epoch != best:
        yield f"it kept the weights of epoch {record.best_epoch}, but epoch {best} was the best"
    if any(not 0 <= moment.epoch <= len(numbers) for moment in record.watched):
        yield f"it measured canaries at an epoch that is not one of its {len(numbers)}"
    yield from privacy_problems(record.privacy, record.options.private)
    if record.watched and record.watch is None:
        yield "it measured canaries, and does not say which"


def privacy_problems(
    claim: PrivacyClaim | msgspec.UnsetType, private: PrivateOptions | msgspec.UnsetType
) -> Iterator[str]:
    """What cannot be true in the claim of a training with these options."""
    if (claim is msgspec.UNSET) != (private is msgspec.UNSET):
        yield "it claims privacy without having trained privately, or trained privately and claims nothing"
    elif claim is not msgspec.UNSET:
        yield from claim_problems(claim)


TRAININGS = Document(
    record=TrainingRecord,
    schema=SCHEMA,
    file=RECORD_FILE,
    what="the record of a training",
    title="training",
    by="`coalmine train`",
    holds="options, hashes of the data, the weights and `config.json`, losses by epoch, the kept epoch, what "
    "private training claims, what `--watch` saw",
    others={
        UNITS_FILE: "a training that is not finished; its state, and until it ends the key of its noise, is in `unfinished-*.npz`"
    },
    mode=PUBLIC,
    name_is_common=True,
    problems=training_problems,
    check=lambda path, record: check_moments(path, record.watched),
    companions=lambda record: {
        WEIGHTS_FILE: record.weights_sha256,
        CONFIG_FILE: record.config_sha256,
        **written_card(record),
    },
    verifies_companions=False,
    work_files=WORK_FILES,
    written_by="train",
    origin=Origin(
        manifests=lambda record: manifests_of_watch(record.watch),
        manifest_problems=lambda record, canaries: watched_manifest_problems(
            record.watch, record.watched, canaries
        ),
        is_measurement=False,
        facts=lambda record: {"data_sha256": record.data_sha256, "seed": record.options.seed},
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
