"""The figure of extraction against exposure: which canaries come out, and at what cost.

After Figures 10 and 11 of The Secret Sharer, Carlini, Liu, Erlingsson, Kos and Song, 2019, arXiv:1802.08232.
"""

from __future__ import annotations

from collections.abc import Mapping

from coalmine.audits.exposure.format_panels import names_of_formats
from coalmine.audits.exposure.results import EXPOSURES, Exposures
from coalmine.audits.extraction.results import EXTRACTIONS, VERIFIED, Verified
from coalmine.evidence import figures as draw
from coalmine.evidence.figures import Figure, Panel, Points, Spec
from coalmine.evidence.run import Run
from coalmine.evidence.words import FormatNames, times_in_words

MOST_POINTS = 2_000
CAME_OUT = {
    "yes": (draw.PALETTE[1], "circle"),
    "no": (draw.PALETTE[0], "cross"),
    "not within the budget": (draw.PALETTE[6], "triangle-up"),
}


def extraction_figure(run: Run) -> Figure | None:
    """Queries against exposure, or None if canaries were not searched for or have no exposures."""
    verified, measured = run.first(VERIFIED), run.first(EXPOSURES)
    if verified is None or measured is None:
        return None
    spent = _spent(run)
    names = names_of_formats(run)
    points = _points(verified, measured, names, spent)
    if not points:
        return None
    panels = draw.by_format(points)
    searched = {names[format_id]: many for format_id, many in spent.items()}
    return Figure(
        figure_id="exposure-and-extraction",
        title="Exposure against extraction and its cost",
        caption="Each point is a canary. One that came out is at the number of queries after which it was found; one that did not, at "
        "the number that was spent on its format.",
        panels=tuple(
            Panel(
                title=name,
                note=f"{searched[name]:,} queries were spent on this format." if name in searched else "",
                specs={"": _drawing(own)},
            )
            for name, own in panels.items()
        ),
        columns=("canary", "format", "exposure (bits)", "trained on", "queries", "came out", "place"),
        rows=draw.rows_of(points, "canary", "format", "bits", "trained on", "queries", "came out", "place"),
    )


def _points(verified: Verified, measured: Exposures, names: FormatNames, spent: Mapping[str, int]) -> Points:
    """Each canary that was searched for and has an exposure."""
    exposures = {result.canary_id: result for result in measured.results}
    points: Points = []
    for one in verified.canaries:
        result = exposures.get(one.canary_id)
        if result is None or result.estimate.status == "not_measured":
            continue
        bits = result.estimate.low if result.exposure is None else result.exposure
        queries = one.expansions if one.extracted else spent.get(result.format_id)
        if bits is None or not queries:
            continue
        points.append(
            {
                "canary": one.canary_id,
                "format": names[result.format_id],
                "bits": draw.rounded(bits),
                "trained on": times_in_words(one.repetitions),
                "queries": queries,
                "came out": "yes" if one.extracted else "no" if one.proven else "not within the budget",
                "place": one.place,
            }
        )
    return points


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


def _drawing(points: Points) -> Spec:
    drawn = sorted(points, key=lambda point: (str(point["came out"]), float(point["bits"])))
    drawn = [drawn[place] for place in draw.thinned(len(drawn), MOST_POINTS)]
    shown = [name for name in CAME_OUT if any(point["came out"] == name for point in drawn)]
    points_layer = draw.layer(
        drawn,
        draw.dots(65, opacity=0.85),
        x=draw.axis("bits", "exposure (bits)", axis={"grid": False}),
        y=draw.axis("queries", "queries (log)", scale={"type": "log"}),
        color=draw.color_channel({name: CAME_OUT[name][0] for name in shown}, "came out", "came out"),
        # The same channel with shapes in place of colors, so that both have one legend.
        shape=draw.color_channel({name: CAME_OUT[name][1] for name in shown}, "came out", "came out"),
        tooltip=draw.tooltips("canary", "trained on", "came out", ("bits", "exposure (bits)"), "queries"),
    )
    description = "Queries spent against exposure, by whether a canary came out."
    return draw.spec([points_layer], description=description, height=240)
