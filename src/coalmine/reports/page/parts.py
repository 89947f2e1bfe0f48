"""The parts of a page: findings, figures, canaries, what came out, and the record of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from coalmine.audits.comparison.results import Comparison
from coalmine.audits.exposure.figures import CANARY_COLUMNS, canary_row, most_exposed_first
from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.extraction.results import EXTRACTIONS
from coalmine.audits.recitation.results import RECITATIONS
from coalmine.evidence.figures import Figure, Panel
from coalmine.evidence.findings import Finding, FindingStatus
from coalmine.evidence.run import Run
from coalmine.evidence.words import format_names, times_in_words
from coalmine.records import Estimate
from coalmine.reports.page.conclusion import Conclusion
from coalmine.reports.page.text import escaped, hidden, hidden_member, prose, table

# Rows that are in the page before any script runs, and rows of a figure's numbers that it shows.
FIRST_ROWS, FIGURE_ROWS = 100, 40
# Pairs of runs that it tells of.
COMPARED = 20
STATUS_WORDS: dict[FindingStatus, str] = {
    "found": "found",
    "clear": "clear",
    "not_tested": "not tested",
    "not_measured": "could not be measured",
}
HEADINGS: dict[FindingStatus, str] = {
    "found": "What was found",
    "not_measured": "What could not be measured",
    "not_tested": "What was not tested",
    "clear": "What was looked for and not found",
}


def answers(conclusion: Conclusion) -> str:
    """The three questions of the first screen."""
    return (
        '<ul class="answers">'
        + "".join(
            f'<li class="tone-{one.tone}"><p class="question">{escaped(one.question)}</p>'
            f'<p class="answer">{escaped(one.answer)}</p><p class="detail">{prose(_shortened(one.detail))}</p></li>'
            for one in conclusion.answers
        )
        + "</ul>"
    )


def _shortened(text: str, most: int = 260) -> str:
    return text if len(text) <= most else text[:most].rsplit(" ", 1)[0] + " …"


def findings_part(findings: Sequence[Finding], level: int = 2) -> str:
    """All findings: those found in full, what was left open in full, what was not tested and what is clear in short."""
    parts = []
    for status, heading in HEADINGS.items():
        these = [one for one in findings if one.status == status]
        if these:
            parts.append(f"<h{level + 1}>{heading} ({len(these)})</h{level + 1}>")
            parts.append(_short(these) if status == "not_tested" else "".join(_article(one) for one in these))
    return "".join(parts)


def _short(these: Sequence[Finding]) -> str:
    items = "".join(
        f'<li><span class="code">{one.code}</span> <strong>{escaped(one.title)}.</strong> {prose(one.evidence)} {prose(one.advice)}</li>'
        for one in these
    )
    return f'<ul class="brief">{items}</ul>'


def _article(one: Finding) -> str:
    label = one.severity if one.status == "found" else STATUS_WORDS[one.status]
    numbers = ""
    if one.estimates:
        rows = [_estimate_row(estimate) for estimate in one.estimates[:20]]
        caption = f"Numbers behind {one.code}"
        numbers = f"<details><summary>Numbers</summary>{table(_ESTIMATE_COLUMNS, rows, caption=caption)}{_cautions(one.estimates)}</details>"
    return (
        f'<article class="finding severity-{one.severity}"><header><span class="code">{one.code}</span>'
        f'<strong>{escaped(one.title)}</strong> <span class="badge">{escaped(label)}</span></header>'
        f"<p>{prose(one.evidence)}</p><p><strong>What to do:</strong> {prose(one.advice)}</p>{numbers}"
        f'<p class="quiet">More: <code>{escaped(one.docs)}</code></p></article>'
    )


_ESTIMATE_COLUMNS = ("value", "low", "high", "confidence", "n", "method", "in words")


def _estimate_row(estimate: Estimate) -> tuple[Any, ...]:
    value: Any = estimate.value
    if value is None:
        value = "at least" if estimate.status == "lower_bound" else "not measured"
    return (
        value,
        estimate.low,
        estimate.high,
        estimate.confidence,
        estimate.n,
        estimate.method,
        estimate.statement,
    )


def _cautions(estimates: Sequence[Estimate]) -> str:
    told = {
        "Assumes": dict.fromkeys(text for one in estimates for text in one.assumptions),
        "Beware": dict.fromkeys(text for one in estimates for text in one.warnings),
    }
    return "".join(
        f'<p class="note">{name}: {"; ".join(escaped(text) for text in list(texts)[:8])}.</p>'
        for name, texts in told.items()
        if texts
    )


def figure_part(figure: Figure, figure_id: str, *, drawable: bool, level: int = 3) -> str:
    """A figure with its caption, its panels, its tools and its numbers as a table."""
    names = figure.axes
    axes = ""
    if drawable and len(names) > 1:
        axes = "".join(
            f'<button type="button" data-axes="{escaped(name)}" aria-pressed="{"true" if place == 0 else "false"}">{escaped(name)}</button>'
            for place, name in enumerate(names)
        )
    svg = '<button type="button" data-save="svg">Save as SVG</button>' if drawable else ""
    more = f'<p class="note">The first {FIGURE_ROWS} of {len(figure.rows):,} rows; all of them are saved as data.</p>'
    numbers = table(figure.columns, figure.rows[:FIGURE_ROWS], caption=f"Numbers of: {figure.title}")
    drawing = (
        f'<div class="controls"></div><div class="panels">{"".join(_panel(one, level + 1) for one in figure.panels)}</div>'
        if drawable
        else "<p class=note>The drawing needs vl-convert-python: pip install 'coalmine[figures]'. Its numbers are below.</p>"
    )
    return (
        f'<figure data-figure="{escaped(figure_id)}" aria-labelledby="{escaped(figure_id)}-title">'
        f'<h{level} id="{escaped(figure_id)}-title">{escaped(figure.title)}</h{level}>'
        f"<figcaption>{prose(figure.caption)}</figcaption>{drawing}"
        f'<div class="tools">{axes}{svg}<button type="button" data-save="data">Save as data (CSV)</button></div>'
        f"<details><summary>The numbers<span class=unseen> of {escaped(figure.title)}</span></summary>{numbers}"
        f"{more if len(figure.rows) > FIGURE_ROWS else ''}</details></figure>"
    )


def _panel(panel: Panel, level: int) -> str:
    """The place of one drawing, with what it is of in words, which wrap where a drawing's would be cut."""
    title = f"<h{level}><code>{escaped(panel.title)}</code></h{level}>" if panel.title else ""
    note = f'<p class="note">{prose(panel.note)}</p>' if panel.note else ""
    return f'<div class="panel">{title}{note}<div class="drawing"></div></div>'


