"""Which of several models is worth its exposure? Validation loss against exposure, with the Pareto frontier (Secret Sharer, Figure 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coalmine.audits.exposure_results import ExposureDocument, ExposureResult
from coalmine.records import Estimate
from coalmine.reports.figures.style import INK, Figure, Spec, axis, data, rounded, spec, tooltips
from coalmine.reports.runs.reading import Run, names_of
from coalmine.statistics.medians import median_estimate


def utility_figure(runs: Sequence[Run]) -> Figure | None:
    """Loss against the median exposure of each run, or None where fewer than two runs have both."""
    points = []
    for name, run in zip(names_of(runs), runs, strict=True):
        loss, document = run.validation_loss_bits, run.exposure
        if loss is None or document is None:
            continue
        trained = [
            one for one in document.results if one.repetitions > 0 and one.estimate.status != "not_measured"
        ]
        if not trained:
            continue
        middle = _median(trained, document)
        points.append(
            {
                "run": name,
                "loss": rounded(loss),
                "bits": rounded(middle.low if middle.value is None else middle.value),
                "low": rounded(middle.low),
                "high": rounded(middle.high),
                "canaries": middle.n,
            }
        )
    if len(points) < 2:
        return None
    frontier = _frontier(points)
    x = axis(
        "loss", "validation loss (bits a token)", scale={"zero": False, "padding": 14}, axis={"grid": False}
    )
    color = {"field": "run", "type": "nominal", "title": None}
    layers: list[Spec] = [
        {
            "data": data(frontier),
            "mark": {
                "type": "line",
                "strokeDash": [5, 4],
                "color": INK,
                "interpolate": "step-after",
                "aria": False,
            },
            "encoding": {"x": x, "y": axis("bits", "median exposure (bits)")},
        },
        {
            "data": data(points),
            "mark": {"type": "rule", "strokeWidth": 1.5, "aria": False},
            "encoding": {
                "x": x,
                "y": axis("low", "median exposure (bits)"),
                "y2": {"field": "high"},
                "color": color,
            },
        },
        {
            "data": data(points),
            "mark": {"type": "point", "filled": True, "size": 90},
            "encoding": {
                "x": x,
                "y": axis("bits", "median exposure (bits)"),
                "color": color,
                "tooltip": tooltips(
                    run="run", loss="validation loss", bits="median exposure", low="low", high="high"
                ),
            },
        },
    ]
    best = ", ".join(str(point["run"]) for point in frontier)
    return Figure(
        figure_id="utility-and-exposure",
        title="Utility against exposure",
        caption="Lower is better on both axes. The dashed line is the Pareto frontier: no other run is better in both "
        f"({best}). Intervals are those of the median over canaries; losses have none, because those of single documents are not kept.",
        specs={
            "": spec(layers, description="Median exposure against validation loss of each run.", height=280)
        },
        columns=(
            "run",
            "validation loss (bits a token)",
            "median exposure (bits)",
            "low",
            "high",
            "canaries",
        ),
        rows=tuple((p["run"], p["loss"], p["bits"], p["low"], p["high"], p["canaries"]) for p in points),
    )


def _median(trained: Sequence[ExposureResult], document: ExposureDocument) -> Estimate:
    """The median exposure in bits, with an interval that holds whatever is not known of each."""
    most = max(facts.size_bits for facts in document.formats)
    known = [one.exposure for one in trained]
    lows = [
        float(one.estimate.low or 0.0) if bits is None else bits
        for one, bits in zip(trained, known, strict=True)
    ]
    highs = [most if bits is None else bits for bits in known]
    return median_estimate(lows, highs, most=most)


def _frontier(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The points that no other one beats in both, from the lowest loss on."""
    best: list[dict[str, Any]] = []
    for point in sorted(points, key=lambda one: (one["loss"], one["bits"])):
        if not best or point["bits"] < best[-1]["bits"]:
            best.append(point)
    return best
