"""`coalmine check`: does a model keep a policy?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coalmine.cli.options import Printing, Seed
from coalmine.cli.taking import Arguments, takes
from coalmine.records.options import Option


class Check(Arguments, frozen=True, kw_only=True):
    """What `coalmine check` takes."""

    run: Annotated[
        list[Path], typer.Argument(help="Directories with the results of one model, such as its own.")
    ]
    policy: Annotated[
        Path,
        typer.Option("--policy", "-p", help="A policy; `coalmine policy init` writes one to start from."),
    ]
    junit: Annotated[Path | None, Option("Also write the outcome of each rule as JUnit XML.")] = None
    seed: Seed = 0
    printing: Printing


@takes
def command(given: Check) -> int:
    """Check the results of a model against a policy, for a pipeline.

    Exits with 0 if every rule is shown to hold, 1 if one is shown to be broken, 2 if one is not shown either way or an input is
    wrong, and 70 if coalmine itself has a bug. A rule holds by the upper confidence limit and is broken by the lower one, beyond what
    chance explains. Nothing is measured here, and nothing is random: --seed changes nothing.
    """
    with given.printing.output() as output:
        from coalmine.audits.runs import read_run
        from coalmine.reports.gate.checking import check
        from coalmine.reports.gate.policy import read_policy
        from coalmine.reports.gate.table import gate_in_words, gate_table, write_junit
        from coalmine.storage.files import check_place

        # The policy first: a mistake in it is told before anything is read.
        rules = read_policy(given.policy)
        if given.junit is not None:
            check_place(given.junit)
        result = check(read_run(*given.run), rules)
        if given.junit is not None:
            write_junit(result, given.junit)
        output.say(gate_table(result), *gate_in_words(result))
        output.document(result)
    return result.exit_code
