"""The figure of validation loss against exposure, with the Pareto frontier of defenses."""

from __future__ import annotations

from collections.abc import Iterator

from coalmine.audits.comparison.figures import frontier_layers
from coalmine.audits.defenses.results import BENCHES, Bench
from coalmine.evidence import figures as draw
from coalmine.evidence.figures import Figure, Panel, Points
from coalmine.evidence.run import Run

_LOSS, _EXPOSURE = "validation loss (bits per character)", "median exposure (bits)"
_COLUMNS = {
    "defense": "defense",
    "loss": _LOSS,
    "utility_low": "least loss",
    "utility_high": "largest loss",
    "exposure": _EXPOSURE,
    "low": "low",
    "high": "high",
    "trainings": "models",
}


def bench_figures(run: Run) -> Iterator[Figure | None]:
    """One for each bench."""
    for _, bench in run.all(BENCHES):
        yield frontier_figure(bench)


def frontier_figure(bench: Bench) -> Figure | None:
    """Loss against exposure; None where fewer than two defenses can be placed."""
    points = _points(bench)
    if len(points) < 2:
        return None
    x = draw.axis("loss", _LOSS, scale={"zero": False, "padding": 14}, axis={"grid": False})
    y = draw.axis("exposure", _EXPOSURE)
    color = draw.colors_of([str(point["defense"]) for point in points], None, "defense")
    shown = draw.tooltips("defense", ("loss", _LOSS), ("exposure", _EXPOSURE), "low", "high", "trainings")
    layers = frontier_layers(points, x, y, color, shown)
    best = [
        str(point["defense"]) for point in sorted(points, key=lambda one: one["order"]) if point["in_line"]
    ]
    return Figure(
        figure_id="defenses-frontier",
        title="What defenses cost, and what they stop",
        caption="Lower is better on both axes. The dashed line is the Pareto frontier: no other defense is better in one and no worse in "
        "the other. Vertical lines are intervals of the median over canaries, horizontal ones the range over seeds.",
        panels=(
            Panel(
                note=f"On the frontier: {', '.join(best)}.",
                specs={
                    "": draw.spec(
                        layers,
                        description="Median exposure against validation loss of each defense.",
                        height=300,
                    )
                },
            ),
        ),
        columns=tuple(_COLUMNS.values()),
        rows=draw.rows_of(points, *_COLUMNS),
    )


def _points(bench: Bench) -> Points:
    return [
        {
            "defense": row.defense.name,
            "loss": draw.rounded(row.loss.mean),
            "utility_low": draw.rounded(row.loss.low),
            "utility_high": draw.rounded(row.loss.high),
            "exposure": draw.rounded(row.exposure.value),
            "low": draw.rounded(row.exposure.low),
            "high": draw.rounded(row.exposure.high),
            "trainings": row.trainings,
            "in_line": row.on_frontier,
            "order": row.loss.mean,
        }
        for row in bench.rows
        if row.loss is not None and row.on_frontier is not None
    ]
