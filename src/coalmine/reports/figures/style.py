"""What do all figures share? One record for a figure, one look, and names for axes; Vega-Lite as plain data, without a browser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
# Colors that readers who see red and green alike can tell apart, on light and on dark paper.
PALETTE = ("#0b84c6", "#d5642b", "#149a75", "#b8579a", "#b48a00", "#7b6fd0", "#5f7f8c", "#c23b4e")
INK, FAINT, BAND = "#55606b", "#d9dee3", "#8a949e"
HEIGHT = 300

Spec = dict[str, Any]
Cell = str | int | float | bool | None


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure with the numbers it shows; `specs` are drawings of the same numbers by the name of their axes, the usual one first."""

    figure_id: str
    title: str
    # What it shows and how to read it.
    caption: str
    specs: dict[str, Spec]
    # Rows that several layers and drawings share, by the name that they ask for them by.
    datasets: dict[str, list[dict[str, Any]]] = {}
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def spec(layers: Sequence[Spec], *, description: str, height: int = HEIGHT, **parts: Any) -> Spec:
    """Layers over the same axes, as wide as the page."""
    return {
        "$schema": SCHEMA,
        "description": description,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": {
            "background": None,
            "font": "system-ui, sans-serif",
            "view": {"stroke": None},
            "axis": {
                "gridColor": FAINT,
                "domainColor": INK,
                "tickColor": INK,
                "labelColor": INK,
                "titleColor": INK,
                "labelFontSize": 12,
                "labelSeparation": 6,
                "titleFontSize": 12,
                "titleFontWeight": "normal",
            },
            "legend": {
                "labelColor": INK,
                "titleColor": INK,
                "labelFontSize": 12,
                "titleFontSize": 12,
                "titleFontWeight": "normal",
                "orient": "top",
            },
            "range": {"category": list(PALETTE)},
        },
        "layer": list(layers),
        **parts,
    }


def data(rows: Sequence[dict[str, Any]]) -> Spec:
    """Rows that stand in the figure itself."""
    return {"values": list(rows)}


def named(name: str) -> Spec:
    """Rows that stand in the figure's `datasets`."""
    return {"name": name}


def axis(field: str, title: str, kind: str = "quantitative", **parts: Any) -> Spec:
    """A channel with a title; `scale` and `axis` are merged into it as they are given."""
    return {"field": field, "type": kind, "title": title, **parts}


def tooltips(**titles: str) -> list[Spec]:
    """Fields with the titles that a reader sees when pointing at a mark."""
    return [{"field": field, "title": title} for field, title in titles.items()]


def colors_of(names: Sequence[str], title: str | None, field: str) -> Spec:
    """A color for each name, in order, the same in every figure; what was never trained on is gray."""
    colors = iter(PALETTE * (len(names) // len(PALETTE) + 1))
    return {
        "field": field,
        "type": "nominal",
        "title": title,
        "sort": list(names),
        "scale": {
            "domain": list(names),
            "range": [BAND if name == "never" else next(colors) for name in names],
        },
        "legend": {"symbolOpacity": 1, "columns": 4},
    }


def rounded(number: float | None, digits: int = 4) -> float | None:
    """A number as a page needs it, which keeps the file small.

    >>> rounded(1.23456789), rounded(None)
    (1.2346, None)
    """
    return None if number is None else round(float(number), digits)


def thinned(count: int, most: int) -> list[int]:
    """Places of at most `most` of `count` things in order, evenly spread, the first and the last among them.

    >>> thinned(10, 4), thinned(3, 4)
    ([0, 3, 6, 9], [0, 1, 2])
    """
    if count <= most:
        return list(range(count))
    return [round(place * (count - 1) / (most - 1)) for place in range(most)]
