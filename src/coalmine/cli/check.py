"""`coalmine check`, `coalmine init` and `coalmine verify`: whether a model keeps a policy, and files are what was written."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from coalmine.cli.output import placed
from coalmine.cli.runner import Session, loaded
from coalmine.cli.taking import Arguments, Part
from coalmine.errors import InputError
from coalmine.models.options import LoadOptions
from coalmine.visible import visible

if TYPE_CHECKING:
    from coalmine.audits.extraction.certificate import Replay


class Check(Arguments, frozen=True, kw_only=True):
    """What `coalmine check` takes.

    Attributes:
        junit: Also write the outcome of each rule as JUnit XML.
        policy: A policy; `coalmine init` writes one to start from.
        run: Directories with the results of one model, such as its own.
    """

    run: Annotated[list[Path], typer.Argument()]
    policy: Path
    junit: Path | None = None


def check(given: Check, session: Session) -> int:
    """Check the results of a model against a policy, for a pipeline.

    Exits with 0 if every rule is shown to hold, 1 if one is shown to be broken, 2 if one is not shown either way or an input is
    wrong, and 70 if coalmine itself has a bug. A rule holds by the upper confidence limit and is broken by the lower one, beyond what
    chance explains. Nothing is measured here.
    """
    from coalmine.audits.runs import read_run
    from coalmine.reports.gate import GATE, check, gate_lines, read_policy, write_junit
    from coalmine.storage.files import check_place

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
    """What `coalmine init` takes.

    Attributes:
        results: Where the workflow finds the results, such as the directory of a model or its audit.
        overwrite: Replace files that are there already.
        directory: The root of the project.
    """

    directory: Annotated[Path, typer.Argument()] = Path()
    results: str = "model"
    overwrite: bool = False


# In which {results} is a directory.
WORKFLOW_FILE = Path(".github", "workflows", "coalmine.yml")
WORKFLOW = """\
# Fails where results break policy.toml; `coalmine init` wrote it. Put the steps that train and audit your model before the check,
# such as: coalmine audit MODEL --data train.jsonl --minutes 30
name: coalmine
on: [push, pull_request]
permissions:
  contents: read
jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - name: Install
        run: pip install coalmine
      - name: Check
        run: coalmine check {results} --policy policy.toml --junit coalmine.xml
      - uses: actions/upload-artifact@v4
        if: always()
        with:
          name: coalmine
          path: coalmine.xml
"""


def init(given: Init, session: Session) -> None:
    """Write policy.toml, with every rule in it, explained, and a GitHub workflow that runs `coalmine check` with it.

    Edit the limits of the policy, and the directory of the results in .github/workflows/coalmine.yml. Files that are there already are
    only replaced with --overwrite.
    """
    from coalmine.reports.gate import template
    from coalmine.storage.files import check_place, make_directory, read_bytes, write_bytes

    files = {
        given.directory / "policy.toml": template().encode(),
        given.directory / WORKFLOW_FILE: WORKFLOW.format(results=shlex.quote(given.results)).encode(),
    }
    for path, content in files.items():
        check_place(path)
        if path.exists() and not given.overwrite and read_bytes(path, "the file") != content:
            raise InputError(
                f"{path} is there already; choose another directory, or replace it with --overwrite"
            )
    for path, content in files.items():
        make_directory(path.parent)
        write_bytes(path, content)
    policy, workflow = (visible(str(path)) for path in files)
    session.say(
        f"Wrote {policy} and {workflow}.",
        f"Edit the limits of the policy, then run: coalmine check RUN --policy {policy}",
    )
    session.document({"written": [str(path) for path in files]})


class Verify(Arguments, frozen=True, kw_only=True):
    """What `coalmine verify` takes.

    Attributes:
        model: A model, with which each certificate of `coalmine extract` is walked again.
        runs: Directories that coalmine wrote to: a model, its results, a planted corpus.
    """

    runs: Annotated[list[Path], typer.Argument(metavar="RUN...")]
    model: str | None = None
    loading: Annotated[LoadOptions, Part(("device",), title="How the model is loaded")]


def verify(given: Verify, session: Session) -> int:
    """Check every file that coalmine wrote below some directories: is it still what was written?

    This checks the checksums of results and indexes, the files that were written with them, weights against training.json and
    results, a planted corpus against its canaries.json, results against both, and whether each result is what is computed again
    from the files beside it. Unfinished work is listed; files that coalmine did not write are ignored. Exits with 0 only if every
    file is what was written, and with 2 otherwise.

    With --model, what each extraction found is asked about again and everything cheaper than its bound is walked again; a certificate
    that does not hold is an exit code of 2 too, with the reason.
    """
    from coalmine.reports.verifying import verification_in_words, verify_run

    found = verify_run(*given.runs, progress=session.progress())
    session.say(*verification_in_words(found))
    replays = {} if given.model is None else _replayed(given, given.model, session)
    session.document({**msgspec.to_builtins(found), "replays": replays} if replays else found)
    return found.exit_code or (0 if all(one.confirmed for one in replays.values()) else 2)


def _replayed(given: Verify, where: str, session: Session) -> dict[str, Replay]:
    """The replay of each certificate by its path."""
    from coalmine.audits.extraction.certificate import verify_certificate
    from coalmine.audits.extraction.report import certificate_in_words
    from coalmine.audits.extraction.results import EXTRACTIONS
    from coalmine.audits.runs import read_run

    run = read_run(*given.runs)
    found = [one for part in (run, run.secrets) if part is not None for one in part.all(EXTRACTIONS)]
    if not found:
        raise InputError("there is no extraction to replay; leave --model out, or name the directory of one")
    model, replays = loaded(where, given.loading), {}
    for path, extraction in found:
        replays[str(path)] = replay = verify_certificate(model, extraction, progress=session.progress())
        session.say("", placed("Replayed", path), certificate_in_words(extraction))
        problems = [f"Rejected: {visible(problem)}." for problem in replay.problems]
        session.say(*problems or [f"Confirmed, after {replay.expansions:,} expansions."])
    return replays
