"""Records of fine-tuning: which base, what decided the run, and how it went (finetuning.json)."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Annotated

import msgspec

from coalmine.engines.ledger import UNITS_FILE
from coalmine.models.reference.checkpoint import FINETUNING_FILE, FINETUNING_SCHEMA, TrainedFiles
from coalmine.models.transformers.model_files import CONFIG_FILE
from coalmine.records.documents import Document, Origin
from coalmine.records.estimate import Count, Positive
from coalmine.storage.files import PUBLIC, to_json
from coalmine.training.finetuning.base_checkpoint import Base, result_files
from coalmine.training.finetuning.options import FinetuningOptions
from coalmine.training.private.card import written_card
from coalmine.training.record import EpochRecord

RECORD_FILE = FINETUNING_FILE
SCHEMA = FINETUNING_SCHEMA


class FinetuningRecord(TrainedFiles, frozen=True, kw_only=True):
    """How a checkpoint was fine-tuned; finetuning.json beside its weights, with their checksums.

    The weights and their settings are model.safetensors and config.json, or those of the adapter.
    """

    schema: str = SCHEMA
    options: FinetuningOptions
    base: Base
    # Which fields of the data were read, where they are not the default, and the hash of a validation corpus, if there was one.
    fields: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    validation_sha256: str | msgspec.UnsetType = msgspec.UNSET
    documents: Positive
    # Tokens that are predicted in one pass, and the windows that they are read in.
    tokens: Positive
    windows: Positive
    window: Positive
    # What comes before each document, as a run of an audit records it.
    context: str
    parameters: Count
    trained_parameters: Positive
    epochs: Annotated[list[EpochRecord], msgspec.Meta(min_length=1)]

    @property
    def validation_loss_bits(self) -> float | None:
        """The validation loss of the weights, which are those of the last epoch, in bits per token."""
        return self.epochs[-1].validation_loss_bits


def _taken_over(record: FinetuningRecord) -> dict[str, str]:
    """The hashes of the files that a whole model has from its base."""
    described = record.base.settings_sha256.items()
    return {} if record.options.lora_rank else {name: sha for name, sha in described if name != CONFIG_FILE}


FINETUNINGS = Document(
    record=FinetuningRecord,
    schema=SCHEMA,
    file=RECORD_FILE,
    title="fine-tuning",
    by="`coalmine train --base`",
    others={
        "adapter_model.safetensors": "the weights of LoRA; without it, the files of the whole model as transformers names them",
        UNITS_FILE: "a fine-tuning that is not finished; its state is in `unfinished-*.npz`",
    },
    mode=PUBLIC,
    companions=lambda record: (
        dict(zip(result_files(record.options), (record.weights_sha256, record.config_sha256), strict=True))
        | _taken_over(record)
        | written_card(record)
    ),
    # Weights are verified when they are loaded, and people may edit a card.
    verifies_companions=False,
    origin=Origin(
        is_measurement=False,
    ),
)


def read_finetuning(path: str | os.PathLike[str]) -> FinetuningRecord:
    """A finetuning.json, or the one in a model's directory; the weights are verified when the model is loaded."""
    return FINETUNINGS.load(Path(path))


def fingerprint(
    options: FinetuningOptions,
    base: Base,
    data_sha256: str,
    fields: dict[str, str] | msgspec.UnsetType,
    validation_sha256: str | msgspec.UnsetType,
) -> str:
    """Equal for two runs exactly when they should end with the same bytes."""
    further = [None if given is msgspec.UNSET else given for given in (fields, validation_sha256)]
    hashes = [base.weights_sha256, base.settings_sha256]
    return hashlib.sha256(
        to_json([options.without_seed_of_noise(), hashes, data_sha256, *further])
    ).hexdigest()
