"""`coalmine report`: the results of one or more runs on one page."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coalmine.cli.output import placed
from coalmine.cli.runner import Session
from coalmine.cli.taking import Arguments, Part
from coalmine.errors import InputError
from coalmine.visible import visible

if TYPE_CHECKING:
    from coalmine.audits.comparison.records import Comparison
    from coalmine.evidence.run import Located
    from coalmine.reports.conclusion import ReportedRun
    from coalmine.reports.findings import Finding


class ReportFormat(StrEnum):
    """The formats of a report."""

    HTML = "html"
    JSON = "json"
    MARKDOWN = "markdown"
    JUNIT = "junit"
    SARIF = "sarif"
    PNG = "png"


DEFAULT_NAMES = {
    ReportFormat.HTML: "report.html",
    ReportFormat.JSON: "report.json",
    ReportFormat.MARKDOWN: "report.md",
    ReportFormat.JUNIT: "report.junit.xml",
    ReportFormat.SARIF: "report.sarif",
    ReportFormat.PNG: "report-figures",
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

    runs: Annotated[list[str], typer.Argument(metavar="[LABEL=]RUN...")]
    out: Path | None = None
    format: ReportFormat = ReportFormat.HTML
    reveal: bool = False
    loss: Annotated[list[float] | None, Part(title="Comparing models")] = None
    comparison: Annotated[Path | None, Part(title="Comparing models")] = None


def report(given: Report, session: Session) -> None:
    """Put the results of one or more runs on one page: the verdict, the findings, the figures and the record.

    The page is one file that loads nothing. What was not tested and what could not be measured is listed as such. Results of
    several models become one report that compares them: loss against exposure. Runs with the same canaries are compared canary by
    canary. Only several trainings on each side, given by labels, can show that one way of training is to be preferred.
    """
    from coalmine.audits.comparison.measure import labeled_runs
    from coalmine.audits.comparison.records import COMPARISONS
    from coalmine.audits.runs import read_runs
    from coalmine.reports.conclusion import reported
    from coalmine.storage.files import check_place

    kind, target = given.format, given.out or Path(DEFAULT_NAMES[given.format])
    if given.reveal and kind is not ReportFormat.HTML:
        raise InputError(f"--reveal is for html: a report as {kind.value} holds no texts; leave it out")
    if kind is not ReportFormat.PNG:
        if target.is_dir():
            target /= DEFAULT_NAMES[kind]
        check_place(target)
    labels, paths = labeled_runs(given.runs)
    runs, compared = read_runs(*paths), None
    if any(labels) or given.loss or given.comparison is not None:
        compared = _compared(given, labels, paths, session)
        runs = (runs[0].with_added(COMPARISONS, compared), *runs[1:])
    reports = reported(runs)
    written = _write(reports, target, kind, reveal=given.reveal)
    for one in reports:
        session.say(f"{visible(one.name)}: {visible(one.conclusion.sentence)}")
        session.say(f"Findings: {_counts(one.findings)}.")
    session.say(placed("Report", target) if written else "No result can be drawn as a figure.")
    session.document(
        {
            "report": str(target),
            "written": [str(path) for path in written],
            "verdicts": [one.conclusion.sentence for one in reports],
            "comparison": None if compared is None else compared.document,
        }
    )


def _compared(
    given: Report, labels: list[str | None], paths: list[Path], session: Session
) -> Located[Comparison]:
    """The runs compared with what was said of them, shown, and written where that is wanted."""
    from coalmine.audits.comparison.measure import compare_runs
    from coalmine.audits.comparison.records import COMPARISONS
    from coalmine.audits.comparison.report import PAIRS_TABLE, RUNS_TABLE, comparison_in_words
    from coalmine.evidence.run import Located

    directory = given.comparison
    if directory is not None:
        session.into(directory, COMPARISONS.file)
    found = compare_runs(paths, labels=labels, loss=given.loss or ())
    session.say(
        RUNS_TABLE.terminal(found.runs),
        "",
        PAIRS_TABLE.terminal(found.pairs),
        "",
        *comparison_in_words(found),
    )
    if directory is not None:
        session.say(placed("Comparison", COMPARISONS.save(directory, found)))
        session.record(manifests=sorted({run.manifest_sha256 for run in found.runs}))
    return Located(directory or Path(COMPARISONS.file), found)


def _write(reports: Sequence[ReportedRun], target: Path, kind: ReportFormat, *, reveal: bool) -> list[Path]:
    """Write the report, and say which files."""
    from coalmine.reports import export
    from coalmine.reports.page.html import report_page
    from coalmine.storage.files import PRIVATE, PUBLIC, write_bytes

    mode = PRIVATE if reveal else PUBLIC
    if kind is ReportFormat.PNG:
        return export.write_pngs(reports, target, mode=mode)
    if kind is ReportFormat.HTML:
        content = report_page([one.run for one in reports], reveal=reveal, reports=reports).encode()
    elif kind is ReportFormat.MARKDOWN:
        content = export.as_markdown(reports).encode()
    elif kind is ReportFormat.JUNIT:
        content = export.as_junit(reports)
    else:
        content = (export.as_json if kind is ReportFormat.JSON else export.as_sarif)(reports) + b"\n"
    write_bytes(target, content, mode=mode)
    return [target]


def _counts(these: Sequence[Finding]) -> str:
    from coalmine.reports.conclusion import STATUS_WORDS
    from coalmine.reports.findings import SEVERITIES

    parts = []
    for severity in SEVERITIES[:-1]:
        number = sum(one.severity == severity and one.status == "found" for one in these)
        if number:
            parts.append(f"{number} {severity}")
    for status, words in STATUS_WORDS.items():
        number = sum(one.status == status for one in these)
        if number and status != "found":
            parts.append(f"{number} {words}")
    return ", ".join(parts)
