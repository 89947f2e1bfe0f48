"""The figure of utility against exposure with the Pareto frontier, for the page of a report and as a file of its own.

After Figure 5 of The Secret Sharer, Carlini, Liu, Erlingsson, Kos and Song, 2019, arXiv:1802.08232.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from coalmine.audits.comparison.results import Comparison
from coalmine.errors import InputError
from coalmine.evidence import figures as draw
from coalmine.evidence.drawing import save_drawing
from coalmine.evidence.figures import Figure, Panel, Points, Spec
from coalmine.evidence.words import format_names
from coalmine.storage.files import PUBLIC, to_json, write_bytes

KINDS = (".svg", ".html", ".png", ".json")
# Distinct for readers with red-green color blindness.
_COLORS = {"on the frontier": "#0072B2", "beaten": "#D55E00"}
_LOSS, _EXPOSURE = "validation loss (bits per token)", "median exposure (bits)"
_COLUMNS = {
    "format": "format",
    "run": "run",
    "utility": _LOSS,
    "exposure": _EXPOSURE,
    "low": "low",
    "high": "high",
    "canaries": "canaries",
}


def utility_figure(comparison: Comparison) -> Figure | None:
    """Loss against the median exposure of each run, or None if fewer than two can be placed; the warnings of the comparison say why."""
    points = _points(comparison)
    names = draw.short_names([str(point["run"]) for point in points])
    points = [
        {**point, "name": names[str(point["run"])], "utility": draw.rounded(point["utility"])}
        for point in points
    ]
    panels = {name: own for name, own in draw.by_format(points).items() if len(own) > 1}
    if not panels:
        return None
    x = draw.axis("utility", _LOSS, scale={"zero": False, "padding": 14}, axis={"grid": False})
    y = draw.axis("exposure", _EXPOSURE)
    color = draw.colors_of(list(names.values()), None, "name")
    words = "Median exposure against validation loss of each run."
    return Figure(
        figure_id="utility-and-exposure",
        title="Utility against exposure",
        caption="Lower is better on both axes. The dashed line is the Pareto frontier of single trainings: no other run is better in one "
        "and no worse in the other. Intervals are those of the median over canaries; losses have none, because those of single documents "
        "are not kept.",
        panels=tuple(
            Panel(
                title=name,
                note=_frontier_in_words(own),
                specs={"": draw.spec(_layers(own, x, y, color), description=words, height=280)},
            )
            for name, own in panels.items()
        ),
        columns=tuple(_COLUMNS.values()),
        rows=draw.rows_of([point for own in panels.values() for point in own], *_COLUMNS),
    )


def comparison_figure(comparison: Comparison, *, width: int = 420, height: int = 320) -> Spec:
    """The figure as Vega-Lite 6, one drawing per format; a run without a place in it is left out."""
    points = _points(comparison)
    formats = list(draw.by_format(points))
    scale = {"zero": False, "padding": 20, "reverse": comparison.higher_is_better}
    x = draw.axis("utility", comparison.utility_name, axis={"tickCount": 6}, scale=scale)
    y = draw.axis("exposure", _EXPOSURE, scale={"zero": True})
    names = draw.layer(None, {"type": "text", "align": "left", "dx": 8, "dy": -8}, x=x, y=y, text="run")
    layers = [*_layers(None, x, y, draw.color_channel(_COLORS, None, "frontier")), names]
    drawing: Spec = {"width": width, "height": height, "layer": layers}
    if len(formats) > 1:
        # Exposures in spaces of different size are not on one axis.
        facet = {"field": "format", "type": "nominal", "title": None, "sort": formats}
        apart = {"scale": {"y": "independent"}}
        drawing = {"facet": facet, "columns": 1, "spec": drawing, "resolve": apart}
    return {
        "$schema": draw.SCHEMA,
        "description": "Utility of each training against the exposure of its canaries; lower and further left is better.",
        "data": draw.data(points),
        **drawing,
    }


def save_figure(comparison: Comparison, path: str | os.PathLike[str]) -> Path:
    """Draw the figure as .svg, .png or a self-contained .html, or write its description as .json."""
    target = Path(path)
    figure = comparison_figure(comparison)
    if target.suffix not in KINDS:
        raise InputError(f"a figure ends in {', '.join(KINDS)}, got {target.name!r}; name it so")
    if not figure["data"]["values"]:
        raise InputError("no run has a place in the figure; the notes of the comparison say why")
    if target.suffix == ".json":
        write_bytes(target, to_json(figure) + b"\n")
        return target
    save_drawing(figure, target, title=f"{comparison.utility_name} against exposure", mode=PUBLIC)
    return target


def _points(comparison: Comparison) -> Points:
    """Each run that can be placed in the figure, for each format."""
    templates = dict.fromkeys(run.template for run in comparison.runs)
    names = format_names({str(place): template for place, template in enumerate(templates)})
    by_template = dict(zip(templates, names.values(), strict=True))
    of_first = [run for run in comparison.runs if run.template == comparison.runs[0].template]
    sides = Counter(run.side or run.name for run in of_first)
    return [
        {
            "run": run.name,
            "format": by_template[run.template],
            "utility": run.utility.value,
            "utility_low": run.utility.low,
            "utility_high": run.utility.high,
            "exposure": draw.rounded(run.exposure.value),
            "low": draw.rounded(run.exposure.low),
            "high": draw.rounded(run.exposure.high),
            "canaries": run.canaries,
            "frontier": "on the frontier" if run.on_frontier else "beaten",
            # The line is that of single trainings; of several, the means are compared, which have no point here.
            "in_line": run.on_frontier and sides[run.side or run.name] == 1,
            "order": -run.utility.value if comparison.higher_is_better else run.utility.value,
        }
        for run in comparison.runs
        if run.on_frontier is not None and run.utility is not None and run.utility.value is not None
    ]


def _layers(rows: Points | None, x: Spec, y: Spec, color: Spec) -> list[Spec]:
    shown = draw.tooltips("run", ("utility", x["title"]), ("exposure", _EXPOSURE), "low", "high", "canaries")
    return frontier_layers(rows, x, y, color, shown)


def frontier_layers(rows: Points | None, x: Spec, y: Spec, color: Spec, shown: list[Spec]) -> list[Spec]:
    """The frontier, the intervals of both axes, and the points, which have `shown` as tooltips.

    The rows have the fields of `x` and `y`, `low` and `high` of the latter, `utility_low` and `utility_high` of the former or None, whether
    they are `in_line` on the frontier, and their `order` along it.
    """
    # From the best utility down to the least exposure, in steps: between two points nothing is known.
    steps = {"type": "line", "interpolate": "step-after", "strokeDash": [5, 4], "aria": False}
    order = {"field": "order", "type": "quantitative"}
    low, utility_low = {**y, "field": "low"}, {**x, "field": "utility_low"}
    return [
        draw.layer(rows, {**steps, "color": draw.RULE}, "datum.in_line", x=x, y=y, order=order),
        draw.layer(rows, draw.INTERVAL, x=x, y=low, y2="high", color=color),
        draw.layer(
            rows,
            draw.INTERVAL,
            "isValid(datum.utility_low)",
            x=utility_low,
            x2="utility_high",
            y=y,
            color=color,
        ),
        draw.layer(rows, draw.dots(90), x=x, y=y, color=color, tooltip=shown),
    ]


def _frontier_in_words(points: Points) -> str:
    best = [str(point["run"]) for point in sorted(points, key=lambda one: one["order"]) if point["in_line"]]
    return f"On the frontier: {', '.join(best)}." if best else ""
