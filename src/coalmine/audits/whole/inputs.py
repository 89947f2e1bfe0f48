"""What an audit is given: the models, the training data and what it is compared with; bad inputs are refused before any work."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from coalmine.corpus.files.documents import Fields
from coalmine.corpus.planting.manifest import MANIFEST_NAME, CanarySet, as_canary_set
from coalmine.errors import InputError
from coalmine.models.loading import is_endpoint, load_model
from coalmine.models.options import LoadOptions
from coalmine.models.plugins import is_plugin
from coalmine.models.protocols import Model
from coalmine.models.transformers.adapter_base import base_of_adapter
from coalmine.storage.files import sha256_of_file

ANSWERS_FILE = "answers.sqlite"
ModelOrPlace = Model | str | os.PathLike[str]
Place = str | os.PathLike[str]


class Models(NamedTuple):
    """The model, and the one that it is compared with."""

    model: Model
    reference: Model | None


def load_models(
    model: ModelOrPlace, reference: ModelOrPlace | None, folder: Path, loading: LoadOptions | None
) -> Models:
    """The models; the base of an adapter is its reference where none is named. Answers of endpoints are kept in the folder."""

    def loaded(given: ModelOrPlace, answers: str) -> Any:
        return given if isinstance(given, Model) else load_model(given, loading, answers=folder / answers)

    local = not (isinstance(model, Model) or is_endpoint(model) or is_plugin(model)) and Path(model).is_dir()
    if reference is None and local:
        reference = base_of_adapter(Path(cast("Place", model)))
    other = None if reference is None else loaded(reference, f"reference-{ANSWERS_FILE}")
    return Models(loaded(model, ANSWERS_FILE), other)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The files of an audit, and the SHA-256 of each by its role."""

    data: Path
    held_out: Path | None
    canaries: CanarySet | None
    fields: Fields
    index: Path | None
    hashes: dict[str, str]


def read_inputs(
    data: Place,
    held_out: Place | None,
    canaries: CanarySet | Place | None,
    fields: Fields | None,
    index: Place | None,
) -> Inputs:
    """The files of an audit; an InputError for one that is missing, or for held-out text that is the training data.

    Where no canaries are named, those of the manifest beside the training data are taken, if it is about this very file.
    """
    training, other = Path(data), None if held_out is None else Path(held_out)
    for path, what in ((training, "the training data"), (other, "the held-out text")):
        if path is not None and not path.is_file():
            raise InputError(f"{what} {path} is not a file; name a corpus, such as train.jsonl")
    hashes = {"data": sha256_of_file(training)}
    if other is not None:
        hashes["held_out"] = sha256_of_file(other)
        if hashes["held_out"] == hashes["data"]:
            raise InputError(
                f"the held-out text {other} is the training data itself, so there is nothing to compare with; give text that the model "
                "was not trained on"
            )
    planted = _beside(training, hashes["data"]) if canaries is None else as_canary_set(canaries)
    if planted is not None and planted.natural:
        raise InputError(
            "the manifest that was given as canaries is one of secrets that were found, and not of planted ones; leave it out: an audit "
            "finds the secrets of its training data by itself"
        )
    if planted is not None:
        hashes["canaries"] = planted.sha256
    return Inputs(
        data=training,
        held_out=other,
        canaries=planted,
        fields=fields or Fields(),
        index=None if index is None else Path(index),
        hashes=hashes,
    )


def _beside(data: Path, sha256: str) -> CanarySet | None:
    """The canaries that `coalmine plant` put into this very corpus, whose manifest is beside it."""
    if not (data.parent / MANIFEST_NAME).is_file():
        return None
    found = CanarySet.load(data.parent)
    return found if found.corpus is not None and found.corpus.sha256_after == sha256 else None
