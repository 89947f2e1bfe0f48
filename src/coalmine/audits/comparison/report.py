"""A comparison as people see it: tables of trainings and of pairs, sentences, and the figure of loss against exposure."""

from __future__ import annotations

from collections.abc import Sequence

from coalmine.audits.comparison.records import COMPARISONS, ComparedRun, Comparison
from coalmine.evidence.charts import Axis, Chart, Marks, Rows, intervals, rounded, short_names
from coalmine.evidence.measures import RunComparison
from coalmine.evidence.run import Run
from coalmine.evidence.tables import AcrossRuns, Column, Table
from coalmine.evidence.words import format_name
from coalmine.visible import visible

EXPOSURE, LOSS = "median exposure (bits)", "loss"
# Beside eight other columns.
FORMAT_WIDTH = 28


def _place(run: ComparedRun) -> str:
    if run.dominated_by is None:
        return "not placed"
    return f"beaten by {', '.join(run.dominated_by)}" if run.dominated_by else "on it"


RUNS_TABLE = Table[ComparedRun](
    (
        Column("side", lambda run: run.side),
        Column("run", lambda run: run.name),
        Column("format", lambda run: format_name(run.template, FORMAT_WIDTH)),
        Column("loss", lambda run: "not known" if run.loss is None else f"{run.loss:.3f}"),
        Column("canaries", lambda run: run.canaries),
        Column("median exposure", lambda run: run.exposure),
        Column("frontier", _place),
    )
)


def comparison_in_words(comparison: Comparison) -> list[str]:
    """One sentence per pair, then the warnings."""
    return [
        *(f"{visible(pair.statement)}." for pair in comparison.pairs),
        *(f"Note: {visible(warning)}." for warning in comparison.warnings),
    ]


def loss_figure(comparison: Comparison) -> Chart | None:
    """Loss against the median exposure of each run, or None if fewer than two can be placed; the warnings of the comparison say why.

    After Figure 5 of The Secret Sharer, Carlini, Liu, Erlingsson, Kos and Song, 2019, arXiv:1802.08232.
    """
    short = short_names([run.name for run in comparison.runs])
    sides = [run.side or run.name for run in comparison.runs if run.template == comparison.runs[0].template]
    rows: Rows = [
        {
            "run": run.name,
            "name": short[run.name],
            "format": format_name(run.template),
            LOSS: rounded(run.loss),
            EXPOSURE: rounded(run.exposure.value),
            "low": rounded(run.exposure.low),
            "high": rounded(run.exposure.high),
            "canaries": run.canaries,
            # The line is that of single trainings; of several, the means are compared, which have no point here.
            "in_line": run.on_frontier and sides.count(run.side or run.name) == 1,
            "order": run.loss,
        }
        for run in comparison.runs
        if run.dominated_by is not None and run.loss is not None
    ]
    if len(rows) < 2:
        return None
    return Chart(
        id="loss-and-exposure",
        title="Loss against exposure",
        caption="Lower is better on both axes. The dashed line is the Pareto frontier of single trainings: no other run is better in one "
        "and no worse in the other. Intervals are those of the median over canaries.",
        rows=rows,
        columns=("format", "run", LOSS, EXPOSURE, "low", "high", "canaries"),
        x=Axis(column=LOSS, grid=False),
        y=Axis(column=EXPOSURE),
        marks=frontier(rows, ("run", LOSS, EXPOSURE, "low", "high", "canaries")),
        color="name",
        panel="format",
    )


def frontier(rows: Rows, shows: tuple[str, ...]) -> tuple[Marks, ...]:
    """The frontier, the intervals of both axes and the points of rows that say whether they are `in_line`, and their `order` there."""
    # From the least loss down to the least exposure, in steps: between two points nothing is known.
    line: Rows = [
        {name: row[name] for name in row if name != "name"}
        for row in sorted(rows, key=lambda row: row["order"])
        if row["in_line"]
    ]
    known = [row for row in rows if row.get("utility_low") is not None]
    return (
        Marks(kind="steps", rows=line, dashed=True, order="order"),
        intervals("low", "high"),
        Marks(kind="rule", rows=known, x="utility_low", x_to="utility_high"),
        Marks(kind="points", shows=shows),
    )


def frontier_in_words(rows: Rows, name: str) -> str:
    """Which rows are on the frontier, from the least loss on."""
    best = [str(row[name]) for row in sorted(rows, key=lambda row: row["order"]) if row["in_line"]]
    return f"On the frontier: {', '.join(best)}." if best else ""


def _across(runs: Sequence[Run]) -> AcrossRuns | None:
    """What the report of several runs shows of them beside each other."""
    # Comparing reads runs, which needs the registry that this module is imported by.
    from coalmine.audits.comparison.measure import compare_exposed

    # With labels and losses, where `coalmine report` was given some.
    given = (run.first(COMPARISONS) for run in runs)
    comparison = next((one for one in given if one is not None), None) or compare_exposed(runs)
    if comparison is None:
        return None
    figure = loss_figure(comparison)
    return AcrossRuns(
        figures=() if figure is None else (figure,),
        statements=tuple(f"{pair.statement}." for pair in comparison.pairs),
        notes=tuple(f"{text[:1].upper()}{text[1:]}." for text in comparison.warnings),
    )


COMPARISON = RunComparison(document=COMPARISONS, across=_across)
