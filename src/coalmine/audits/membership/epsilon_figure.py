"""The figure of epsilon: each lower bound for each population, one panel per format, next to the claimed epsilon."""

from __future__ import annotations

import textwrap
from typing import Any

from coalmine.audits.membership.results import Membership, Population, times_in_words
from coalmine.evidence import figures as draw
from coalmine.evidence.figures import Figure, Panel, Points, Spec
from coalmine.evidence.words import FormatNames, format_names

# A label of an axis is broken here, in letters, and its lines are joined by this in the data.
LABEL_WIDTH, LINE = 17, " | "
# What such labels leave of the room for a legend, in px.
LEGEND_ROOM = 200
POOLED = draw.PALETTE[2]


_SHAPES = {"lower limit": "triangle-right", "point estimate": "circle"}
_COLUMNS = {
    "format": "format",
    "planted": "planted",
    "method": "method",
    "low": "epsilon at least",
    "high": "upper end",
    "kind": "kind",
    "copy": "for one copy",
    "ceiling": "most that could be shown",
}


def epsilon_figure(document: Membership, known: FormatNames | None = None) -> Figure:
    """What each method shows about epsilon, for each population: for one copy if there is a claim, which is about one copy.

    `known` are names of formats that the run has; those of the populations themselves are taken otherwise.
    """
    names = known or format_names(
        {one.format_id: one.template for one in document.populations if one.format_id and one.template}
    )
    rows = [row for population in document.populations for row in _rows(document, population, names)]
    copies = draw.copies_colors(one.copies for one in document.populations if not one.pooled)
    claim = document.verdict
    said = (
        ""
        if claim is None
        else f" The dashed line is the claimed epsilon of {claim.claimed_epsilon:g}: {claim.words}."
    )
    whole = "a canary as a whole" if claim is None else "one copy of a canary"
    ends = [float(row["high"] or 0.0) for row in rows] + ([] if claim is None else [claim.claimed_epsilon])
    most = 1.05 * max([1.0, *ends])
    return Figure(
        figure_id="epsilon",
        title="Lower bounds on epsilon" + ("" if claim is None else ", and the claimed epsilon"),
        caption=f"What each method shows about epsilon at delta {document.delta:g}, for {whole}, at {100 * document.confidence:g}% "
        "confidence (the Bayesian interval, where there is one, is credible instead). A triangle is a lower limit; the circle of the "
        f"median is a point estimate and not a bound.{said}",
        panels=tuple(
            Panel(title=name, specs={"": _drawing(own, copies, most, document)})
            for name, own in (draw.by_format(rows) or {"": []}).items()
        ),
        columns=tuple(_COLUMNS.values()),
        rows=draw.rows_of(rows, *_COLUMNS),
    )


def _rows(document: Membership, population: Population, names: FormatNames) -> Points:
    claimed = document.verdict is not None
    named = "" if population.format_id is None else names[population.format_id]
    planted = times_in_words(population.copies, pooled=population.pooled)
    rows: Points = []
    beside = () if population.independent is None else (population.independent,)
    for bound in (*population.epsilon, *beside, population.best):
        estimate = bound.one_copy if claimed else bound.canary
        if estimate is None or estimate.status == "not_measured":
            continue
        at = estimate.value if estimate.low is None else estimate.low
        rows.append(
            {
                "format": named,
                "planted": planted,
                "copies": None if population.pooled else population.copies,
                "method": estimate.method,
                "label": LINE.join(textwrap.wrap(estimate.method.replace(LINE, " "), LABEL_WIDTH)),
                "low": draw.rounded(at),
                "high": draw.rounded(at if estimate.high is None else estimate.high),
                "kind": "point estimate" if estimate.low is None else "lower limit",
                "copy": draw.rounded(bound.one_copy.low if bound.one_copy is not None else None),
                "ceiling": draw.rounded(
                    population.one_copy_ceiling if claimed else population.epsilon_ceiling
                ),
            }
        )
    return rows


def _drawing(rows: Points, copies: dict[int, str], most: float, document: Membership) -> Spec:
    colors = {row["planted"]: POOLED if row["copies"] is None else copies[row["copies"]] for row in rows}
    labels = list(dict.fromkeys(row["label"] for row in rows))
    channels: dict[str, Any] = {
        "y": draw.axis(
            "label",
            "",
            "nominal",
            sort=labels,
            axis={"labelLimit": 0, "labelExpr": f"split(datum.label, '{LINE}')"},
        ),
        "yOffset": {"field": "planted", "sort": list(colors)},
        "color": draw.color_channel(colors, "planted", "planted", LEGEND_ROOM),
    }
    x = draw.axis("low", "epsilon", scale={"domain": [0, most], "nice": False}, axis={"tickCount": 5})
    scale = {"domain": list(_SHAPES), "range": list(_SHAPES.values())}
    shape = {"field": "kind", "type": "nominal", "legend": None, "scale": scale}
    shown = draw.tooltips(
        *((name, _COLUMNS[name]) for name in ("planted", "method", "low", "copy", "ceiling"))
    )
    rules = {"type": "rule", "strokeWidth": 2, "opacity": 0.5, "aria": False}
    layers = [
        draw.layer(rows, rules, x=x, x2="high", **channels),
        draw.layer(rows, draw.dots(60, opacity=1), x=x, **channels, shape=shape, tooltip=shown),
    ]
    if document.verdict is not None:
        dashed = {"type": "rule", "strokeDash": [6, 4], "strokeWidth": 2, "color": draw.PALETTE[7]}
        claimed = {"field": "claimed", "type": "quantitative"}
        told = draw.tooltips(("claimed", "claimed epsilon"))
        layers.append(
            draw.layer([{"claimed": document.verdict.claimed_epsilon}], dashed, x=claimed, tooltip=told)
        )
    height = max(160, 13 * len(rows) + 20, 60 * len(labels))
    return draw.spec(layers, description="Bounds on epsilon by method and population.", height=height)
