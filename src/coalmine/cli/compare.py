"""`coalmine compare`: which training remembers less, and at what cost?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coalmine.audits.comparison.options import ComparisonOptions
from coalmine.cli.options import Printing, out_option
from coalmine.cli.output import Output
from coalmine.cli.taking import Arguments, takes
from coalmine.records.options import Option

if TYPE_CHECKING:
    from coalmine.audits.comparison.results import Comparison


class Compare(Arguments, frozen=True, kw_only=True):
    """What `coalmine compare` takes."""

    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="[LABEL=]RUN...",
            help="Two or more directories, each with the results of one model, such as its own. Runs with the same label are trainings "
            "of one kind with different seeds, as in plain=runs/a plain=runs/b; RUN may be a pattern.",
        ),
    ]
    options: ComparisonOptions
    utility: Annotated[
        list[str] | None,
        Option(
            "Once for each RUN, in order: a number, a file with one number per line for each document, or own. "
            "Default: the validation loss of each training.json."
        ),
    ] = None
    out: Annotated[Path, out_option("Directory for the result.")] = Path("comparison")
    figure: Annotated[
        Path | None, Option("Also draw utility against exposure: .svg, .png, .html or .json.")
    ] = None
    printing: Printing


@takes
def command(given: Compare) -> int:
    """Put trainings side by side: utility against exposure, with the difference, its significance and the Pareto frontier.

    Runs with the same canaries are compared canary by canary, and formats one by one. Only several trainings on each side, given by
    labels, can show that one way of training is to be preferred. Writes comparison.json and run.json. Nothing is measured here;
    run `coalmine expose` on each model first.
    """
    with given.printing.output() as output:
        from coalmine.audits.comparison.figures import save_figure
        from coalmine.audits.comparison.results import COMPARISONS
        from coalmine.audits.comparison.sources import compare_runs, labeled_runs, save_comparison
        from coalmine.cli.run_record import RUN_FILE, RunClock
        from coalmine.storage.files import check_place, check_places
        from coalmine.visible import visible

        clock = RunClock()
        check_places(given.out, COMPARISONS.file, RUN_FILE)
        if given.figure is not None:
            check_place(given.figure)
        labels, paths = labeled_runs(given.runs)
        comparison = compare_runs(paths, given.options, labels=labels, utility=given.utility or ())
        path = save_comparison(comparison, given.out)
        manifests = sorted({run.manifest_sha256 for run in comparison.runs})
        clock.save(given.out, seed=given.options.seed, manifests=manifests)
        _show(comparison, path, output)
        # Last, because it may have nothing to draw, and the comparison says why.
        if given.figure is not None:
            output.say(f"Figure: {visible(str(save_figure(comparison, given.figure)))}")
    return 0


def _show(comparison: Comparison, path: Path, output: Output) -> None:
    from coalmine.audits.comparison.table import comparison_in_words, comparison_table, difference_table
    from coalmine.visible import visible

    output.say(
        comparison_table(comparison),
        "",
        difference_table(comparison),
        "",
        *comparison_in_words(comparison),
        f"Result: {visible(str(path))}",
    )
    output.document(comparison)
