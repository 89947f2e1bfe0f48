"""The tables of exposures on the page of a report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coalmine.audits.exposure.figures import CANARY_COLUMNS, FIGURE_ID, canary_row, most_exposed_first
from coalmine.audits.exposure.results import EXPOSURES, Exposures
from coalmine.evidence.details import Detail, Search
from coalmine.evidence.run import Run
from coalmine.evidence.words import format_names, times_in_words


def exposure_details(run: Run, reveal: bool) -> Iterator[Detail]:
    """All canaries, the most exposed first; and how each format was measured."""
    document = run.first(EXPOSURES)
    if document is None:
        return
    if document.results:
        yield _canaries(run, document, reveal)
    yield Detail(
        section="Record",
        title="Formats",
        columns=("format", "template", "members", "method", "because"),
        rows=[(one.format_id, one.template, one.size, one.method, one.why) for one in document.formats],
        caption="Formats and how they were measured",
    )


def _canaries(run: Run, document: Exposures, reveal: bool) -> Detail:
    names = format_names(document.formats)
    columns: tuple[str, ...] = CANARY_COLUMNS
    rows: list[tuple[Any, ...]] = [canary_row(one, names) for one in most_exposed_first(document)]
    if reveal and run.canaries:
        texts = {canary.canary_id: canary.text for canary in run.canaries}
        columns = (*columns, "text")
        rows = [(*row, texts.get(str(row[0]))) for row in rows]
    times = sorted({result.repetitions for result in document.results})
    return Detail(
        section="Canaries",
        columns=columns,
        rows=rows,
        caption="Canaries, the most exposed first",
        search=Search(
            name="canaries",
            column="trained on",
            label="Trained on",
            choices={one: times_in_words(one) for one in times},
            # Without texts the rows are those of the figure, and need not be in the page twice.
            figure="" if reveal else FIGURE_ID,
        ),
    )
