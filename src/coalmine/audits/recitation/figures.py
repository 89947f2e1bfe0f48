"""The figures of recitation: the recited share by repetitions, context and model size, with the fit of each.

After Figures 1 and 2 of Quantifying Memorization Across Neural Language Models, Carlini, Ippolito, Jagielski, Lee, Tramer and
Zhang, 2022, arXiv:2202.07646.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from coalmine.audits.recitation.results import RECITATIONS, Group, Recitation, RecitationTrend
from coalmine.evidence import figures as draw
from coalmine.evidence.figures import Figure, Panel, Points, Spec
from coalmine.evidence.run import Run

By = Literal["repetitions", "context", "size"]
_AXES: dict[By, tuple[str, str]] = {
    "repetitions": ("Recitation by repetitions", "copies in the corpus"),
    "context": ("Recitation by context", "tokens of context"),
    "size": ("Recitation by model size", "parameters"),
}


def recitation_figures(run: Run) -> list[Figure]:
    """One figure for each quantity of which at least two values were tried."""
    document = run.first(RECITATIONS)
    curves = {} if document is None else _curves(document)
    return [_figure(document, by, points) for by, points in curves.items() if document is not None]


def recitation_chart(document: Recitation, *, columns: int = 3) -> Spec:
    """The same as one drawing for a file, on logarithmic axes; where no quantity has two values, the share by repetitions."""
    models = [model.name for model in document.models]
    at = "" if document.main_context is None else f", at {document.main_context} tokens of context"
    drawings = []
    for by, points in (_curves(document) or {"repetitions": _points(document, "repetitions")}).items():
        title = _AXES[by][1] + (at if by == "repetitions" else "")
        places = _apart(points, models, "log", apart=by != "size")
        drawings.append(_drawing(places, _lines(document, by, points), models, title, "log"))
    return draw.side_by_side(drawings, columns=columns)


def _curves(document: Recitation) -> dict[By, Points]:
    """The points of each quantity of which at least two values were tried."""
    found = {by: _points(document, by) for by in _AXES}
    return {by: points for by, points in found.items() if len({point["x"] for point in points}) > 1}


def _figure(document: Recitation, by: By, points: Points) -> Figure:
    lines = _lines(document, by, points)
    models = [model.name for model in document.models if any(p["model"] == model.name for p in points)]
    title, x_title = _AXES[by]
    context = (
        ""
        if document.main_context is None or by == "context"
        else f" with {document.main_context} tokens of context"
    )
    words = (
        f"The share of sequences whose last {document.settings.suffix} tokens greedy decoding writes exactly{context}, with exact "
        f"{100 * document.settings.confidence:g}% intervals; lines are least-squares fits on the logarithm."
    )
    if by != "size" and len(models) > 1:
        words += " Models that share a place are drawn a little apart."
    return Figure(
        figure_id=f"recitation-by-{by}",
        title=title,
        caption=words + "".join(f" {line}" for line in _fit_words(document, by)),
        panels=(
            Panel(
                specs={
                    name: _drawing(
                        _apart(points, models, scale, apart=by != "size"), lines, models, x_title, scale
                    )
                    for name, scale in (("log axis", "log"), ("linear axis", "linear"))
                }
            ),
        ),
        columns=("model", x_title, "share recited", "low", "high", "sequences"),
        rows=draw.rows_of(points, "model", "x", "share", "low", "high", "sequences"),
    )


def _points(document: Recitation, by: By) -> Points:
    """The shares that were measured, each at its place."""
    return [point for group in document.groups if (point := _point(document, group, by)) is not None]


def _point(document: Recitation, group: Group, by: By) -> dict[str, Any] | None:
    if group.recited.status != "measured" or group.length is not None:
        return None
    if (by == "repetitions") != (group.bucket is not None):
        return None
    if by != "context" and group.context != document.main_context:
        return None
    x = _place(document, group, by)
    if x is None:
        return None
    return {
        "model": group.model,
        "x": x,
        "share": draw.rounded(group.recited.value, 6),
        "low": draw.rounded(group.recited.low, 6),
        "high": draw.rounded(group.recited.high, 6),
        "sequences": group.recited.n,
    }


def _place(document: Recitation, group: Group, by: By) -> float | None:
    if by == "repetitions":
        return draw.rounded(group.mean_copies, 3)
    if by == "context":
        return group.context
    facts = next((model for model in document.models if model.name == group.model), None)
    return None if facts is None or facts.role == "baseline" else facts.parameters


def _trends(document: Recitation, by: By) -> list[RecitationTrend]:
    """The fits of this quantity: at the main context, unless it is the context that changes."""
    return [
        one
        for one in document.trends
        if one.by == by
        and one.trend.intercept is not None
        and (by == "context" or one.context == document.main_context)
    ]


def _lines(document: Recitation, by: By, points: Points) -> Points:
    drawn = []
    for one in _trends(document, by):
        own = [point["x"] for point in points if one.model is None or point["model"] == one.model]
        for x in np.logspace(np.log10(min(own)), np.log10(max(own)), 30) if own else ():
            rate = one.trend.rate_at(float(x))
            if rate is not None and 0.0 <= rate <= 1.0:
                place, share = draw.rounded(x, 4), draw.rounded(rate, 6)
                drawn.append({"model": one.model or "all models", "at": place, "share": share})
    return drawn


def _fit_words(document: Recitation, by: By) -> Iterator[str]:
    for one in _trends(document, by):
        fit = "" if one.trend.r_squared is None else f" (R² {one.trend.r_squared:.2f})"
        yield f"{one.model or 'All models'}: {one.trend.slope.statement}{fit}."


def _apart(points: Points, models: list[str], scale: str, *, apart: bool) -> Points:
    """Points with the place they are drawn at: models at the same place are drawn a little apart, so that none hides another."""
    least, most = min(point["x"] for point in points), max(point["x"] for point in points)

    def place(point: dict[str, Any]) -> float:
        step = 0.008 * (models.index(point["model"]) - (len(models) - 1) / 2) if apart else 0.0
        return float(
            point["x"] * (most / least) ** step if scale == "log" else point["x"] + (most - least) * step
        )

    return [{**point, "at": draw.rounded(place(point), 4)} for point in points]


def _drawing(points: Points, lines: Points, models: list[str], x_title: str, scale: str) -> Spec:
    x = draw.axis(
        "at",
        x_title,
        scale={"type": scale, "nice": False, "padding": 12},
        axis={"grid": False, "format": "~s", "tickCount": 6},
    )
    names = draw.short_names(models)
    points = [{**point, "name": names[point["model"]]} for point in points]
    lines = [{**line, "name": names.get(line["model"], line["model"])} for line in lines]
    color = draw.colors_of([names[model] for model in models], None, "name")
    low, share = (draw.axis(field, "share recited", axis={"format": "~%"}) for field in ("low", "share"))
    shown = draw.tooltips("model", ("x", x_title), ("share", "share recited"), "low", "high", "sequences")
    layers = [
        draw.layer(points, draw.INTERVAL, x=x, y=low, y2="high", color=color),
        draw.layer(points, draw.dots(60), x=x, y=share, color=color, tooltip=shown),
    ]
    line_mark = {"type": "line", "strokeDash": [5, 4], "opacity": 0.8, "aria": False, "color": draw.RULE}
    # The line of all models together has no color of its own, and is below those of single models.
    fitted = [
        draw.layer(these, line_mark, x=x, y=share, **extra)
        for own, extra in ((False, {}), (True, {"color": color}))
        if (these := [line for line in lines if (line["model"] in models) == own])
    ]
    return draw.spec([*fitted, *layers], description=f"Share of sequences recited against {x_title}.")
