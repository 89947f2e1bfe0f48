"""`coalmine train`: train a reference model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from coalmine.cli.options import (
    Json,
    Quiet,
    SourceField,
    TargetField,
    TextField,
    UserField,
    fields_from,
    takes,
)
from coalmine.cli.output import Output
from coalmine.storage.files import check_places
from coalmine.training.options import TrainingOptions


@takes(options=TrainingOptions, unset=True)
def command(
    *,
    data: Annotated[Path, typer.Argument(help="A corpus, or the directory that `coalmine plant` wrote.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the model.")],
    preset: Annotated[
        str,
        typer.Option(
            "--preset",
            help="char-lstm (the paper's), word-lstm, gru, cnn or transformer; for pairs translation (the paper's) or "
            "translation-attention.",
        ),
    ] = "char-lstm",
    valid: Annotated[
        Path | None,
        typer.Option("--valid", help="Validation corpus; without it, some documents are held out."),
    ] = None,
    options: dict[str, Any],
    watch: Annotated[
        Path | None, typer.Option("--watch", help="canaries.json whose exposure to record during training.")
    ] = None,
    watch_every: Annotated[
        int,
        typer.Option(
            "--watch-every", help="Batches between two measurements; there is one after each epoch too."
        ),
    ] = 100,
    watch_method: Annotated[
        str, typer.Option("--watch-method", help="How to measure; see `coalmine expose --help`.")
    ] = "references",
    text_field: TextField = "text",
    user_field: UserField = None,
    source_field: SourceField = None,
    target_field: TargetField = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Train a reference model until its validation loss no longer falls.

    If it is stopped by Ctrl-C or killed, run the same command again to resume; the result has the same bytes. Writes
    model.safetensors, config.json and training.json to --out.
    """
    with Output(json=json, quiet=quiet) as output:
        from coalmine.cli.run_record import RUN_FILE, RunClock
        from coalmine.reports.terminal import training_summary
        from coalmine.training.trainer import train

        named = (text_field, user_field, source_field, target_field)
        clock = RunClock()
        check_places(out, RUN_FILE)
        watcher, seed = None, options.get("seed", 0)
        if watch is not None:
            from coalmine.audits.watching.measuring import ExposureWatch

            watcher = ExposureWatch(watch, every=watch_every, method=watch_method, seed=seed)
        trained = train(
            data,
            out=out,
            preset=preset,
            valid=valid,
            # If none is named, the fields that the canaries were planted with.
            fields=None if named == ("text", None, None, None) else fields_from(*named),
            watch=watcher,
            progress=output.progress(),
            **options,
        )
        # A training that was killed after its last file was written has no record of its run yet.
        if trained.trained_now or not (out / RUN_FILE).exists():
            clock.save(out, seed=seed, data_sha256=trained.record.data_sha256)
        output.say(training_summary(trained))
        output.document(
            {"model": str(trained.path), "trained_now": trained.trained_now, "training": trained.record}
        )
    return 0
