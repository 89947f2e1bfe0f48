"""`reported`: runs with their findings, conclusions and figures, as every form of a report shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coalmine.audits.registry import COMPARISONS, audits
from coalmine.evidence.charts import Chart
from coalmine.evidence.measures import Status
from coalmine.evidence.run import Run, names_of
from coalmine.reports.conclusion import Conclusion, conclusion_of
from coalmine.reports.findings import Finding, findings_of

STATUS_WORDS: dict[Status, str] = {
    "found": "found",
    "clear": "clear",
    "not_tested": "not tested",
    "not_measured": "could not be measured",
}
HEADINGS: dict[Status, str] = {
    "found": "What was found",
    "not_measured": "What could not be measured",
    "not_tested": "What was not tested",
    "clear": "What was looked for and not found",
}


class ReportedRun(NamedTuple):
    """A run with its findings and their conclusion."""

    name: str
    run: Run
    findings: tuple[Finding, ...]
    conclusion: Conclusion


def reported(runs: Sequence[Run]) -> list[ReportedRun]:
    """Runs with their findings and conclusions."""
    found = []
    for name, run in zip(names_of(runs), runs, strict=True):
        findings = findings_of(run)
        found.append(ReportedRun(name, run, findings, conclusion_of(findings)))
    return found


def findings_by_status(findings: Sequence[Finding]) -> dict[Status, list[Finding]]:
    """The findings of each status that there are any of, in the order of a report."""
    found = {status: [one for one in findings if one.status == status] for status in HEADINGS}
    return {status: these for status, these in found.items() if these}


def label(finding: Finding) -> str:
    """The severity of what was found, and the status of everything else."""
    return finding.severity if finding.status == "found" else STATUS_WORDS[finding.status]


def figures_of(run: Run) -> list[Chart]:
    """The figures of one run."""
    return [figure for audit in audits() for figure in audit.figures(run) if figure is not None]


def comparing_figures(runs: Sequence[Run]) -> list[Chart]:
    """The figures that compare runs."""
    found = (one.across(runs) for one in COMPARISONS)
    return [figure for one in found if one is not None for figure in one.figures]
