"""The figure of utility against exposure with the Pareto frontier, for the page of a report and as a file of its own.

After Figure 5 of The Secret Sharer, Carlini, Liu, Erlingsson, Kos and Song, 2019, arXiv:1802.08232.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from coalmine.audits.comparison.results import Comparison
from coalmine.errors import InputError
from coalmine.evidence.charts import Axis, Chart, Marks, Rows, as_one, intervals, rounded, short_names
from coalmine.evidence.drawing import save_drawing
from coalmine.evidence.words import format_names
from coalmine.grouped import grouped
from coalmine.storage.files import PUBLIC, to_json, write_bytes

KINDS = (".svg", ".html", ".png", ".json")
EXPOSURE = "median exposure (bits)"


def utility_figure(comparison: Comparison, *, fewest: int = 2) -> Chart | None:
    """Utility against the median exposure of each run, or None if fewer can be placed; the warnings of the comparison say why."""
    utility = comparison.utility_name
    rows = _rows(comparison, utility)
    panels = grouped((str(row["format"]), row) for row in rows)
    rows = [row for row in rows if len(panels[str(row["format"])]) >= fewest]
    if not rows:
        return None
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
        notes={name: frontier_in_words(own, "run") for name, own in panels.items() if len(own) >= fewest},
    )


def save_figure(comparison: Comparison, path: str | os.PathLike[str]) -> Path:
    """Draw the figure as .svg, .png or a self-contained .html, or write its description as .json."""
    target = Path(path)
    if target.suffix not in KINDS:
        raise InputError(f"a figure ends in {', '.join(KINDS)}, got {target.name!r}; name it so")
    chart = utility_figure(comparison, fewest=1)
    if chart is None:
        raise InputError("no run has a place in the figure; the notes of the comparison say why")
    figure = as_one([chart])
    if target.suffix == ".json":
        write_bytes(target, to_json(figure) + b"\n")
        return target
    save_drawing(figure, target, title=f"{comparison.utility_name} against exposure", mode=PUBLIC)
    return target


def frontier(rows: Rows, shows: tuple[str, ...]) -> tuple[Marks, ...]:
    """The frontier, the intervals of both axes and the points of rows that say whether they are `in_line`, and their `order` there."""
    # From the best utility down to the least exposure, in steps: between two points nothing is known.
    line: Rows = [
        {name: row[name] for name in row if name != "name"}
        for row in sorted(rows, key=lambda row: row["order"])
        if row["in_line"]
    ]
    return (
        Marks(kind="steps", rows=line, dashed=True, order="order"),
        intervals("low", "high"),
        Marks(
            kind="rule",
            rows=[row for row in rows if row["utility_low"] is not None],
            x="utility_low",
            x_to="utility_high",
        ),
        Marks(kind="points", shows=shows),
    )


def frontier_in_words(rows: Rows, name: str) -> str:
    """Which rows are on the frontier, from the best utility on."""
    best = [str(row[name]) for row in sorted(rows, key=lambda row: row["order"]) if row["in_line"]]
    return f"On the frontier: {', '.join(best)}." if best else ""


def _rows(comparison: Comparison, utility: str) -> Rows:
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
            utility: rounded(run.utility.value),
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
