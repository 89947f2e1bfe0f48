"""`coalmine train`: train a reference model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from coalmine.audits.watching.options import WatchOptions
from coalmine.cli.options import CorpusFields, Printing, out_option
from coalmine.cli.taking import Arguments, Changes, Part, takes
from coalmine.records.options import Option
from coalmine.storage.files import check_places
from coalmine.training.options import TrainingOptions


class Train(Arguments, frozen=True, kw_only=True):
    """What `coalmine train` takes."""

    data: Annotated[Path, typer.Argument(help="A corpus, or the directory that `coalmine plant` wrote.")]
    out: Annotated[Path, out_option("Directory for the model.")]
    preset: Annotated[
        str,
        Option(
            "char-lstm (the paper's), word-lstm, gru, cnn or transformer; for pairs translation (the paper's) or "
            "translation-attention."
        ),
    ] = "char-lstm"
    valid: Annotated[Path | None, Option("Validation corpus; without it, some documents are held out.")] = (
        None
    )
    options: Annotated[dict[str, Any], Changes(TrainingOptions)]
    watch: Annotated[Path | None, Option("canaries.json whose exposure to record during training.")] = None
    watching: Annotated[WatchOptions, Part(("every", "method"), prefix="watch_")]
    columns: CorpusFields
    printing: Printing


@takes
def command(given: Train) -> int:
    """Train a reference model until its validation loss no longer falls.

    If it is stopped by Ctrl-C or killed, run the same command again to resume; the result has the same bytes. Writes
    model.safetensors, config.json and training.json to --out.
    """
    with given.printing.output() as output:
        from coalmine.cli.run_record import RUN_FILE, RunClock
        from coalmine.reports.terminal import training_summary
        from coalmine.training.trainer import train

        clock = RunClock()
        check_places(given.out, RUN_FILE)
        seed = given.options.get("seed", 0)
        trained = train(
            given.data,
            out=given.out,
            preset=given.preset,
            valid=given.valid,
            # If none is named, the fields that the canaries were planted with.
            fields=None if given.columns == CorpusFields() else given.columns.fields(),
            watch=_watch(given, seed),
            progress=output.progress(),
            **given.options,
        )
        # A training that was killed after its last file was written has no record of its run yet.
        if trained.trained_now or not (given.out / RUN_FILE).exists():
            clock.save(given.out, seed=seed, data_sha256=trained.record.data_sha256)
        output.say(training_summary(trained))
        output.document(
            {"model": str(trained.path), "trained_now": trained.trained_now, "training": trained.record}
        )
    return 0


def _watch(given: Train, seed: int) -> Any:
    """What measures exposure during the training, if that was asked for."""
    if given.watch is None:
        return None
    from coalmine.audits.watching.measuring import ExposureWatch

    return ExposureWatch(given.watch, given.watching, seed=seed)
