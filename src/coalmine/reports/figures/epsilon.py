"""What do the scores say of epsilon? Each lower bound for each population, beside the claimed one."""

from __future__ import annotations

from coalmine.audits.membership_results import Membership
from coalmine.reports.figures.style import (
    PALETTE,
    Figure,
    Spec,
    axis,
    colors_of,
    data,
    rounded,
    spec,
    tooltips,
)


def epsilon_figure(document: Membership) -> Figure:
    """What each method shows of epsilon, for each population: for one copy where a claim stands beside it, which is for one."""
    claim = document.verdict
    rows = []
    for population in document.populations:
        beside = () if population.independent is None else (population.independent,)
        for bound in (*population.epsilon, *beside, population.best):
            estimate = bound.canary if claim is None else bound.one_copy
            if estimate is None or estimate.status == "not_measured":
                continue
            at = estimate.value if estimate.low is None else estimate.low
            rows.append(
                {
                    "planted": population.name,
                    "method": estimate.method,
                    "low": rounded(at),
                    "high": rounded(at if estimate.high is None else estimate.high),
                    "kind": "point estimate" if estimate.low is None else "lower limit",
                    "copy": rounded(bound.one_copy.low if bound.one_copy is not None else None),
                    "ceiling": rounded(
                        population.epsilon_ceiling / (1 if claim is None else population.copies)
                    ),
                }
            )
    names = list(dict.fromkeys(str(row["planted"]) for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    y = axis(
        "method",
        "",
        "nominal",
        sort=methods,
        axis={"labelLimit": 150, "labelExpr": "split(datum.label, ', ')"},
    )
    color = colors_of(names, "planted", "planted")
    color["legend"] = {"symbolOpacity": 1, "columns": 2}
    ends = [float(row["high"] or 0.0) for row in rows] + ([] if claim is None else [claim.claimed_epsilon])
    scale = {"domain": [0, 1.05 * max([1.0, *ends])], "nice": False}
    aside = {"field": "planted", "sort": names}
    layers: list[Spec] = [
        {
            "data": data(rows),
            "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.5, "aria": False},
            "encoding": {
                "x": axis("low", "epsilon", scale=scale),
                "x2": {"field": "high"},
                "y": y,
                "yOffset": aside,
                "color": color,
            },
        },
        {
            "data": data(rows),
            "mark": {"type": "point", "filled": True, "size": 60},
            "encoding": {
                "x": axis("low", "epsilon", scale=scale),
                "y": y,
                "yOffset": aside,
                "color": color,
                "shape": {
                    "field": "kind",
                    "type": "nominal",
                    "legend": None,
                    "scale": {
                        "domain": ["lower limit", "point estimate"],
                        "range": ["triangle-right", "circle"],
                    },
                },
                "tooltip": tooltips(
                    planted="planted",
                    method="method",
                    low="epsilon at least",
                    copy="for one copy",
                    ceiling="most that could be shown",
                ),
            },
        },
    ]
    if claim is not None:
        layers.append(
            {
                "data": data([{"claimed": claim.claimed_epsilon}]),
                "mark": {"type": "rule", "strokeDash": [6, 4], "strokeWidth": 2, "color": PALETTE[7]},
                "encoding": {
                    "x": {"field": "claimed", "type": "quantitative"},
                    "tooltip": tooltips(claimed="claimed epsilon"),
                },
            }
        )
    said = (
        ""
        if claim is None
        else f" The dashed line is the claimed epsilon of {claim.claimed_epsilon:g}: {claim.words}."
    )
    whole = "a canary as a whole" if claim is None else "one copy of a canary"
    caption = (
        f"What each method shows of epsilon at delta {document.delta:g}, for {whole}, at {100 * document.confidence:g} % "
        f"confidence (the Bayesian interval, where there is one, is credible instead). A triangle is a lower limit; the circle of the median is a point estimate and no bound.{said}"
    )
    return Figure(
        figure_id="epsilon",
        title="Lower bounds on epsilon" + ("" if claim is None else ", beside the claimed one"),
        caption=caption,
        specs={
            "": spec(
                layers,
                description="Bounds on epsilon by method and population.",
                height=max(200, 14 * len(rows) + 60),
            )
        },
        columns=(
            "planted",
            "method",
            "epsilon at least",
            "upper end",
            "kind",
            "for one copy",
            "most that could be shown",
        ),
        rows=tuple(
            (r["planted"], r["method"], r["low"], r["high"], r["kind"], r["copy"], r["ceiling"]) for r in rows
        ),
    )