def comparison_part(comparison: Comparison) -> str:
    """What the differences between runs are, and what stands in the way of comparing them."""
    said = "".join(f"<li>{escaped(pair.statement)}.</li>" for pair in comparison.pairs[:COMPARED])
    more = len(comparison.pairs) - COMPARED
    left = (
        f'<p class="note">And {more:,} more pairs: <code>coalmine compare</code> has them.</p>'
        if more > 0
        else ""
    )
    notes = "".join(
        f'<p class="note">{prose(f"{text[:1].upper()}{text[1:]}.")}</p>' for text in comparison.warnings
    )
    about = (
        '<p class="note">This is what <code>coalmine compare</code> says, whose options the notes name.</p>'
    )
    return f"<ul>{said}</ul>{left}{about}{notes}"


def canary_table(run: Run, *, reveal: bool) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Columns and rows of all canaries, the most exposed first; texts only where they were asked for."""
    exposure = run.first(EXPOSURES)
    if exposure is None:
        return (), []

    texts = (
        {canary.canary_id: canary.text for canary in run.canaries}
        if reveal and run.canaries is not None
        else {}
    )
    columns = (*CANARY_COLUMNS, "text") if texts else CANARY_COLUMNS
    names = format_names(exposure.formats)
    rows: list[tuple[Any, ...]] = [canary_row(one, names) for one in most_exposed_first(exposure)]
    if texts:
        rows = [(*row, texts.get(str(row[0]))) for row in rows]
    return columns, rows


def canaries_part(columns: Sequence[str], rows: Sequence[tuple[Any, ...]], table_id: str) -> str:
    """The canaries: the first of them in the page, all of them by a script."""
    times = sorted({row[CANARY_COLUMNS.index("trained on")] for row in rows})
    options = "".join(f'<option value="{one}">{times_in_words(one)}</option>' for one in times)
    first = table(columns, rows[:FIRST_ROWS], caption="Canaries, the most exposed first")
    return (
        f'<div data-canaries="{escaped(table_id)}"><div class="pager">'
        f'<label>Search <input type="search"></label>'
        f'<label>Trained on <select><option value="">all</option>{options}</select></label>'
        '<button type="button" data-page="earlier">Earlier</button><button type="button" data-page="later">Later</button>'
        f'<span role="status">{min(len(rows), FIRST_ROWS):,} of {len(rows):,}</span>'
        f'<button type="button" data-save="canaries">Save as data (CSV)</button></div>{first}</div>'
    )


def extraction_part(run: Run, *, reveal: bool) -> Iterator[str]:
    """What came out of each format, masked unless it was asked for."""
    for located in run.all(EXTRACTIONS):
        result = located.document
        rows = [
            (
                one.place,
                one.text if reveal else hidden_member(one.text, result.format_template, run.canaries),
                one.log_perplexity_bits,
                one.expansions,
                one.unaided,
            )
            for one in result.found
        ]
        where = run.shown(located.path)
        proof = (
            "proven to be the least surprising there are"
            if result.proven
            else "not proven to be the least surprising"
        )
        yield (
            f"<h4>What came out of <code>{escaped(result.format_template)}</code></h4>"
            f'<p class="quiet">{escaped(where)}: {escaped(result.method)} over {int(result.size):,} members, {proof}, '
            f"after {result.certificate.expansions:,} queries.</p>"
            + table(
                ("place", "member", "log-perplexity (bits)", "found after (queries)", "greedy finds it"),
                rows,
                caption=f"Members found in {where}",
            )
        )


def recitation_part(run: Run, *, reveal: bool) -> Iterator[str]:
    """Examples of what is recited, masked unless they were asked for here and when they were made."""
    document = run.first(RECITATIONS)
    if document is None or not document.examples:
        return
    show = reveal and document.revealed

    def text(given: str) -> str:
        return given if show else hidden(given)[:60]

    rows = [
        (one.copies, one.context, text(one.prompt), text(one.suffix), ", ".join(one.recited_by))
        for one in document.examples
    ]
    yield "<h4>Examples of what is recited</h4>" + table(
        ("copies", "context", "prompt", "recited", "by"), rows, caption="Examples of recited text"
    )
