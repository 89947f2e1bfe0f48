"""From which exposure on do canaries come out, and at what cost? (Secret Sharer, Figures 10 and 11.)"""

from __future__ import annotations

from coalmine.reports.exposure_table import times_in_words
from coalmine.reports.figures.style import PALETTE, Figure, Spec, axis, data, rounded, spec, thinned, tooltips
from coalmine.reports.runs.reading import Run

MOST_POINTS = 2_000


def extraction_figure(run: Run) -> Figure | None:
    """Queries against exposure, or None where canaries were not looked for or have no exposures."""
    if run.verified is None or run.exposure is None:
        return None
    folder = run.verifications[0].path.parent
    spent = max(
        (one.document.certificate.expansions for one in run.extractions if one.path.parent == folder),
        default=0,
    )
    exposures = {result.canary_id: result for result in run.exposure.results}
    points = []
    for one in run.verified.canaries:
        result = exposures.get(one.canary_id)
        if result is None or result.estimate.status == "not_measured":
            continue
        bits = result.estimate.low if result.exposure is None else result.exposure
        queries = one.expansions if one.extracted else spent
        if bits is None or not queries:
            continue
        points.append(
            {
                "canary": one.canary_id,
                "bits": rounded(bits),
                "trained on": times_in_words(one.repetitions),
                "queries": queries,
                "came out": "yes" if one.extracted else "no" if one.proven else "not within the budget",
                "place": one.place,
            }
        )
    if not points:
        return None
    order = ["yes", "no", "not within the budget"]
    drawn = sorted(points, key=lambda point: (str(point["came out"]), float(point["bits"] or 0)))
    drawn = [drawn[place] for place in thinned(len(drawn), MOST_POINTS)]
    layer: Spec = {
        "data": data(drawn),
        "mark": {"type": "point", "filled": True, "size": 65, "opacity": 0.85},
        "encoding": {
            "x": axis("bits", "exposure (bits)", axis={"grid": False}),
            "y": axis("queries", "queries (log)", scale={"type": "log"}),
            "color": {
                "field": "came out",
                "type": "nominal",
                "sort": order,
                "scale": {"domain": order, "range": [PALETTE[1], PALETTE[0], PALETTE[6]]},
            },
            "shape": {
                "field": "came out",
                "type": "nominal",
                "sort": order,
                "scale": {"domain": order, "range": ["circle", "cross", "triangle-up"]},
            },
            "tooltip": tooltips(
                canary="canary",
                **{"trained on": "trained on", "came out": "came out"},
                bits="exposure (bits)",
                queries="queries",
            ),
        },
    }
    caption = (
        "Each point is a canary. One that came out stands at the number of queries after which it was found; one that did not, at the "
        f"number that was spent on its format ({spent:,} at most)."
    )
    return Figure(
        figure_id="exposure-and-extraction",
        title="Exposure against extraction and its cost",
        caption=caption,
        specs={
            "": spec(
                [layer],
                description="Queries spent against exposure, by whether a canary came out.",
                height=260,
            )
        },
        columns=("canary", "exposure (bits)", "trained on", "queries", "came out", "place"),
        rows=tuple(
            (p["canary"], p["bits"], p["trained on"], p["queries"], p["came out"], p["place"]) for p in points
        ),
    )
