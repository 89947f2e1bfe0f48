"""A report as JSON, Markdown, JUnit XML and SARIF, and its figures as PNG."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import coalmine
from coalmine.audits.registry import audited, not_audited
from coalmine.evidence.pages import png_of
from coalmine.reports.catalog import Severity
from coalmine.reports.conclusion import (
    HEADINGS,
    ReportedRun,
    comparing_figures,
    figures_of,
    findings_by_status,
    label,
)
from coalmine.reports.findings import SEVERITIES, Finding
from coalmine.storage.files import check_places, make_directory, to_json, write_bytes
from coalmine.visible import visible

SCHEMA = "coalmine.report/1"
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
# The level of each severity, and what a code host sorts by: 9 and above is critical, 7 high, 4 medium, above 0 low.
_LEVELS: dict[Severity, tuple[str, str]] = {
    "critical": ("error", "9.5"),
    "high": ("error", "8.0"),
    "medium": ("warning", "5.5"),
    "low": ("note", "2.0"),
    "info": ("note", "0.0"),
    "pass": ("none", "0.0"),
}


def as_json(reports: Sequence[ReportedRun]) -> bytes:
    """All findings with their numbers, and the conclusion of the report."""
    return to_json(
        {
            "schema": SCHEMA,
            "coalmine": coalmine.__version__,
            "runs": [
                {
                    "name": one.name,
                    "verdict": one.conclusion.sentence,
                    "answers": [answer._asdict() for answer in one.conclusion.answers],
                    "tested": audited(one.run),
                    "not_tested": not_audited(one.run),
                    "findings": one.findings,
                }
                for one in reports
            ],
        }
    )


def as_markdown(reports: Sequence[ReportedRun]) -> str:
    """Findings for a pull request or a wiki; text of the run is escaped."""
    lines = []
    for run in reports:
        lines += [f"# {_inline(run.name)}: {_inline(run.conclusion.sentence)}", ""]
        for answer in run.conclusion.answers:
            lines.append(f"- **{answer.question}** {_inline(answer.answer)}. {_inline(answer.detail)}")
        lines.append("")
        for status, these in findings_by_status(run.findings).items():
            lines += [f"## {HEADINGS[status]}", ""]
            for one in these:
                lines += [
                    f"### {one.code} {_inline(one.title)} ({label(one)})",
                    "",
                    _inline(one.evidence),
                    "",
                ]
                lines += [f"What to do: {_inline(one.advice)} See {one.docs}.", ""]
    return "\n".join(lines).rstrip() + "\n"


def _inline(text: str) -> str:
    """Text in which nothing is markup, except `code` in our own sentences."""
    safe = re.sub(r"([\\*_\[\]#|])", r"\\\1", visible(text))
    safe = safe.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # Addresses and names with an at sign would become links.
    safe = re.sub(r"(?i)(www)\.", r"\1&#46;", safe)
    return safe.replace("://", "&#58;//").replace("@", "&#64;")


class JunitCase(NamedTuple):
    """A test case: `tag` is "failure", "error", "skipped" or, for one that passed, "system-out"."""

    classname: str
    name: str
    tag: str
    message: str
    text: str


def junit(suites: Iterable[tuple[str, Sequence[JunitCase]]]) -> bytes:
    """JUnit XML of some suites with their names, in which hostile text is inert."""
    root = ET.Element("testsuites", name="coalmine")
    for name, cases in suites:
        tags = Counter(case.tag for case in cases)
        counts = {"failures": tags["failure"], "errors": tags["error"], "skipped": tags["skipped"]}
        numbers = {key: str(number) for key, number in {"tests": len(cases), **counts}.items()}
        suite = ET.SubElement(root, "testsuite", {"name": visible(name), **numbers})
        for case in cases:
            there = ET.SubElement(
                suite, "testcase", classname=visible(case.classname), name=visible(case.name)
            )
            said = ET.SubElement(there, case.tag)
            if case.tag != "system-out":
                said.set("message", visible(case.message))
            said.text = "\n".join(map(visible, case.text.splitlines()))
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def as_junit(reports: Sequence[ReportedRun]) -> bytes:
    """One test case per finding: what was found with severity medium or above fails, and what was not tested or measured is skipped."""
    return junit(
        (
            one.name,
            [
                JunitCase(
                    f"coalmine.{one.name}",
                    f"{finding.code} {finding.title}",
                    _junit_tag(finding),
                    f"{label(finding)}: {finding.evidence}",
                    f"{finding.evidence} What to do: {finding.advice}",
                )
                for finding in one.findings
            ],
        )
        for one in reports
    )


def _junit_tag(finding: Finding) -> str:
    if finding.status in {"not_tested", "not_measured"}:
        return "skipped"
    fails = finding.status == "found" and finding.severity in {"critical", "high", "medium"}
    return "failure" if fails else "system-out"


def as_sarif(reports: Sequence[ReportedRun]) -> bytes:
    """Findings for a code host; what is clear passes, and what was not tested or measured is open for review."""
    worst: dict[str, Finding] = {}
    for finding in sorted(
        (one for report in reports for one in report.findings), key=lambda one: SEVERITIES.index(one.severity)
    ):
        worst.setdefault(finding.code, finding)
    rules = [
        {
            "id": code,
            "name": re.sub(r"\W", "", one.title.title()),
            "shortDescription": {"text": one.title},
            "help": {"text": one.advice, "markdown": f"{one.advice} See `{one.docs}`."},
            "properties": {"tags": ["security", "privacy"], "security-severity": _LEVELS[one.severity][1]},
        }
        for code, one in sorted(worst.items())
    ]
    results = [_sarif_result(finding, one) for one in reports for finding in one.findings]
    tool = {"driver": {"name": "coalmine", "version": coalmine.__version__, "rules": rules}}
    return to_json(
        {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [{"tool": tool, "results": results}]}
    )


def _sarif_result(finding: Finding, one: ReportedRun) -> dict[str, Any]:
    kind = {"found": "fail", "clear": "pass", "not_tested": "notApplicable", "not_measured": "review"}[
        finding.status
    ]
    text = visible(f"{one.name}: {finding.title}. {finding.evidence} What to do: {finding.advice}")
    # Nothing in it is a link or a placeholder, both of which messages may have.
    text = re.sub(r"([\[\]])", r"\\\1", text).replace("{", "{{").replace("}", "}}")
    return {
        "ruleId": finding.code,
        "kind": kind,
        # The standard allows a level other than "none" only for what failed.
        "level": _LEVELS[finding.severity][0] if kind == "fail" else "none",
        "message": {"text": text},
        # A model has no line of code; the page about the finding is a place that every host can show.
        "locations": [
            {"physicalLocation": {"artifactLocation": {"uri": finding.docs}, "region": {"startLine": 1}}}
        ],
        "partialFingerprints": {"coalmine/v1": f"{visible(one.name)}/{finding.code}/{finding.title}"},
        "properties": {"severity": finding.severity, "subject": [visible(one) for one in finding.subject]},
    }


def write_pngs(reports: Sequence[ReportedRun], directory: Path, *, mode: int) -> list[Path]:
    """Each figure as a PNG in a directory, named after the figure, and after the run if there are several."""
    drawn = {f"{_file_name(one.id)}.png": one for one in comparing_figures([one.run for one in reports])}
    for place, report in enumerate(reports, 1):
        prefix = f"run-{place}-" if len(reports) > 1 else ""
        drawn |= {f"{prefix}{_file_name(one.id)}.png": one for one in figures_of(report.run)}
    check_places(make_directory(directory), *drawn)
    for name, figure in drawn.items():
        write_bytes(directory / name, png_of(figure), mode=mode)
    return [directory / name for name in drawn]


def _file_name(figure_id: str) -> str:
    """An id with only characters that are safe in file names; format ids are chosen by users."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", figure_id).lstrip(".")
