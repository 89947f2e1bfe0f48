"""`report_page`: a report as one HTML file that loads nothing, and in which nothing from a run can act."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

import coalmine
from coalmine.audits.registry import audits
from coalmine.evidence.charts import Chart
from coalmine.evidence.measures import Status
from coalmine.evidence.pages import all_visible, content_policy, drawing_script, templates
from coalmine.evidence.run import Run
from coalmine.evidence.tables import AcrossRuns, Detail, cell_text
from coalmine.grouped import grouped
from coalmine.records import Estimate
from coalmine.records.documents import RUN_RECORDS
from coalmine.reports.conclusion import (
    HEADINGS,
    Conclusion,
    ReportedRun,
    across_runs,
    figures_of,
    findings_by_status,
    label,
    reported,
)
from coalmine.reports.findings import Finding

if TYPE_CHECKING:
    from jinja2 import Environment

# Rows that are in the page before any script runs, rows of a figure's numbers, and cautions of a finding.
FIRST_ROWS, FIGURE_ROWS, CAUTIONS = 100, 40, 8
# The length of an answer on the first screen, in characters.
DETAIL_LENGTH = 260
RECORD = "Record"


class RunPart(NamedTuple):
    """What a page shows of one run."""

    # What the ids of its parts begin with; empty on a page about one run.
    prefix: str
    name: str
    conclusion: Conclusion
    findings: dict[Status, list[Finding]]
    # By the ids that they have on the page; the picture is the one of the first screen.
    picture: str
    figures: dict[str, Chart]
    # By their sections.
    details: dict[str, list[Detail]]
    record: list[Detail]


def report_page(
    runs: Sequence[Run], *, reveal: bool = False, reports: Sequence[ReportedRun] | None = None
) -> str:
    """The page, with texts of secrets only if `reveal`. `reports` is what `reported` returned for these runs, if the caller has it."""
    reports = reported(runs) if reports is None else reports
    several = len(reports) > 1
    across = across_runs(runs) if several else []
    parts = [
        _part(one, f"run-{place + 1}-" if several else "", reveal=reveal) for place, one in enumerate(reports)
    ]
    script = drawing_script()
    scripts = [*([] if script is None else [script]), page_file("report.js")]
    return (
        _environment()
        .get_template("report.html")
        .render(
            parts=parts,
            across=across,
            store=all_visible(_store(parts, across, drawable=script is not None)),
            several=several,
            drawable=script is not None,
            title=", ".join(one.name for one in reports),
            policy=content_policy(scripts),
            style=Markup(page_file("report.css")),  # noqa: S704 - our own
            scripts=[Markup(one) for one in scripts],  # noqa: S704 - our own
            version=coalmine.__version__,
        )
    )


def page_file(name: str) -> str:
    """A style sheet or script of the page."""
    return files("coalmine.reports").joinpath("page", name).read_text(encoding="utf-8")


def _environment() -> Environment:
    found = templates("coalmine.reports.page")
    found.filters |= {
        "shown": shown,
        "by_question": _by_question,
        "label": label,
        "shortened": _shortened,
        "cautions": _cautions,
    }
    found.tests["numeric"] = _is_number
    found.globals |= {"HEADINGS": HEADINGS, "FIRST_ROWS": FIRST_ROWS, "FIGURE_ROWS": FIGURE_ROWS}
    return found


def _part(one: ReportedRun, prefix: str, *, reveal: bool) -> RunPart:
    figures = {f"{prefix}{figure.id}": figure for figure in figures_of(one.run)}
    shown = (detail for audit in audits() for detail in audit.details(one.run, reveal))
    details = grouped((detail.section, detail) for detail in shown)
    return RunPart(
        prefix=prefix,
        name=one.name,
        conclusion=one.conclusion,
        findings=findings_by_status(one.findings),
        picture=next((name for name, figure in figures.items() if figure.leads), ""),
        figures=figures,
        record=record_of(one.run, details.pop(RECORD, [])),
        details=details,
    )


def _store(parts: Sequence[RunPart], across: Sequence[AcrossRuns], *, drawable: bool) -> dict[str, Any]:
    """What the scripts of the page read: the drawings and numbers of all figures, and tables that can be searched."""
    figures = {figure.id: figure for one in across for figure in one.figures}
    tables: dict[str, dict[str, Any]] = {}
    for part in parts:
        figures |= part.figures
        for detail in (one for details in part.details.values() for one in details):
            if detail.search is not None:
                name = detail.search.name
                kept = {"name": name, "columns": detail.columns, "rows": detail.rows}
                tables[f"{part.prefix}{name}"] = {**kept, "choice": detail.search.column}
    return {
        "figures": {
            figure_id: {
                "panels": [{"spec": one.spec, "datasets": one.datasets} for one in figure.panels if drawable],
                "columns": figure.columns,
                "rows": figure.table,
            }
            for figure_id, figure in figures.items()
        },
        "tables": tables,
    }


def _by_question(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings that answer the same question together, the most severe first; those that answer none by themselves."""
    return list(grouped((one.question or one.key, one) for one in findings).values())


def shown(cell: object) -> str:
    """A cell as a reader sees it.

    >>> [shown(cell) for cell in (None, True, 1234, 0.12345, 1234.5)]
    ['', 'yes', '1,234', '0.1235', '1,234.50']
    """
    if isinstance(cell, float):
        return f"{cell:,.4g}" if abs(cell) < 1 else f"{cell:,.2f}"
    return cell_text(cell)


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _shortened(text: str) -> str:
    return text if len(text) <= DETAIL_LENGTH else text[:DETAIL_LENGTH].rsplit(" ", 1)[0] + " …"


def _cautions(estimates: Sequence[Estimate]) -> dict[str, str]:
    """What the numbers assume and what to beware of, each once."""
    found = {
        "Assumes": dict.fromkeys(text for one in estimates for text in one.assumptions),
        "Beware": dict.fromkeys(text for one in estimates for text in one.warnings),
    }
    return {name: "; ".join(list(texts)[:CAUTIONS]) for name, texts in found.items() if texts}


def record_of(run: Run, of_audits: Sequence[Detail]) -> list[Detail]:
    """The tables of the record, with those that the audits add to it."""
    facts = [(name, _without_keys(str(value)[:400])) for name, value in (run.model or {}).items()]
    # Only their names: arguments may be parts of secrets, and the record of a run has them.
    commands = [
        (" ".join(map(str, given[:2])), *map(one.get, ("started_at", "elapsed_seconds", "seed")))
        for _, one in run.all(RUN_RECORDS)
        if isinstance(given := one.get("command"), list)
    ]
    measured = [
        (run.shown(one.path), kind.schema)
        for part in (run, run.secrets)
        if part is not None
        for kind, these in part.documents.items()
        for one in these
    ]

    def table(title: str, caption: str, columns: str, rows: list[tuple[Any, ...]]) -> Detail:
        return Detail(section=RECORD, title=title, caption=caption, columns=tuple(columns.split()), rows=rows)

    tables = [
        table("Model", "How the model describes itself", "fact value", facts),
        table("Commands", "Commands that made these results", "command started seconds seed", commands),
        *of_audits,
        table("Files", "Files that this report was made from", "file kind", measured),
    ]
    return [one for one in tables if one.rows]


def _without_keys(text: str) -> str:
    """Text in which no address has a password or a query, either of which may be a key.

    >>> _without_keys("https://me:secret@host/v1?key=secret")
    'https://•@host/v1?•'
    """
    return re.sub(r"(://[^\s?#]*)\?[^\s#]+", r"\1?•", re.sub(r"://[^\s/?#@]*@", "://•@", text))
