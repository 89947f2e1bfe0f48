"""`coalmine verify`: whether the files of a directory are as they were written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coalmine.cli.options import Printing
from coalmine.cli.taking import Arguments, takes


class Verify(Arguments, frozen=True, kw_only=True):
    """What `coalmine verify` takes."""

    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Directories that coalmine wrote to: a model, its results, a planted corpus.",
        ),
    ]
    printing: Printing


@takes
def command(given: Verify) -> int:
    """Check every file that coalmine wrote below some directories: is it still what was written?

    This checks the checksums of results and indexes, the files that were written with them, weights against training.json and
    results, a planted corpus against its canaries.json, results against both, and whether the numbers of each result can all be
    true. Unfinished work is listed; files that coalmine did not write are ignored. Exits with 0 only if every file is what was
    written, and with 2 otherwise.
    """
    with given.printing.output() as output:
        from coalmine.reports.verifying.table import verification_in_words, verification_table
        from coalmine.reports.verifying.verifying import verify_run

        found = verify_run(*given.runs, progress=output.progress())
        output.say(verification_table(found), *verification_in_words(found))
        output.document(found)
    return found.exit_code
