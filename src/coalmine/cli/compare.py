"""`coalmine compare`: which training remembers less, and at what cost?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coalmine.audits.comparison.options import ComparisonOptions
from coalmine.cli.options import out_option
from coalmine.cli.output import placed
from coalmine.cli.runner import Session, command
from coalmine.cli.taking import Arguments
from coalmine.records.options import Option
from coalmine.storage.files import check_place


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


@command("compare")
def compare(given: Compare, session: Session) -> None:
    """Put trainings side by side: utility against exposure, with the difference, its significance and the Pareto frontier.

    Runs with the same canaries are compared canary by canary, and formats one by one. Only several trainings on each side, given by
    labels, can show that one way of training is to be preferred. Writes comparison.json and run.json. Nothing is measured here;
    run `coalmine expose` on each model first.
    """
    from coalmine.audits.comparison.records import COMPARISONS
    from coalmine.audits.comparison.report import comparison_in_words, pairs_table, runs_table, save_figure
    from coalmine.audits.comparison.runs import compare_runs, labeled_runs

    session.into(given.out, COMPARISONS.file)
    if given.figure is not None:
        check_place(given.figure)
    labels, paths = labeled_runs(given.runs)
    comparison = compare_runs(paths, given.options, labels=labels, utility=given.utility or ())
    path = COMPARISONS.save(given.out, comparison)
    manifests = sorted({run.manifest_sha256 for run in comparison.runs})
    session.record(seed=given.options.seed, manifests=manifests)
    session.say(
        runs_table(comparison).terminal(comparison.runs),
        "",
        pairs_table(comparison).terminal(comparison.pairs),
        "",
        *comparison_in_words(comparison),
        placed("Result", path),
    )
    session.document(comparison)
    # Last, because it may have nothing to draw, and the comparison says why.
    if given.figure is not None:
        session.say(placed("Figure", save_figure(comparison, given.figure)))
