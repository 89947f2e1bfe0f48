"""The figure of validation loss against exposure, with the Pareto frontier of defenses."""

from __future__ import annotations

from collections.abc import Iterator

from coalmine.audits.comparison.figures import EXPOSURE, frontier, frontier_in_words
from coalmine.audits.defenses.results import BENCHES, Bench
from coalmine.evidence.charts import Axis, Chart, Rows, rounded
from coalmine.evidence.run import Run

_LOSS = "validation loss (bits per character)"


def bench_figures(run: Run) -> Iterator[Chart | None]:
    """One for each bench."""
    for _, bench in run.all(BENCHES):
        yield frontier_figure(bench)


def frontier_figure(bench: Bench) -> Chart | None:
    """Loss against exposure; None where fewer than two defenses can be placed."""
    rows: Rows = [
        {
            "defense": row.defense.name,
            "name": row.defense.name,
            _LOSS: rounded(row.loss.mean),
            "utility_low": rounded(row.loss.low),
            "utility_high": rounded(row.loss.high),
            EXPOSURE: rounded(row.exposure.value),
            "low": rounded(row.exposure.low),
            "high": rounded(row.exposure.high),
            "models": row.trainings,
            "in_line": row.on_frontier,
            "order": row.loss.mean,
        }
        for row in bench.rows
        if row.loss is not None and row.on_frontier is not None
    ]
    if len(rows) < 2:
        return None
    return Chart(
        id="defenses-frontier",
        title="What defenses cost, and what they stop",
        caption="Lower is better on both axes. The dashed line is the Pareto frontier: no other defense is better in one and no worse in "
        f"the other. {frontier_in_words(rows, 'defense')} Vertical lines are intervals of the median over canaries, horizontal ones the "
        "range over seeds.",
        rows=rows,
        columns=("defense", _LOSS, "utility_low", "utility_high", EXPOSURE, "low", "high", "models"),
        x=Axis(column=_LOSS, grid=False),
        y=Axis(column=EXPOSURE),
        marks=frontier(rows, ("defense", _LOSS, EXPOSURE, "low", "high", "models")),
        color="name",
        height=300,
    )
