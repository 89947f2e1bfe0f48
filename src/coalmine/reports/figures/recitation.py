"""How much does a model recite, by repetitions, context and size, with the fit of each? (Quantifying Memorization, Figures 1 and 2.)"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from coalmine.audits.recitation_results import Group, Recitation
from coalmine.reports.figures.style import Figure, Spec, axis, data, rounded, spec, tooltips
from coalmine.reports.runs.reading import Run

By = Literal["repetitions", "context", "size"]
_AXES: dict[By, tuple[str, str]] = {
    "repetitions": ("Recitation by repetitions", "copies in the corpus"),
    "context": ("Recitation by context", "tokens of context"),
    "size": ("Recitation by model size", "parameters"),
}


def recitation_figures(run: Run) -> Iterator[Figure]:
    """A figure for each thing that at least two different values were tried of."""
    document = run.recitation
    if document is None:
        return
    for by in _AXES:
        figure = _figure(document, by)
        if figure is not None:
            yield figure


def _figure(document: Recitation, by: By) -> Figure | None:
    points = [point for group in document.groups if (point := _point(document, group, by)) is not None]
    if len({point["x"] for point in points}) < 2:
        return None
    lines = _lines(document, by, points)
    title, x_title = _AXES[by]
    context = (
        ""
        if document.main_context is None or by == "context"
        else f" with {document.main_context} tokens of context"
    )
    words = (
        f"The share of sequences whose last {document.settings.suffix} tokens greedy decoding writes exactly{context}, with exact "
        f"{100 * document.settings.confidence:g} % intervals; lines are least-squares fits on the logarithm."
    )
    return Figure(
        figure_id=f"recitation-by-{by}",
        title=title,
        caption=words + "".join(f" {line}" for line in _fit_words(document, by)),
        specs={
            name: _drawing(points, lines, x_title, scale)
            for name, scale in (("log axis", "log"), ("linear axis", "linear"))
        },
        columns=("model", x_title, "share recited", "low", "high", "sequences"),
        rows=tuple((p["model"], p["x"], p["share"], p["low"], p["high"], p["sequences"]) for p in points),
    )


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
        "share": rounded(group.recited.value, 6),
        "low": rounded(group.recited.low, 6),
        "high": rounded(group.recited.high, 6),
        "sequences": group.recited.n,
    }


def _place(document: Recitation, group: Group, by: By) -> float | None:
    if by == "repetitions":
        return rounded(group.mean_copies, 3)
    if by == "context":
        return group.context
    facts = next((model for model in document.models if model.name == group.model), None)
    return None if facts is None or facts.role == "baseline" else facts.parameters


def _lines(document: Recitation, by: By, points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    drawn = []
    for one in document.trends:
        if one.by != by or (by == "repetitions" and one.context != document.main_context):
            continue
        if by == "size" and one.context != document.main_context:
            continue
        own = [point["x"] for point in points if one.model is None or point["model"] == one.model]
        if not own or one.trend.intercept is None:
            continue
        for x in np.logspace(np.log10(min(own)), np.log10(max(own)), 30):
            rate = one.trend.rate_at(float(x))
            if rate is not None and 0.0 <= rate <= 1.0:
                drawn.append(
                    {"model": one.model or "all models", "x": rounded(x, 4), "share": rounded(rate, 6)}
                )
    return drawn


def _fit_words(document: Recitation, by: By) -> Iterator[str]:
    for one in document.trends:
        if (
            one.by == by
            and one.trend.intercept is not None
            and (by == "context" or one.context == document.main_context)
        ):
            fit = "" if one.trend.r_squared is None else f" (R² {one.trend.r_squared:.2f})"
            yield f"{one.model or 'All models'}: {one.trend.slope.statement}{fit}."


def _drawing(points: list[dict[str, Any]], lines: list[dict[str, Any]], x_title: str, scale: str) -> Spec:
    x = axis(
        "x",
        x_title,
        scale={"type": scale, "nice": False, "padding": 12},
        axis={"grid": False, "format": "~s", "tickCount": 6},
    )
    color = {"field": "model", "type": "nominal", "title": None}
    y_title, percent = "share recited", {"format": "~%"}
    layers: list[Spec] = [
        {
            "data": data(points),
            "mark": {"type": "rule", "strokeWidth": 1.5, "aria": False},
            "encoding": {
                "x": x,
                "y": axis("low", y_title, axis=percent),
                "y2": {"field": "high"},
                "color": color,
            },
        },
        {
            "data": data(points),
            "mark": {"type": "point", "filled": True, "size": 60},
            "encoding": {
                "x": x,
                "y": axis("share", y_title, axis=percent),
                "color": color,
                "tooltip": tooltips(
                    model="model",
                    x=x_title,
                    share="share recited",
                    low="low",
                    high="high",
                    sequences="sequences",
                ),
            },
        },
    ]
    if lines:
        layers.insert(
            0,
            {
                "data": data(lines),
                "mark": {"type": "line", "strokeDash": [5, 4], "opacity": 0.8, "aria": False},
                "encoding": {"x": x, "y": axis("share", y_title, axis=percent), "color": color},
            },
        )
    return spec(layers, description=f"Share of sequences recited against {x_title}.")
