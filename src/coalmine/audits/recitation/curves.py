"""`draw_recitation`: recitation as a file: the share by model size, repetitions and context, with intervals and fitted lines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from coalmine.audits.recitation.results import Group, Recitation, RecitationTrend
from coalmine.errors import MissingExtraError
from coalmine.evidence.drawing import save_drawing
from coalmine.evidence.figures import ordered_colors

FIGURE_NAME = "recitation"
FIGURE_FILES = (f"{FIGURE_NAME}.html", f"{FIGURE_NAME}.svg")
# Apart for readers who see red and green alike.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_SIZE = "number of parameters"
FONT = "Helvetica, Arial, sans-serif"


def draw_recitation(
    result: Recitation, directory: Path, *, kinds: tuple[str, ...] = ("html", "svg")
) -> list[Path]:
    """Write recitation.html and recitation.svg; a .png only if `kinds` names it."""
    paths = [directory / f"{FIGURE_NAME}.{kind}" for kind in kinds]
    for path in paths:
        # A picture is for paper, and a page may be read on a phone.
        spec = recitation_chart(result, columns=1 if path.suffix == ".html" else 3).to_dict()
        save_drawing(spec, path, title=f"Recitation of {', '.join(facts.name for facts in result.models)}")
    return paths


def recitation_chart(result: Recitation, *, columns: int = 3) -> Any:
    """One panel per quantity of which there is more than one value; `columns` of them side by side."""
    try:
        import altair as alt
    except ImportError:
        raise MissingExtraError("a figure of recitation", "altair", "figures") from None
    names = [facts.name for facts in result.models]
    panels = [
        _panel(alt, points, lines, title, names, apart=title != _SIZE)
        for title, points, lines in (
            (_SIZE, _by_size(result), _lines(result, "size")),
            (f"copies in the corpus{_at(result)}", _by_copies(result), _lines(result, "repetitions")),
            ("tokens of context", _by_context(result), _lines(result, "context")),
        )
        if len({point["x"] for point in points}) > 1
    ]
    if not panels:
        panels = [_panel(alt, _by_copies(result), [], "copies in the corpus", names)]
    return alt.concat(*panels, columns=columns, spacing=24).configure(
        font=FONT,
        background="white",
        aria=False,
        view={"stroke": "#cccccc"},
        axis={"gridColor": "#eeeeee", "labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal"},
    )


def _at(result: Recitation) -> str:
    return "" if result.main_context is None else f", at {result.main_context} tokens of context"


def _points(places: Iterable[tuple[Group, float]]) -> list[dict[str, Any]]:
    """The shares that were measured, each at its place."""
    return [
        {"model": group.model, "x": x, "share": one.value, "low": one.low, "high": one.high}
        for group, x in places
        if (one := group.recited).value is not None
    ]


def _by_copies(result: Recitation) -> list[dict[str, Any]]:
    here = [one for one in result.groups if one.context == result.main_context and one.bucket is not None]
    return _points((group, group.mean_copies) for group in here)


def _by_context(result: Recitation) -> list[dict[str, Any]]:
    whole = [one for one in result.groups if one.bucket is None and one.length is None]
    return _points((group, float(group.context)) for group in whole if group.context is not None)


def _by_size(result: Recitation) -> list[dict[str, Any]]:
    groups = [(result.overall(one.name, result.main_context), one.parameters) for one in result.models]
    return _points((group, float(size)) for group, size in groups if size and group is not None)


def _lines(result: Recitation, by: str) -> list[RecitationTrend]:
    return [
        one
        for one in result.trends
        if one.by == by and one.context in {None, result.main_context} and one.trend.intercept is not None
    ]


def _fitted(points: list[dict[str, Any]], line: RecitationTrend) -> list[dict[str, Any]]:
    """The two ends of a fitted line, where it is a share."""
    own = [point["x"] for point in points if line.model in {None, point["model"]}]
    ends = []
    for x in (min(own), max(own)):
        share = line.trend.rate_at(x)
        if share is not None:
            ends.append({"model": line.model or "fit", "x": x, "share": min(1.0, max(0.0, share))})
    return ends


def _panel(
    alt: Any,
    points: list[dict[str, Any]],
    lines: list[RecitationTrend],
    title: str,
    names: list[str],
    *,
    apart: bool = True,
) -> Any:
    low, high = min(point["x"] for point in points), max(point["x"] for point in points)
    # Models that share an x are drawn a little apart, or their intervals would hide each other.
    step = (high / low) ** 0.012 if apart else 1.0
    dots = [
        {**point, "x": point["x"] * step ** (names.index(point["model"]) - (len(names) - 1) / 2)}
        for point in points
    ]
    # Labels of a logarithmic axis run into each other where decades are short.
    axis = alt.Axis(labelOverlap="greedy", labelSeparation=8)
    x = alt.X("x:Q", title=title, axis=axis, scale=alt.Scale(type="log", domain=[low / 1.2, high * 1.2]))
    colors = list(COLORS[: len(names)]) if len(names) <= len(COLORS) else ordered_colors(len(names))
    # Below the panels, where names of any length have room.
    legend = alt.Legend(title=None, labelLimit=300, orient="bottom", columns=1)
    color = alt.Color("model:N", legend=legend, scale=alt.Scale(domain=names, range=colors), sort=names)
    top = min(1.0, 1.05 * max(point["high"] for point in points))
    y = alt.Y(
        "share:Q",
        title="share recited",
        axis=alt.Axis(format="%"),
        scale=alt.Scale(domain=[0, top], clamp=True),
    )
    shown = alt.Chart(alt.Data(values=dots)).encode(x=x, color=color)
    layers = [
        shown.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q"), y2="high:Q"),
        shown.mark_point(filled=True, size=45).encode(y=y),
    ]
    for line in lines:
        fitted = alt.Chart(alt.Data(values=_fitted(points, line)))
        if line.model is None:
            layers.append(fitted.mark_line(color="#666666", strokeDash=[5, 3]).encode(x=x, y=y))
        else:
            layers.append(fitted.mark_line(strokeDash=[5, 3]).encode(x=x, y=y, color=color))
    return alt.layer(*layers).properties(width=250, height=200)
