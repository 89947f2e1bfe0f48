"""The figures of recitation: the recited share by repetitions, context and model size, with the fit of each.

After Figures 1 and 2 of Quantifying Memorization Across Neural Language Models, Carlini, Ippolito, Jagielski, Lee, Tramer and
Zhang, 2022, arXiv:2202.07646.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from coalmine.audits.recitation.results import RECITATIONS, Group, Recitation, RecitationTrend
from coalmine.evidence.charts import Axis, Chart, Marks, Rows, intervals, named_colors, rounded, short_names
from coalmine.evidence.run import Run

By = Literal["repetitions", "context", "size"]
_AXES: dict[By, tuple[str, str]] = {
    "repetitions": ("Recitation by repetitions", "copies in the corpus"),
    "context": ("Recitation by context", "tokens of context"),
    "size": ("Recitation by model size", "parameters"),
}
_SHARE = "share recited"


def recitation_figures(run: Run) -> list[Chart]:
    """One figure for each quantity of which at least two values were tried."""
    document = run.first(RECITATIONS)
    return [] if document is None else recitation_charts(document)


def recitation_charts(document: Recitation, *, whatever: bool = False) -> list[Chart]:
    """The same for one result; with `whatever`, the share by repetitions where no quantity has two values."""
    found = {by: _rows(document, by) for by in _AXES}
    curves = {by: rows for by, rows in found.items() if len({row[_AXES[by][1]] for row in rows}) > 1}
    if whatever and not curves:
        curves["repetitions"] = found["repetitions"]
    return [_chart(document, by, rows) for by, rows in curves.items()]


def _chart(document: Recitation, by: By, rows: Rows) -> Chart:
    models = [model.name for model in document.models if any(row["model"] == model.name for row in rows)]
    names = short_names(models)
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
    places = _apart(rows, models, x_title, apart=by != "size")
    return Chart(
        id=f"recitation-by-{by}",
        title=title,
        caption=words + "".join(f" {line}" for line in _fit_words(document, by)),
        rows=[{**row, "name": names[row["model"]]} for row in places],
        columns=("model", x_title, _SHARE, "low", "high", "sequences"),
        x=Axis(column="at", title=x_title, scales=("log", "linear"), format="~s", grid=False),
        y=Axis(column=_SHARE, format="~%"),
        marks=(
            *(Marks(kind="line", rows=own, dashed=True) for own in _fits(document, by, rows, names)),
            intervals("low", "high"),
            Marks(kind="points", shows=("model", x_title, _SHARE, "low", "high", "sequences")),
        ),
        color="name",
        colors=named_colors(list(names.values())),
        leads=True,
    )


def _rows(document: Recitation, by: By) -> Rows:
    """The shares that were measured, each at its place."""
    return [row for group in document.groups if (row := _row(document, group, by)) is not None]


def _row(document: Recitation, group: Group, by: By) -> dict[str, Any] | None:
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
        _AXES[by][1]: x,
        _SHARE: rounded(group.recited.value, 6),
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


def _trends(document: Recitation, by: By) -> list[RecitationTrend]:
    """The fits of this quantity: at the main context, unless it is the context that changes."""
    return [
        one
        for one in document.trends
        if one.by == by
        and one.trend.intercept is not None
        and (by == "context" or one.context == document.main_context)
    ]


def _fits(document: Recitation, by: By, rows: Rows, names: dict[str, str]) -> Iterator[Rows]:
    """The fitted lines, each as points along it; that of all models together has no color."""
    for one in _trends(document, by):
        own = [row[_AXES[by][1]] for row in rows if one.model is None or row["model"] == one.model]
        if not own:
            continue
        name = {} if one.model is None else {"name": names[one.model]}
        places = np.logspace(np.log10(min(own)), np.log10(max(own)), 30).tolist()
        yield [
            {"at": rounded(x, 4), _SHARE: rounded(rate, 6), **name}
            for x in places
            if (rate := one.trend.rate_at(x)) is not None and 0.0 <= rate <= 1.0
        ]


def _fit_words(document: Recitation, by: By) -> Iterator[str]:
    for one in _trends(document, by):
        fit = "" if one.trend.r_squared is None else f" (R² {one.trend.r_squared:.2f})"
        yield f"{one.model or 'All models'}: {one.trend.slope.statement}{fit}."


def _apart(rows: Rows, models: list[str], column: str, *, apart: bool) -> Rows:
    """Rows with the place they are drawn at: models at the same place are drawn a little apart, so that none hides another."""
    least, most = min(row[column] for row in rows), max(row[column] for row in rows)
    steps = {
        name: 0.008 * (place - (len(models) - 1) / 2) if apart else 0.0 for place, name in enumerate(models)
    }
    return [{**row, "at": rounded(row[column] * (most / least) ** steps[row["model"]], 4)} for row in rows]
