"""The figure of extraction against exposure: which canaries come out, and at what cost.

After Figures 10 and 11 of The Secret Sharer, Carlini, Liu, Erlingsson, Kos and Song, 2019, arXiv:1802.08232.
"""

from __future__ import annotations

from coalmine.audits.exposure.figures import MOST_POINTS, names_of_formats
from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.exposure.table import height
from coalmine.audits.extraction.results import EXTRACTIONS, VERIFIED
from coalmine.evidence.charts import PALETTE, Axis, Chart, Marks, Rows, rounded, thinned
from coalmine.evidence.run import Run
from coalmine.evidence.words import times_in_words

_COLUMNS = ("canary", "format", "exposure (bits)", "trained on", "queries", "came out", "place")
_COLORS = {"yes": PALETTE[1], "no": PALETTE[0], "not within the budget": PALETTE[6]}
_SHAPES = {"yes": "circle", "no": "cross", "not within the budget": "triangle-up"}


def extraction_figure(run: Run) -> Chart | None:
    """Queries against exposure, or None if canaries were not searched for or have no exposures."""
    verified, measured = run.first(VERIFIED), run.first(EXPOSURES)
    if verified is None or measured is None:
        return None
    folder, names = run.all(VERIFIED)[0].path.parent, names_of_formats(run)
    # The queries that were spent on each format in the search for canaries.
    by_template = {
        one.document.format_template: one.document.certificate.expansions
        for one in run.all(EXTRACTIONS)
        if one.path.parent == folder
    }
    spent = {
        one.format_id: by_template[one.template] for one in measured.formats if one.template in by_template
    }
    exposures = {one.canary_id: one for one in measured.results if one.estimate.status != "not_measured"}
    rows: Rows = []
    for one in verified.canaries:
        result = exposures.get(one.canary_id)
        queries = one.expansions if one.extracted or result is None else spent.get(result.format_id)
        if result is None or not queries:
            continue
        rows.append(
            {
                "canary": one.canary_id,
                "format": names[result.format_id],
                "exposure (bits)": rounded(height(result)),
                "trained on": times_in_words(one.repetitions),
                "queries": queries,
                "came out": "yes" if one.extracted else "no" if one.proven else "not within the budget",
                "place": one.place,
            }
        )
    if not rows:
        return None
    by_height = sorted(rows, key=lambda row: (str(row["came out"]), float(row["exposure (bits)"])))
    outcomes = {str(row["came out"]) for row in rows}
    return Chart(
        id="exposure-and-extraction",
        title="Exposure against extraction and its cost",
        caption="Each point is a canary. One that came out is at the number of queries after which it was found; one that did not, at "
        "the number that was spent on its format.",
        rows=[by_height[place] for place in thinned(len(rows), MOST_POINTS)],
        columns=_COLUMNS,
        data=tuple(tuple(row[name] for name in _COLUMNS) for row in rows),
        x=Axis(column="exposure (bits)", grid=False),
        y=Axis(column="queries", title="queries (log)", scales=("log",)),
        marks=(
            Marks(kind="points", shows=("canary", "trained on", "came out", "exposure (bits)", "queries")),
        ),
        color="came out",
        colors=_COLORS,
        legend="came out",
        shape="came out",
        shapes={name: shape for name, shape in _SHAPES.items() if name in outcomes},
        panel="format",
        notes={names[name]: f"{many:,} queries were spent on this format." for name, many in spent.items()},
        height=240,
    )
