"""Training a reference model: what `coalmine train` calls."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from coalmine.corpus.files.documents import Fields
from coalmine.errors import InputError
from coalmine.models.reference.checkpoint import (
    CONFIG_FILE,
    UNFINISHED_FILE,
    WEIGHTS_FILE,
    check_readable_name,
    check_trained,
    require_torch,
)
from coalmine.progress import Progress, Silent
from coalmine.storage.files import check_places, no_empty_directory
from coalmine.storage.unfinished import sole_use
from coalmine.training.options import options_of
from coalmine.training.record import RECORD_FILE, TRAININGS, TrainingRecord, Watcher, read_training


class TrainedModel(msgspec.Struct, frozen=True, kw_only=True):
    """Where a model was written, and how it was trained."""

    path: Path
    record: TrainingRecord
    # False where the directory already held the very same training, finished.
    trained_now: bool


def train(
    data: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    preset: str = "char-lstm",
    valid: str | os.PathLike[str] | None = None,
    fields: Fields | None = None,
    watch: Watcher | None = None,
    progress: Progress | None = None,
    snapshot_seconds: float = 10.0,
    **options: Any,
) -> TrainedModel:
    """Train a reference model on a corpus, or on the directory that `plant` wrote, and write it to `out`.

    A run that was stopped, by Ctrl-C or `kill -9`, resumes when the same call is made again, and ends with the same bytes; the
    same data, options and number of threads always do. The whole tokenized corpus is held in memory.

    Args:
        data: a corpus file of any kind that `read_documents` reads, or the directory that `plant` wrote.
        out: the directory for model.safetensors, config.json and training.json.
        preset: a name of `PRESETS`, such as "char-lstm", "word-lstm", "gru", "cnn", "transformer" or "translation".
        valid: a validation corpus; without it, a share of the documents is held out, never canaries.
        fields: which fields of a row hold what; without it, those that the canaries were planted with.
        watch: measures the model at intervals, such as `ExposureWatch`.
        progress: gets the tokens that were trained on.
        snapshot_seconds: how often the run is saved, in seconds.
        options: fields of `TrainingOptions` that differ from the preset's, such as `epochs=3` or `optimizer="sgd"`. Losses are
            in bits per token.

    >>> trained = train("planted/", out="model/", epochs=3)  # doctest: +SKIP
    >>> trained.record.epochs[-1].validation_loss_bits  # doctest: +SKIP
    2.31
    """
    chosen = options_of(preset, options)
    if watch is not None and not hasattr(watch, "measure"):
        raise InputError(
            f"watch must be something that measures, such as ExposureWatch({str(watch)!r}), got {watch!r}"
        )
    require_torch("training")
    from coalmine.training.data import load_training_data
    from coalmine.training.run import TrainingRun

    check_readable_name(Path(out))
    check_places(out, WEIGHTS_FILE, CONFIG_FILE, RECORD_FILE, UNFINISHED_FILE)
    with no_empty_directory(out), sole_use(out) as directory:
        loaded = load_training_data(Path(data), None if valid is None else Path(valid), fields, chosen)
        run = TrainingRun(
            loaded,
            chosen,
            directory,
            watch=watch,
            progress=progress or Silent(),
            snapshot_seconds=snapshot_seconds,
        )
        finished = _finished(directory)
        if finished is not None and not run.is_same(finished):
            raise InputError(
                f"{directory} already holds a model that was trained on other data or with other options; "
                "choose another directory, or remove it"
            )
        record = run.finish() if finished is None else finished
        if finished is None:
            TRAININGS.save(directory, record)
        run.forget_snapshot()  # also that of a run that was killed just before this
    return TrainedModel(path=directory, record=record, trained_now=finished is None)


def _finished(directory: Path) -> TrainingRecord | None:
    if not all((directory / name).is_file() for name in (RECORD_FILE, WEIGHTS_FILE, CONFIG_FILE)):
        return None
    record = read_training(directory)
    check_trained(directory, record)
    return record
