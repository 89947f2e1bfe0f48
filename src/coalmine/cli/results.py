"""`coalmine report`, `check`, `init` and `verify`: results on one page, against a policy, and whether they are what was written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from coalmine.audits.comparison.measure import compare_runs, labeled_runs
from coalmine.audits.comparison.records import COMPARISONS, Comparison
from coalmine.audits.comparison.report import RUNS_TABLE, comparison_in_words
from coalmine.audits.extraction.certificate import verify_certificate
from coalmine.audits.extraction.report import certificate_in_words
from coalmine.audits.extraction.results import EXTRACTIONS
from coalmine.audits.registry import read_run, read_runs
from coalmine.cli.output import placed
from coalmine.cli.runner import Session
from coalmine.cli.taking import Argument, Arguments, Part
from coalmine.errors import InputError
from coalmine.evidence.run import Located
from coalmine.models.loading import load_model
from coalmine.models.options import LoadOptions
from coalmine.reports import export, gate
from coalmine.reports.conclusion import ReportedRun, reported
from coalmine.reports.page.html import report_page
from coalmine.reports.verifying import verification_in_words, verify_run
from coalmine.storage.files import PRIVATE, PUBLIC, check_place, make_directory, read_bytes, write_bytes
from coalmine.visible import visible

DEFAULT_NAMES = {
    "html": "report.html",
    "json": "report.json",
    "markdown": "report.md",
    "junit": "report.junit.xml",
    "sarif": "report.sarif",
    "png": "report-figures",
}


class Report(Arguments, frozen=True, kw_only=True):
    """What `coalmine report` takes.

    Attributes:
        out: The file to write (for png: a directory); default: report.html and so on.
        format: html, json, markdown, junit, sarif, or png for the figures.
        reveal: Show the texts of canaries and of what came out (html).
        loss: Once for each RUN, in order: a number, of which less is better. Default: the validation loss of each training.
        comparison: Directory for comparison.json: the differences with their significance, and the Pareto frontier.
        runs: Directories with results, such as a model's, or result files. Several models are compared; those with the same label are
            trainings of one kind with different seeds, as in plain=runs/a plain=runs/b, and RUN may then be a pattern.
    """

    runs: Annotated[list[str], Argument("[LABEL=]RUN...")]
    out: Path | None = None
    format: str = "html"
    reveal: bool = False
    loss: Annotated[list[float] | None, Part(title="Comparing models")] = None
    comparison: Annotated[Path | None, Part(title="Comparing models")] = None


def report(given: Report, session: Session) -> None:
    """Put the results of one or more runs on one page: the verdict, the findings, the figures and the record.

    The page is one file that loads nothing. What was not tested and what could not be measured is listed as such. Results of
    several models become one report that compares them: loss against exposure. Runs with the same canaries are compared canary by
    canary. Only several trainings on each side, given by labels, can show that one way of training is to be preferred.
    """
    kind = given.format
    if kind not in DEFAULT_NAMES or (given.reveal and kind != "html"):
        raise InputError(
            f"a report is one of {', '.join(DEFAULT_NAMES)}, and only html can --reveal texts, got {kind!r}"
        )
    target = given.out or Path(DEFAULT_NAMES[kind])
    if kind != "png":
        check_place(target)
    labels, paths = labeled_runs(given.runs)
    runs, compared = read_runs(*paths), None
    if any(labels) or given.loss or given.comparison is not None:
        compared = _compared(given, labels, paths, session)
        located = Located(given.comparison or Path(COMPARISONS.file), compared)
        runs = (runs[0].with_added(COMPARISONS, located), *runs[1:])
    reports = reported(runs)
    written = _write(reports, target, kind, reveal=given.reveal)
    session.say(
        *(f"{visible(one.name)}: {visible(one.conclusion.sentence)}" for one in reports),
        placed("Report", target) if written else "No result can be drawn as a figure.",
    )
    verdicts = [one.conclusion.sentence for one in reports]
    session.document(
        {"written": [str(path) for path in written], "verdicts": verdicts, "comparison": compared}
    )


def _compared(given: Report, labels: list[str | None], paths: list[Path], session: Session) -> Comparison:
    """The runs compared, shown, and written where that is wanted."""
    if given.comparison is not None:
        session.into(given.comparison, COMPARISONS.file)
    found = compare_runs(paths, labels=labels, loss=given.loss or ())
    session.say(RUNS_TABLE.terminal(found.runs), "")
    session.say(*comparison_in_words(found))
    if given.comparison is not None:
        session.say(placed("Comparison", COMPARISONS.save(given.comparison, found)))
        session.record(manifests=sorted({run.manifest_sha256 for run in found.runs}))
    return found


def _write(reports: Sequence[ReportedRun], target: Path, kind: str, *, reveal: bool) -> list[Path]:
    """Write the report, and say which files."""
    if kind == "png":
        return export.write_pngs(reports, target, mode=PUBLIC)
    if kind == "html":
        content = report_page([one.run for one in reports], reveal=reveal, reports=reports).encode()
    elif kind == "markdown":
        content = export.as_markdown(reports).encode()
    else:
        content = {"json": export.as_json, "junit": export.as_junit, "sarif": export.as_sarif}[kind](reports)
    write_bytes(target, content, mode=PRIVATE if reveal else PUBLIC)
    return [target]


class Check(Arguments, frozen=True, kw_only=True):
    """What `coalmine check` takes.

    Attributes:
        junit: Also write the outcome of each rule as JUnit XML.
        policy: A policy; `coalmine init` writes one to start from.
        run: Directories with the results of one model, such as its own.
    """

    run: Annotated[list[Path], Argument()]
    policy: Path
    junit: Path | None = None


def check(given: Check, session: Session) -> int:
    """Check the results of a model against a policy, for a pipeline.

    Exits with 0 if every rule is shown to hold, 1 if one is shown to be broken, 2 if one is not shown either way or an input is
    wrong, and 70 if coalmine itself has a bug. A rule holds by the upper confidence limit and is broken by the lower one, beyond what
    chance explains. Nothing is measured here.
    """
    rules = gate.read_policy(given.policy)
    result = gate.check(read_run(*given.run), rules)
    if given.junit is not None:
        gate.write_junit(result, given.junit)
    session.say(gate.GATE.terminal(result.rules), *gate.gate_lines(result))
    session.document(result)
    return result.exit_code


class Init(Arguments, frozen=True, kw_only=True):
    """What `coalmine init` takes.

    Attributes:
        overwrite: Replace files that are there already.
        directory: The root of the project.
    """

    directory: Annotated[Path, Argument()] = Path()
    overwrite: bool = False


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
        run: coalmine check model --policy policy.toml
"""


