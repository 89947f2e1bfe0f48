"""The figure of `coalmine compare`: utility against exposure with the Pareto frontier, as a Vega-Lite specification."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

from coalmine.audits.comparison.results import Comparison
from coalmine.errors import InputError
from coalmine.evidence.drawing import save_drawing
from coalmine.evidence.words import format_names
from coalmine.storage.files import PUBLIC, to_json, write_bytes

KINDS = (".svg", ".html", ".png", ".json")
ON_FRONTIER = "on the frontier"
# Distinct for readers with red-green color blindness.
_ON, _BEATEN = "#0072B2", "#D55E00"


def comparison_figure(comparison: Comparison, *, width: int = 420, height: int = 320) -> dict[str, Any]:
    """The figure as Vega-Lite 6, one drawing per format; a run without a place in it is left out."""
    points = points_of(comparison)
    formats = list(dict.fromkeys(point["format"] for point in points))
    x = {
        "field": "utility",
        "type": "quantitative",
        "title": comparison.utility_name,
        "axis": {"tickCount": 6},
        "scale": {"zero": False, "padding": 20, "reverse": comparison.higher_is_better},
    }
    y = {
        "field": "exposure",
        "type": "quantitative",
        "title": "median exposure (bits)",
        "scale": {"zero": True},
    }
    drawing: dict[str, Any] = {"width": width, "height": height, "layer": _layers(x, y)}
    if len(formats) > 1:
        # Exposures in spaces of different size are not on one axis.
        facet = {"field": "format", "type": "nominal", "title": None, "sort": formats}
        drawing = {
            "facet": facet,
            "columns": 1,
            "spec": drawing,
            "resolve": {"scale": {"y": "independent"}},
        }
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": "Utility of each training against the exposure of its canaries; lower and further left is better.",
        "data": {"values": points},
        **drawing,
    }


def _layers(x: dict[str, Any], y: dict[str, Any]) -> list[dict[str, Any]]:
    """The frontier, the intervals of both axes, the points and their names."""
    return [
        {
            # The frontier goes from the best utility down to the least exposure, in steps: between two points nothing is known. It is
            # that of single trainings; of several, the means are compared, which have no point here.
            "transform": [{"filter": "datum.alone && datum.frontier == '" + ON_FRONTIER + "'"}],
            "mark": {"type": "line", "interpolate": "step-after", "strokeDash": [4, 3], "color": _ON},
            "encoding": {"x": x, "y": y, "order": {"field": "order", "type": "quantitative"}},
        },
        {
            "mark": {"type": "rule", "opacity": 0.6},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
        },
        {
            "transform": [{"filter": "isValid(datum.utility_low)"}],
            "mark": {"type": "rule", "opacity": 0.6},
            "encoding": {"x": {**x, "field": "utility_low"}, "x2": {"field": "utility_high"}, "y": y},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
            "encoding": {
                "x": x,
                "y": y,
                "color": {
                    "field": "frontier",
                    "type": "nominal",
                    "title": None,
                    "scale": {"domain": [ON_FRONTIER, "beaten"], "range": [_ON, _BEATEN]},
                },
                "tooltip": [
                    {"field": name} for name in ("run", "utility", "exposure", "low", "high", "canaries")
                ],
            },
        },
        {
            "mark": {"type": "text", "align": "left", "dx": 8, "dy": -8},
            "encoding": {"x": x, "y": y, "text": {"field": "run"}},
        },
    ]


def points_of(comparison: Comparison) -> list[dict[str, Any]]:
    """Each run that can be placed in the figure, for each format."""
    points = []
    templates = dict.fromkeys(run.template for run in comparison.runs)
    names = format_names({str(place): template for place, template in enumerate(templates)})
    by_template = dict(zip(templates, names.values(), strict=True))
    of_first = [run for run in comparison.runs if run.template == comparison.runs[0].template]
    sides = Counter(run.side or run.name for run in of_first)
    for run in comparison.runs:
        if run.on_frontier is None or run.utility is None or run.utility.value is None:
            continue
        points.append(
            {
                "run": run.name,
                "format": by_template[run.template],
                "utility": run.utility.value,
                "utility_low": run.utility.low,
                "utility_high": run.utility.high,
                "exposure": run.exposure.value,
                "low": run.exposure.low,
                "high": run.exposure.high,
                "canaries": run.canaries,
                "alone": sides[run.side or run.name] == 1,
                "frontier": ON_FRONTIER if run.on_frontier else "beaten",
                "order": -run.utility.value if comparison.higher_is_better else run.utility.value,
            }
        )
    return points


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
