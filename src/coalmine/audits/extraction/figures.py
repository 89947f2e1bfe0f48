"""The figure of extraction against exposure: which canaries come out, and at what cost.

After Figures 10 and 11 of The Secret Sharer, Carlini, Liu, Erlingsson, Kos and Song, 2019, arXiv:1802.08232.
"""

from __future__ import annotations

from collections.abc import Mapping

from coalmine.audits.exposure.figures import names_of_formats
from coalmine.audits.exposure.results import EXPOSURES, Exposures
from coalmine.audits.extraction.results import EXTRACTIONS, VERIFIED, Verified
from coalmine.evidence.charts import PALETTE, Axis, Chart, Marks, Rows, rounded, thinned
from coalmine.evidence.run import Run
from coalmine.evidence.words import FormatNames, times_in_words

MOST_POINTS = 2_000
_COLUMNS = ("canary", "format", "exposure (bits)", "trained on", "queries", "came out", "place")
_COLORS = {"yes": PALETTE[1], "no": PALETTE[0], "not within the budget": PALETTE[6]}
_SHAPES = {"yes": "circle", "no": "cross", "not within the budget": "triangle-up"}


def extraction_figure(run: Run) -> Chart | None:
    """Queries against exposure, or None if canaries were not searched for or have no exposures."""
    verified, measured = run.first(VERIFIED), run.first(EXPOSURES)
    if verified is None or measured is None:
        return None
    spent = _spent(run)
    names = names_of_formats(run)
    every = _rows(verified, measured, names, spent)
    if not every:
        return None
    by_height = sorted(every, key=lambda row: (str(row["came out"]), float(row["exposure (bits)"])))
    rows = [by_height[place] for place in thinned(len(every), MOST_POINTS)]
    return Chart(
        id="exposure-and-extraction",
        title="Exposure against extraction and its cost",
        caption="Each point is a canary. One that came out is at the number of queries after which it was found; one that did not, at "
        "the number that was spent on its format.",
        rows=rows,
        columns=_COLUMNS,
        data=tuple(tuple(row[name] for name in _COLUMNS) for row in every),
        x=Axis(column="exposure (bits)", grid=False),
        y=Axis(column="queries", title="queries (log)", scales=("log",)),
        marks=(
            Marks(kind="points", shows=("canary", "trained on", "came out", "exposure (bits)", "queries")),
        ),
        color="came out",
        colors=_COLORS,
        legend="came out",
        shape="came out",
        shapes={
            name: shape for name, shape in _SHAPES.items() if any(row["came out"] == name for row in rows)
        },
        panel="format",
        notes={
            names[format_id]: f"{many:,} queries were spent on this format."
            for format_id, many in spent.items()
        },
        height=240,
    )


def _rows(verified: Verified, measured: Exposures, names: FormatNames, spent: Mapping[str, int]) -> Rows:
    """Each canary that was searched for and has an exposure."""
    exposures = {result.canary_id: result for result in measured.results}
    rows: Rows = []
    for one in verified.canaries:
        result = exposures.get(one.canary_id)
        if result is None or result.estimate.status == "not_measured":
            continue
        bits = result.estimate.low if result.exposure is None else result.exposure
        queries = one.expansions if one.extracted else spent.get(result.format_id)
        if bits is None or not queries:
            continue
        rows.append(
            {
                "canary": one.canary_id,
                "format": names[result.format_id],
                "exposure (bits)": rounded(bits),
                "trained on": times_in_words(one.repetitions),
                "queries": queries,
                "came out": "yes" if one.extracted else "no" if one.proven else "not within the budget",
                "place": one.place,
            }
        )
    return rows


def _spent(run: Run) -> dict[str, int]:
    """The queries that were spent on each format in the search for canaries."""
    folder = run.all(VERIFIED)[0].path.parent
    by_template = {
        one.document.format_template: one.document.certificate.expansions
        for one in run.all(EXTRACTIONS)
        if one.path.parent == folder
    }
    exposures = run.first(EXPOSURES)
    formats = () if exposures is None else exposures.formats
    return {
        facts.format_id: by_template[facts.template] for facts in formats if facts.template in by_template
    }
