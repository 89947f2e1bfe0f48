"""The exposure audit, as reports see it."""

from __future__ import annotations

from collections.abc import Iterator

from coalmine.audits.exposure import report
from coalmine.audits.exposure.data_checks import data_measures
from coalmine.audits.exposure.figures import FIGURE_ID, exposure_figure, histogram_figure
from coalmine.audits.exposure.results import EXPOSURES, Exposures
from coalmine.audits.exposure.table import canary_table, most_exposed_first
from coalmine.evidence.audit import Audit
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
    texts = {canary.canary_id: canary.text for canary in run.canaries or ()}
    times = sorted({result.repetitions for result in document.results})
    return canary_table(format_names(document.formats), texts).detail(
        most_exposed_first(document),
        reveal=reveal and bool(texts),
        section="Canaries",
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


EXPOSURE = Audit(
    name="exposure",
    command="coalmine expose",
    documents=(EXPOSURES,),
    measures=lambda run: [*report.measures(run), *data_measures(run)],
    rules=report.RULES,
    figures=lambda run: (exposure_figure(run), histogram_figure(run)),
    details=exposure_details,
)
