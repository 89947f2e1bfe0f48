"""The figure of utility against exposure: the validation loss of several runs, with the Pareto frontier.

After Figure 5 of The Secret Sharer, Carlini, Liu, Erlingsson, Kos and Song, 2019, arXiv:1802.08232.
"""

from __future__ import annotations

from collections.abc import Sequence

from coalmine.audits.comparison.figures import ON_FRONTIER, points_of
from coalmine.audits.comparison.measuring import compare
from coalmine.audits.comparison.results import Comparison, Strategy
from coalmine.audits.comparison.sources import own_utility, scored_others
from coalmine.audits.exposure.results import EXPOSURES
from coalmine.evidence import figures as draw
from coalmine.evidence.figures import Figure, Panel, Points, Spec
from coalmine.evidence.run import Run, names_of

_COLUMNS = {
    "format": "format",
    "run": "run",
    "loss": "validation loss (bits per token)",
    "bits": "median exposure (bits)",
    "low": "low",
    "high": "high",
    "canaries": "canaries",
}


def compared(runs: Sequence[Run]) -> Comparison | None:
    """A comparison of the runs with exposures of planted canaries; None if there are fewer than two."""
    strategies = [
        Strategy(name, exposure, own_utility(run), scored_others(run))
        for name, run in zip(names_of(runs), runs, strict=True)
        if (exposure := run.first(EXPOSURES)) is not None
        and any(result.planted for result in exposure.results)
    ]
    return compare(strategies) if len(strategies) > 1 else None


def utility_figure(comparison: Comparison) -> Figure | None:
    """Loss against the median exposure of each run, or None if fewer than two can be placed; the warnings of the comparison say why."""
    placed = points_of(comparison)
    names = draw.short_names([str(run["run"]) for run in placed])
    points = [
        {
            "format": run["format"],
            "run": run["run"],
            "name": names[str(run["run"])],
            "loss": draw.rounded(run["utility"]),
            "bits": draw.rounded(run["exposure"]),
            "low": draw.rounded(run["low"]),
            "high": draw.rounded(run["high"]),
            "canaries": run["canaries"],
            "on": run["alone"] and run["frontier"] == ON_FRONTIER,
        }
        for run in placed
    ]
    panels = {name: own for name, own in draw.by_format(points).items() if len(own) > 1}
    if not panels:
        return None
    return Figure(
        figure_id="utility-and-exposure",
        title="Utility against exposure",
        caption="Lower is better on both axes. The dashed line is the Pareto frontier of single trainings: no other run is better in one "
        "and no worse in the other. Intervals are those of the median over canaries; losses have none, because those of single documents "
        "are not kept.",
        panels=tuple(
            Panel(title=name, note=_frontier_in_words(own), specs={"": _drawing(own, list(names.values()))})
            for name, own in panels.items()
        ),
        columns=tuple(_COLUMNS.values()),
        rows=draw.rows_of([point for own in panels.values() for point in own], *_COLUMNS),
    )


def _frontier_in_words(points: Points) -> str:
    best = [str(point["run"]) for point in sorted(points, key=lambda one: one["loss"]) if point["on"]]
    return f"On the frontier: {', '.join(best)}." if best else ""


def _drawing(points: Points, names: list[str]) -> Spec:
    frontier = sorted((point for point in points if point["on"]), key=lambda point: point["loss"])
    x = draw.axis(
        "loss", "validation loss (bits per token)", scale={"zero": False, "padding": 14}, axis={"grid": False}
    )
    color = draw.colors_of(names, None, "name")
    low, bits = (draw.axis(field, "median exposure (bits)") for field in ("low", "bits"))
    shown = draw.tooltips("run", ("loss", "validation loss"), ("bits", "median exposure"), "low", "high")
    steps = {
        "type": "line",
        "strokeDash": [5, 4],
        "color": draw.RULE,
        "interpolate": "step-after",
        "aria": False,
    }
    layers = [
        draw.layer(frontier, steps, x=x, y=bits),
        draw.layer(points, draw.INTERVAL, x=x, y=low, y2="high", color=color),
        draw.layer(points, draw.dots(90), x=x, y=bits, color=color, tooltip=shown),
    ]
    return draw.spec(layers, description="Median exposure against validation loss of each run.", height=280)
