"""`coalmine check`, `coalmine policy init` and `coalmine verify`: whether a model keeps a policy, and files are what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coalmine.cli.runner import Session, command, group
from coalmine.cli.taking import Arguments
from coalmine.errors import InputError
from coalmine.records.options import Option
from coalmine.storage.files import check_place, read_bytes, write_bytes
from coalmine.visible import visible

policies = group("policy", "Policies for `coalmine check`.")


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


@command("check")
def check(given: Check, session: Session) -> int:
    """Check the results of a model against a policy, for a pipeline.

    Exits with 0 if every rule is shown to hold, 1 if one is shown to be broken, 2 if one is not shown either way or an input is
    wrong, and 70 if coalmine itself has a bug. A rule holds by the upper confidence limit and is broken by the lower one, beyond what
    chance explains. Nothing is measured here.
    """
    from coalmine.audits.runs import read_run
    from coalmine.reports.gate import GATE, check, gate_lines, read_policy, write_junit

    # The policy first: a mistake in it is told before anything is read.
    rules = read_policy(given.policy)
    if given.junit is not None:
        check_place(given.junit)
    result = check(read_run(*given.run), rules)
    if given.junit is not None:
        write_junit(result, given.junit)
    session.say(GATE.terminal(result.rules), *gate_lines(result))
    session.document(result)
    return result.exit_code


class Init(Arguments, frozen=True, kw_only=True):
    """What `coalmine policy init` takes."""

    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("policy.toml")
    overwrite: Annotated[bool, Option("Replace a policy that is there already.")] = False


@command("init", policies)
def init(given: Init, session: Session) -> None:
    """Write a policy with every rule in it, explained; most of them are commented out."""
    from coalmine.reports.gate import template

    path, content = given.path, template().encode()
    check_place(path)
    if path.exists() and not given.overwrite and read_bytes(path, "the policy") != content:
        raise InputError(f"{path} is there already; choose another place, or replace it with --overwrite")
    write_bytes(path, content)
    shown = visible(str(path))
    session.say(f"Wrote {shown}. Edit its limits, then run: coalmine check RUN --policy {shown}")
    session.document({"policy": str(path)})


class Verify(Arguments, frozen=True, kw_only=True):
    """What `coalmine verify` takes."""

    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Directories that coalmine wrote to: a model, its results, a planted corpus.",
        ),
    ]


@command("verify")
def verify(given: Verify, session: Session) -> int:
    """Check every file that coalmine wrote below some directories: is it still what was written?

    This checks the checksums of results and indexes, the files that were written with them, weights against training.json and
    results, a planted corpus against its canaries.json, results against both, and whether each result is what is computed again
    from the files beside it. Unfinished work is listed; files that coalmine did not write are ignored. Exits with 0 only if every
    file is what was written, and with 2 otherwise.
    """
    from coalmine.reports.verifying import FILES, shown_files, verification_in_words, verify_run

    found = verify_run(*given.runs, progress=session.progress())
    session.say(FILES.terminal(shown_files(found)), *verification_in_words(found))
    session.document(found)
    return found.exit_code