def init(given: Init, session: Session) -> None:
    """Write policy.toml, with every rule in it, explained, and a GitHub workflow that runs `coalmine check` with it.

    Edit the limits of the policy, and the directory of the results in .github/workflows/coalmine.yml. Files that are there already are
    only replaced with --overwrite.
    """
    files = {
        given.directory / "policy.toml": gate.template().encode(),
        given.directory / WORKFLOW_FILE: WORKFLOW.encode(),
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
    session.say(
        *(placed("Wrote", path) for path in files), "Edit the limits of the policy, then run coalmine check."
    )
    session.document({"written": [str(path) for path in files]})


class Verify(Arguments, frozen=True, kw_only=True):
    """What `coalmine verify` takes.

    Attributes:
        model: A model, with which each certificate of `coalmine extract` is walked again.
        runs: Directories that coalmine wrote to: a model, its results, a planted corpus.
    """

    runs: Annotated[list[Path], Argument("RUN...")]
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
    found = verify_run(*given.runs, progress=session.progress())
    session.say(*verification_in_words(found))
    if given.model is None:
        session.document(found)
        return found.exit_code
    run = read_run(*given.runs)
    every = [one for part in (run, run.secrets) if part is not None for one in part.all(EXTRACTIONS)]
    searches = [one for one in every if one.document.method == "search"]
    if not searches:
        raise InputError("there is no search to replay; leave --model out, or name the directory of one")
    model, replays = load_model(given.model, given.loading), {}
    for path, extraction in searches:
        replays[str(path)] = replay = verify_certificate(model, extraction, progress=session.progress())
        problems = [f"Rejected: {visible(problem)}." for problem in replay.problems]
        confirmed = f"Confirmed, after {replay.expansions:,} expansions."
        session.say("", placed("Replayed", path), certificate_in_words(extraction), *problems or [confirmed])
    session.document({**msgspec.to_builtins(found), "replays": replays})
    return found.exit_code or (0 if all(one.confirmed for one in replays.values()) else 2)
