"""A report as one HTML file that needs nothing else: no network, no other file, and nothing in it that the run could make act."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import coalmine
from coalmine.audits.comparison.utility_figure import compared, utility_figure
from coalmine.evidence.findings import Finding
from coalmine.evidence.run import Run, names_of
from coalmine.reports.figures import Figure, figures_of
from coalmine.reports.findings import findings_of
from coalmine.reports.page.bundle import content_policy, drawing_script, page_file
from coalmine.reports.page.conclusion import Conclusion, conclusion_of
from coalmine.reports.page.parts import (
    answers,
    canaries_part,
    canary_table,
    comparison_part,
    extraction_part,
    figure_part,
    findings_part,
    recitation_part,
)
from coalmine.reports.page.record import record_part
from coalmine.reports.page.text import all_visible, embedded_json, escaped


class ReportedRun(NamedTuple):
    """A run with what the report says of it."""

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


def report_page(
    runs: Sequence[Run], *, reveal: bool = False, told: Sequence[ReportedRun] | None = None
) -> str:
    """The page; texts of secrets are in it only with `reveal`. `told` is what `reported` made of the runs, where it is there."""
    told = reported(runs) if told is None else told
    script = drawing_script()
    several = len(told) > 1
    store: dict[str, Any] = {"figures": {}, "tables": {}}
    sections = []
    comparison = compared(runs) if several else None
    if comparison is not None:
        figure = utility_figure(comparison)
        drawn = "" if figure is None else _drawn(store, figure, figure.figure_id, drawable=script is not None)
        sections.append(
            f'<section id="comparison"><h2>Comparison</h2>{drawn}{comparison_part(comparison)}</section>'
        )
    for place, one in enumerate(told):
        sections.append(
            _run_sections(store, one, place, several=several, drawable=script is not None, reveal=reveal)
        )
    if script is None:
        for figure in store["figures"].values():
            figure["panels"] = []
    return _page(told, sections, store, script, compared=comparison is not None)


def _drawn(store: dict[str, Any], figure: Figure, figure_id: str, *, drawable: bool, level: int = 3) -> str:
    store["figures"][figure_id] = {
        "panels": [{"specs": panel.specs, "datasets": panel.datasets} for panel in figure.panels],
        "columns": figure.columns,
        "rows": figure.rows,
    }
    return figure_part(figure, figure_id, drawable=drawable, level=level)


def _run_sections(
    store: dict[str, Any], one: ReportedRun, place: int, *, several: bool, drawable: bool, reveal: bool
) -> str:
    prefix = f"run-{place + 1}-" if several else ""
    run = one.run
    figures = [
        _drawn(store, figure, f"{prefix}{figure.figure_id}", drawable=drawable) for figure in figures_of(run)
    ]
    columns, rows = canary_table(run, reveal=reveal)
    details = []
    if rows:
        # Without texts the rows are those of a figure, and need not be in the page twice.
        store["tables"][f"{prefix}canaries"] = (
            {"columns": columns, "rows": rows} if reveal else {"figure": f"{prefix}exposure-by-repetitions"}
        )
        details.append(f"<h3>Canaries</h3>{canaries_part(columns, rows, f'{prefix}canaries')}")
    shown = [*extraction_part(run, reveal=reveal), *recitation_part(run, reveal=reveal)]
    if shown:
        details.append(f"<h3>Texts</h3>{''.join(shown)}")
    of_run = f" of {escaped(one.name)}" if several else ""
    none = "<p>There is no result yet that a figure could be drawn of.</p>"
    head = ""
    if several:
        head = f'<section id="{prefix}verdict"><h2>{escaped(one.name)}: {escaped(one.conclusion.sentence)}</h2>{answers(one.conclusion)}</section>'
    return (
        f'{head}<section id="{prefix}findings"><h2>Findings{of_run}</h2>{findings_part(one.findings)}</section>'
        f'<section id="{prefix}figures"><h2>Figures{of_run}</h2>{"".join(figures) or none}</section>'
        f'<section id="{prefix}details"><h2>Details{of_run}</h2>{"".join(details) or "<p>There are none.</p>"}</section>'
        f'<section id="{prefix}record"><h2>Record{of_run}</h2>{record_part(run, reveal=reveal)}</section>'
    )


def _page(
    told: Sequence[ReportedRun],
    sections: Sequence[str],
    store: dict[str, Any],
    script: str | None,
    *,
    compared: bool,
) -> str:
    scripts = [*([] if script is None else [script]), page_file("report.js")]
    title = ", ".join(one.name for one in told)
    several = len(told) > 1
    heading = f"{len(told)} models compared" if several else told[0].conclusion.sentence
    opening = (
        "<ul>"
        + "".join(
            f"<li><strong>{escaped(one.name)}</strong>: {escaped(one.conclusion.sentence)}</li>"
            for one in told
        )
        + "</ul>"
        if several
        else answers(told[0].conclusion)
    )
    links = [("comparison", "Comparison")] if compared else []
    for place, one in enumerate(told):
        if several:
            links.append((f"run-{place + 1}-verdict", one.name))
        else:
            links += [(name, name.capitalize()) for name in ("findings", "figures", "details", "record")]
    navigation = "".join(f'<li><a href="#{target}">{escaped(name)}</a></li>' for target, name in links)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escaped(content_policy(scripts))}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{escaped(title)} - coalmine report</title>\n<style>\n{page_file('report.css')}</style>\n</head>\n<body>\n"
        f'<a class="skip" href="#{links[0][0]}">Skip to the findings</a>\n'
        f'<header class="top"><p class="eyebrow">coalmine report on {escaped(title)}</p>\n<h1>{escaped(heading)}</h1>\n{opening}</header>\n'
        f'<nav class="sections" aria-label="Sections"><ul>{navigation}</ul></nav>\n<main>\n{"".join(sections)}\n</main>\n'
        f'<footer class="quiet">Made by coalmine {escaped(coalmine.__version__)}. This page is one file and loads nothing.</footer>\n'
        f'<script type="application/json" id="report-data">{embedded_json(all_visible(store))}</script>\n'
        + "".join(f"<script>{one}</script>\n" for one in scripts)
        + "</body>\n</html>\n"
    )
