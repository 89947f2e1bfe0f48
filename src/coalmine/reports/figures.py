"""The figures of a report: those of each run, and those that compare runs."""

from __future__ import annotations

from collections.abc import Sequence

from coalmine.audits.registry import COMPARISONS, audits
from coalmine.evidence.charts import Chart
from coalmine.evidence.run import Run


def figures_of(run: Run) -> list[Chart]:
    """The figures of one run."""
    return [figure for audit in audits() for figure in audit.figures(run) if figure is not None]


def comparing_figures(runs: Sequence[Run]) -> list[Chart]:
    """The figures that compare runs."""
    found = (one.across(runs) for one in COMPARISONS)
    return [figure for one in found if one is not None for figure in one.figures]
