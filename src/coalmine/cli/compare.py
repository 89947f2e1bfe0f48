"""`coalmine compare`: which training remembers less, and at what cost?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coalmine.audits.comparison.options import ComparisonOptions
from coalmine.cli.options import Json, Quiet, takes
from coalmine.cli.output import Output


@takes(options=ComparisonOptions)
def command(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="[LABEL=]RUN...",
            help="Two or more directories, each with the results of one model, such as its own. Runs with the same label are trainings "
            "of one kind with different seeds, as in plain=runs/a plain=runs/b; RUN may be a pattern.",
        ),
    ],
    options: ComparisonOptions,
    utility: Annotated[
        list[str] | None,
        typer.Option(
            "--utility",
            help="Once for each RUN, in order: a number, a file with one number per line for each document, or own. "
            "Default: the validation loss of each training.json.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the result.")] = Path("comparison"),
    figure: Annotated[
        Path | None,
        typer.Option("--figure", help="Also draw utility against exposure: .svg, .png, .html or .json."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Put trainings side by side: utility against exposure, with the difference, its significance and the Pareto frontier.

    Runs with the same canaries are compared canary by canary, and formats one by one. Only several trainings on each side, given by
    labels, can show that one way of training is to be preferred. Writes comparison.json and run.json. Nothing is measured here;
    run `coalmine expose` on each model first.
    """
    with Output(json=json, quiet=quiet) as output:
        from coalmine.audits.comparison.figures import save_figure
        from coalmine.audits.comparison.sources import (
            RESULTS_FILE,
            compare_runs,
            labeled_runs,
            save_comparison,
        )
        from coalmine.audits.comparison.table import comparison_in_words, comparison_table, difference_table
        from coalmine.cli.run_record import RUN_FILE, RunClock
        from coalmine.storage.files import check_place, check_places
        from coalmine.visible import visible

        clock = RunClock()
        check_places(out, RESULTS_FILE, RUN_FILE)
        if figure is not None:
            check_place(figure)
        labels, paths = labeled_runs(runs)
        comparison = compare_runs(paths, options, labels=labels, utility=utility or ())
        path = save_comparison(comparison, out)
        clock.save(out, seed=options.seed, manifests=sorted({run.manifest_sha256 for run in comparison.runs}))
        output.say(
            comparison_table(comparison),
            "",
            difference_table(comparison),
            "",
            *comparison_in_words(comparison),
            f"Result: {visible(str(path))}",
        )
        output.document(comparison)
        # Last, because it may have nothing to draw, and the comparison says why.
        if figure is not None:
            output.say(f"Figure: {visible(str(save_figure(comparison, figure)))}")
    return 0
