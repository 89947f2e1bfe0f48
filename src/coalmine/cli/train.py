"""`coalmine train`: train a reference model, or one for each of several presets and seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coalmine.audits.watching.options import WatchOptions
from coalmine.cli.options import CorpusFields, Printing, out_option
from coalmine.cli.taking import Arguments, Changes, Part, takes
from coalmine.engines.options import EngineOptions
from coalmine.errors import SomeFailedError
from coalmine.records.options import SEED, Option
from coalmine.storage.files import check_places
from coalmine.training.options import TrainingOptions
from coalmine.training.private.options import PREFIX, PrivateOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from coalmine.audits.watching.measuring import ExposureWatch
    from coalmine.cli.output import Output
    from coalmine.cli.run_record import RunClock
    from coalmine.training.family import TrainedModel


class Train(Arguments, frozen=True, kw_only=True):
    """What `coalmine train` takes."""

    data: Annotated[Path, typer.Argument(help="A corpus, or the directory that `coalmine plant` wrote.")]
    out: Annotated[
        Path, out_option("Directory for the model; of several, each has one below it, such as gru-seed2.")
    ]
    preset: Annotated[
        list[str] | None,
        Option(
            "char-lstm (the default, the paper's), word-lstm, gru, cnn or transformer; for pairs translation (the paper's) or "
            "translation-attention; provenance-words, provenance-translation and provenance-dialog are the targets of the paper on "
            "provenance. Give several to train a model with each."
        ),
    ] = None
    valid: Annotated[Path | None, Option("Validation corpus; without it, some documents are held out.")] = (
        None
    )
    options: Annotated[dict[str, Any], Changes(TrainingOptions, without=("seed",))]
    private: Annotated[dict[str, Any], Changes(PrivateOptions, prefix=PREFIX)]
    seed: Annotated[
        list[int] | None,
        Option(f"{SEED.help} Give several to train a model with each; 0 by default.", least=SEED.least),
    ] = None
    running: Annotated[EngineOptions, Part(("engine",))]
    watch: Annotated[Path | None, Option("canaries.json whose exposure to record during training.")] = None
    watching: Annotated[WatchOptions, Part(("every", "method"), prefix="watch_")]
    columns: CorpusFields
    printing: Printing


@takes
def command(given: Train) -> int:
    """Train a reference model until its validation loss no longer falls.

    If it is stopped by Ctrl-C or killed, run the same command again to resume; the result has the same bytes. Writes
    model.safetensors, config.json and training.json to --out. With several presets or seeds, it trains every combination, and --engine
    processes:4 trains four at a time; if one fails, the others are still finished, and the exit code is 2.
    """
    presets, seeds = given.preset or ["char-lstm"], given.seed or [0]
    with given.printing.output() as output:
        from coalmine.cli.run_record import RunClock

        if len(presets) == len(seeds) == 1:
            return _train_one(given, presets[0], seeds[0], output, RunClock())
        return _train_family(given, presets, seeds, output, RunClock())


def _train_one(given: Train, preset: str, seed: int, output: Output, clock: RunClock) -> int:
    from coalmine.cli.run_record import RUN_FILE
    from coalmine.training.trainer import train

    check_places(given.out, RUN_FILE)
    watches = _watches(given)
    watch = None if watches is None else watches(seed)
    trained = train(given.data, preset=preset, seed=seed, watch=watch, **_shared(given, output))
    output.document(_told(trained, output, clock))
    return 0


def _train_family(given: Train, presets: list[str], seeds: list[int], output: Output, clock: RunClock) -> int:
    from coalmine.cli.run_record import RUN_FILE
    from coalmine.training.trainer import directories_of_family, train_family

    for directory, _, _ in directories_of_family(given.out, presets, seeds):
        check_places(directory, RUN_FILE)
    failure: SomeFailedError | None = None
    try:
        trained = train_family(
            given.data, presets=presets, seeds=seeds, watch=_watches(given), **_shared(given, output)
        )
    except SomeFailedError as problem:
        failure, trained = problem, problem.complete
    document: dict[str, Any] = {"models": [_told(one, output, clock) for one in trained]}
    if failure is None:
        output.document(document)
        return 0
    from coalmine.cli.streams import write_stderr

    document["failed"] = {str(directory): problem.shown() for directory, problem in failure.failed.items()}
    output.document(document)
    write_stderr(f"coalmine: {failure.shown()}\n")
    return 2


def _shared(given: Train, output: Output) -> dict[str, Any]:
    """What one training and a family both take."""
    return {
        "out": given.out,
        "valid": given.valid,
        # If none is named, the fields that the canaries were planted with.
        "fields": None if given.columns == CorpusFields() else given.columns.fields(),
        "progress": output.progress(),
        "engine": given.running.engine,
        **given.options,
        **given.private,
    }


def _told(trained: TrainedModel, output: Output, clock: RunClock) -> dict[str, Any]:
    """Write the record of the run, and report how a training ended; the JSON document about it."""
    from coalmine.cli.run_record import RUN_FILE
    from coalmine.reports.terminal import training_summary

    # A training that was killed after its last file was written has no record of its run yet.
    if trained.trained_now or not (trained.path / RUN_FILE).exists():
        record = trained.record
        clock.save(trained.path, seed=record.options.seed, data_sha256=record.data_sha256)
    output.say(training_summary(trained))
    return {"model": str(trained.path), "trained_now": trained.trained_now, "training": trained.record}


def _watches(given: Train) -> Callable[[int], ExposureWatch] | None:
    """What measures exposure during the training with a seed, if that was asked for."""
    if given.watch is None:
        return None
    from coalmine.audits.watching.measuring import ExposureWatch
    from coalmine.corpus.planting.manifest import CanarySet

    canaries = CanarySet.load(given.watch)
    return lambda seed: ExposureWatch(canaries, given.watching, seed=seed)
