"""A comparison as people see it: tables of trainings and of pairs, sentences, and the figure of utility against exposure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from coalmine.audits.comparison.records import COMPARISONS, ComparedRun, Comparison, PairDifference
from coalmine.evidence.charts import Axis, Chart, Marks, Rows, intervals, rounded, short_names
from coalmine.evidence.measures import RunComparison
from coalmine.evidence.run import Run
from coalmine.evidence.tables import AcrossRuns, Column, Table
from coalmine.evidence.words import format_name, format_names
from coalmine.grouped import grouped
from coalmine.visible import visible

EXPOSURE = "median exposure (bits)"
# Beside eight other columns.
FORMAT_WIDTH = 28
# The most pairs of runs that a report describes.
MOST_PAIRS = 20


def runs_table(comparison: Comparison) -> Table[ComparedRun]:
    """One row per training and format."""
    names = _formats(comparison)
    return Table(
        (
            Column("side", lambda run: run.side),
            Column("run", lambda run: run.name),
            Column("format", lambda run: names[run.template] if len(names) > 1 else None),
            Column(comparison.utility_name, lambda run: "not known" if run.utility is None else run.utility),
            Column("canaries", lambda run: run.canaries),
            Column("median exposure", lambda run: run.exposure),
            Column("frontier", _place),
        )
    )


def pairs_table(comparison: Comparison) -> Table[PairDifference]:
    """One row per pair and format: the first minus the second, with its interval and its p-values."""
    names = _formats(comparison)
    return Table(
        (
            Column("first", lambda pair: pair.first),
            Column("second", lambda pair: pair.second),
            Column("format", lambda pair: names[pair.template] if len(names) > 1 else None),
            Column(
                "difference", lambda pair: "not measured" if pair.exposure is None else pair.exposure.estimate
            ),
            Column("p", lambda pair: pair.exposure and pair.exposure.p_value, "p"),
            Column("adjusted", lambda pair: pair.adjusted_p_value, "p"),
            Column("over", _counted),
        )
    )


def comparison_in_words(comparison: Comparison) -> list[str]:
    """One sentence per pair, then the warnings."""
    return [
        *(f"{visible(pair.statement)}." for pair in comparison.pairs),
        *(f"Note: {visible(warning)}." for warning in comparison.warnings),
    ]


def _formats(comparison: Comparison) -> dict[str, str]:
    """The name of each format, by its template."""
    templates = dict.fromkeys(run.template for run in comparison.runs)
    return {template: format_name(template, FORMAT_WIDTH) for template in templates}


def _counted(pair: PairDifference) -> str | None:
    """What the test of a difference is over."""
    if pair.exposure is None:
        return None
    if pair.unit == "trainings":
        return f"{pair.trainings[0]} against {pair.trainings[1]} trainings"
    return f"{pair.exposure.estimate.n} canaries, {pair.exposure.pairing}"


def _place(run: ComparedRun) -> str:
    if run.on_frontier is None:
        return "not placed"
    return "on it" if run.on_frontier else f"beaten by {', '.join(run.dominated_by)}"


def utility_figure(comparison: Comparison) -> Chart | None:
    """Utility against the median exposure of each run, or None if fewer than two can be placed; the warnings of the comparison say why.

    After Figure 5 of The Secret Sharer, Carlini, Liu, Erlingsson, Kos and Song, 2019, arXiv:1802.08232.
    """
    utility = comparison.utility_name
    panels = grouped((str(row["format"]), row) for row in _rows(comparison))
    panels = {name: rows for name, rows in panels.items() if len(rows) > 1}
    if not panels:
        return None
    rows = [row for one in panels.values() for row in one]
    better = (
        "Further right and lower is better" if comparison.higher_is_better else "Lower is better on both axes"
    )
    return Chart(
        id="utility-and-exposure",
        title="Utility against exposure",
        caption=f"{better}. The dashed "
        "line is the Pareto frontier of single trainings: no other run is better in one and no worse in the other. Intervals are those "
        "of the median over canaries; losses have none, because those of single documents are not kept.",
        rows=rows,
        columns=("format", "run", utility, EXPOSURE, "low", "high", "canaries"),
        x=Axis(column=utility, grid=False),
        y=Axis(column=EXPOSURE),
        marks=frontier(rows, ("run", utility, EXPOSURE, "low", "high", "canaries")),
        color="name",
        panel="format",
        notes={name: frontier_in_words(own, "run") for name, own in panels.items()},
    )


def frontier(rows: Rows, shows: tuple[str, ...]) -> tuple[Marks, ...]:
    """The frontier, the intervals of both axes and the points of rows that say whether they are `in_line`, and their `order` there."""
    # From the best utility down to the least exposure, in steps: between two points nothing is known.
    line: Rows = [
        {name: row[name] for name in row if name != "name"}
        for row in sorted(rows, key=lambda row: row["order"])
        if row["in_line"]
    ]
    known = [row for row in rows if row["utility_low"] is not None]
    return (
        Marks(kind="steps", rows=line, dashed=True, order="order"),
        intervals("low", "high"),
        Marks(kind="rule", rows=known, x="utility_low", x_to="utility_high"),
        Marks(kind="points", shows=shows),
    )


def frontier_in_words(rows: Rows, name: str) -> str:
    """Which rows are on the frontier, from the best utility on."""
    best = [str(row[name]) for row in sorted(rows, key=lambda row: row["order"]) if row["in_line"]]
    return f"On the frontier: {', '.join(best)}." if best else ""


def _rows(comparison: Comparison) -> Rows:
    """Each run that can be placed in the figure, for each format."""
    templates = dict.fromkeys(run.template for run in comparison.runs)
    names = format_names({str(place): template for place, template in enumerate(templates)})
    by_template = dict(zip(templates, names.values(), strict=True))
    of_first = [run for run in comparison.runs if run.template == comparison.runs[0].template]
    sides = Counter(run.side or run.name for run in of_first)
    short = short_names([run.name for run in comparison.runs])
    return [
        {
            "run": run.name,
            "name": short[run.name],
            "format": by_template[run.template],
            comparison.utility_name: rounded(run.utility.value),
            "utility_low": rounded(run.utility.low),
            "utility_high": rounded(run.utility.high),
            EXPOSURE: rounded(run.exposure.value),
            "low": rounded(run.exposure.low),
            "high": rounded(run.exposure.high),
            "canaries": run.canaries,
            # The line is that of single trainings; of several, the means are compared, which have no point here.
            "in_line": run.on_frontier and sides[run.side or run.name] == 1,
            "order": -run.utility.value if comparison.higher_is_better else run.utility.value,
        }
        for run in comparison.runs
        if run.on_frontier is not None and run.utility is not None and run.utility.value is not None
    ]


def _across(runs: Sequence[Run]) -> AcrossRuns | None:
    """What the report of several runs shows of them beside each other."""
    # Comparing reads runs, which needs the registry that this module is imported by.
    from coalmine.audits.comparison.runs import compare_exposed

    # With labels and utilities, where `coalmine report` was given some.
    given = (run.first(COMPARISONS) for run in runs)
    comparison = next((one for one in given if one is not None), None) or compare_exposed(runs)
    if comparison is None:
        return None
    figure = utility_figure(comparison)
    more = len(comparison.pairs) - MOST_PAIRS
    return AcrossRuns(
        figures=() if figure is None else (figure,),
        statements=tuple(f"{pair.statement}." for pair in comparison.pairs[:MOST_PAIRS]),
        notes=(
            *((f"And {more:,} more pairs: `coalmine report --comparison` lists them.",) if more > 0 else ()),
            "`compare_runs` in Python has the options that the notes mention.",
            *(f"{text[:1].upper()}{text[1:]}." for text in comparison.warnings),
        ),
    )


COMPARISON = RunComparison(document=COMPARISONS, across=_across)
