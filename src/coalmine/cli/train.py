"""`coalmine train`: reference models from nothing, and checkpoints that are trained further."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coalmine.audits.watching.records import WatchOptions
from coalmine.cli.options import CorpusFields, Running
from coalmine.cli.output import write_stderr
from coalmine.cli.runner import RUN_FILE, Session
from coalmine.cli.taking import Arguments, Part
from coalmine.errors import InputError, SomeFailedError
from coalmine.records.options import SEED, Option, named_values
from coalmine.storage.files import check_places
from coalmine.training.finetuning.options import FinetuningOptions
from coalmine.training.options import TrainingOptions
from coalmine.training.private.options import PREFIX, PrivateOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from coalmine.audits.watching.records import ExposureWatch
    from coalmine.training.family import TrainedModel
    from coalmine.training.finetuning.tuner import FinetunedModel


class Train(Arguments, frozen=True, kw_only=True):
    """What `coalmine train` takes.

    Attributes:
        out: Directory for the model; of several, each has one below it, such as gru-seed2.
        preset: char-lstm (the default, the paper's), word-lstm, gru, cnn or transformer; for pairs translation (the paper's) or
            translation-attention; provenance-words, provenance-translation and provenance-dialog are the targets of the paper on
            provenance. Give several to train a model with each.
        base: The directory of a causal transformers checkpoint, which is fine-tuned instead of training a preset.
        valid: Validation corpus; without it, some documents are held out.
        training: NAME=VALUE, any other option that Python has, such as hidden=64 or dp_clip=0.5; may be given many times.
        watch: canaries.json whose exposure to record during training.
        data: A corpus, or the directory that `coalmine plant` wrote.
    """

    data: Annotated[Path, typer.Argument()]
    out: Path
    preset: list[str] | None = None
    base: Path | None = None
    valid: Path | None = None
    seed: Annotated[
        list[int] | None,
        Option(f"{SEED.help} Give several to train a model with each; 0 by default.", least=SEED.least),
    ] = None
    columns: CorpusFields
    options: Annotated[
        dict[str, Any],
        Part(
            ("epochs", "batch_size", "learning_rate", "device"),
            title="How it is trained",
            record=TrainingOptions,
        ),
    ]
    lora: Annotated[dict[str, Any], Part(("lora_rank",), title="How it is trained", record=FinetuningOptions)]
    training: Annotated[list[str] | None, Part(title="How it is trained")] = None
    private: Annotated[
        dict[str, Any],
        Part(
            ("epsilon", "noise", "delta", "unit"),
            title="Private training",
            prefix=PREFIX,
            record=PrivateOptions,
        ),
    ]
    watch: Annotated[Path | None, Part(title="Watching")] = None
    watching: Annotated[WatchOptions, Part(("every",), title="Watching", prefix="watch_", rest=False)]
    running: Running


def train(given: Train, session: Session) -> int:
    """Train a reference model until its validation loss no longer falls, or with --base fine-tune a checkpoint.

    If it is stopped by Ctrl-C or killed, run the same command again to resume; the result has the same bytes. Writes
    model.safetensors, config.json and training.json to --out. With several presets or seeds, it trains every combination, and --engine
    processes:4 trains four at a time; if one fails, the others are still finished, and the exit code is 2.

    A fine-tuning takes a fixed number of epochs, in full or with --lora-rank, and writes the model with its tokenizer, or an adapter that
    names its base, and finetuning.json. With --dp-epsilon either trains privately: no document (or user) can change the weights by more
    than noise hides, and card.md or training.json has the claim.
    """
    presets, seeds = given.preset or ["char-lstm"], given.seed or [0]
    if given.base is not None:
        if given.preset or len(seeds) > 1 or given.watch is not None:
            raise InputError(
                "--base fine-tunes one checkpoint with one seed; leave out --preset, --watch and further seeds"
            )
        return _finetuned(given, given.base, seeds[0], session)
    from coalmine.training.trainer import directories_of_family, train, train_family

    watches = _watches(given)
    if len(presets) == len(seeds) == 1:
        session.into(given.out)
        watch = None if watches is None else watches(seeds[0])
        trained = train(given.data, preset=presets[0], seed=seeds[0], watch=watch, **_shared(given, session))
        session.document(_trained(trained, session))
        return 0
    for directory, _, _ in directories_of_family(given.out, presets, seeds):
        check_places(directory, RUN_FILE)
    failure: SomeFailedError | None = None
    try:
        family = train_family(
            given.data, presets=presets, seeds=seeds, watch=watches, **_shared(given, session)
        )
    except SomeFailedError as problem:
        failure, family = problem, problem.complete
    document: dict[str, Any] = {"models": [_trained(one, session) for one in family]}
    if failure is not None:
        document["failed"] = {str(directory): one.shown() for directory, one in failure.failed.items()}
        write_stderr(f"coalmine: {failure.shown()}\n")
    session.document(document)
    return 0 if failure is None else 2


def _shared(given: Train, session: Session) -> dict[str, Any]:
    """What all trainings take."""
    return {
        "out": given.out,
        "valid": given.valid,
        # If none is named, the fields that the canaries were planted with.
        "fields": given.columns.fields() if given.columns.field else None,
        "progress": session.progress(),
        "engine": given.running.engine,
        **_changes(given),
    }


def _changes(given: Train) -> dict[str, Any]:
    """The options of the training that were given, each in one way."""
    named, settings = {**given.options, **given.lora, **given.private}, named_values(given.training or ())
    twice = next((name for name in settings if name in named or name == "seed"), None)
    if twice is not None:
        raise InputError(f"{twice} has an option of its own; leave it out of --training")
    return named | settings


def _trained(made: TrainedModel, session: Session) -> dict[str, Any]:
    """Report how a training ended; the JSON document about it."""
    from coalmine.reports.terminal import training_summary

    _record(made, session)
    session.say(training_summary(made))
    return {"model": str(made.path), "trained_now": made.trained_now, "training": made.record}


def _record(made: TrainedModel | FinetunedModel, session: Session) -> None:
    # A training that was killed after its last file was written has no record of its run yet.
    if made.trained_now or not (made.path / RUN_FILE).exists():
        session.record(made.path, seed=made.record.options.seed, data_sha256=made.record.data_sha256)


def _watches(given: Train) -> Callable[[int], ExposureWatch] | None:
    """What measures exposure during the training with a seed, if that was asked for."""
    if given.watch is None:
        return None
    from coalmine.audits.watching.records import ExposureWatch
    from coalmine.corpus.planting.manifest import CanarySet

    canaries = CanarySet.load(given.watch)
    return lambda seed: ExposureWatch(canaries, given.watching, seed=seed)


def _finetuned(given: Train, base: Path, seed: int, session: Session) -> int:
    from coalmine.reports.terminal import finetuning_summary
    from coalmine.training.finetuning.tuner import finetune

    session.into(given.out)
    tuned = finetune(base, given.data, seed=seed, **_shared(given, session))
    _record(tuned, session)
    session.say(finetuning_summary(tuned))
    session.document({"model": str(tuned.path), "trained_now": tuned.trained_now, "finetuning": tuned.record})
    return 0
