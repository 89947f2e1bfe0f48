"""The comparison for people: a row for each training, a row for each pair, and what to make of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from coalmine.audits.comparing_results import ComparedRun, Comparison
from coalmine.records import Estimate
from coalmine.reports.terminal import inert

if TYPE_CHECKING:
    from rich.table import Table


def comparison_table(comparison: Comparison) -> Table:
    """One row a training."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("run")
    table.add_column(inert(comparison.utility_name), justify="right")
    table.add_column("canaries", justify="right")
    table.add_column("median exposure", justify="right")
    table.add_column(f"{100 * comparison.confidence:g} % interval", justify="right")
    table.add_column("frontier")
    for run in comparison.runs:
        table.add_row(
            inert(run.name),
            _utility(run.utility),
            str(run.canaries),
            _middle(run.exposure),
            _limits(run.exposure),
            _place(run),
        )
    return table


def difference_table(comparison: Comparison) -> Table:
    """One row a pair: the first minus the second, with its interval and its p-values."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("first", "second"):
        table.add_column(column)
    for column in ("difference", f"{100 * comparison.confidence:g} % interval", "p", "adjusted", "canaries"):
        table.add_column(column, justify="right")
    for pair in comparison.pairs:
        found = pair.exposure
        numbers = ["not measured", "", "", "", ""]
        if found is not None:
            numbers = [
                f"{found.estimate.value or 0.0:+.2f}",
                _limits(found.estimate),
                f"{found.p_value:.2g}",
                f"{pair.adjusted_p_value:.2g}",
                f"{found.estimate.n}, {found.pairing}",
            ]
        table.add_row(inert(pair.first), inert(pair.second), *numbers)
    return table


def comparison_in_words(comparison: Comparison) -> list[str]:
    """A sentence for each pair, then the warnings."""
    return [
        *(f"{inert(pair.statement)}." for pair in comparison.pairs),
        *(f"Note: {inert(warning)}." for warning in comparison.warnings),
    ]


def _utility(estimate: Estimate | None) -> str:
    if estimate is None or estimate.value is None:
        return "not known"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.3f}"
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"


def _middle(estimate: Estimate) -> str:
    return f"{estimate.value:.2f}" if estimate.value is not None else f"at least {estimate.low or 0.0:.2f}"


def _limits(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{math.floor(estimate.low * 100) / 100:.2f} to {math.ceil(estimate.high * 100) / 100:.2f}"


def _place(run: ComparedRun) -> str:
    if run.on_frontier is None:
        return "not placed"
    return "on it" if run.on_frontier else f"beaten by {inert(', '.join(run.dominated_by))}"
