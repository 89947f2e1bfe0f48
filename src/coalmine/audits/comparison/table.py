"""Tables and sentences about a comparison: one row per training and format, one row per pair, and what follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coalmine.audits.comparison.results import ComparedRun, Comparison, PairDifference
from coalmine.evidence.tables import plain_table, rights
from coalmine.evidence.words import format_name
from coalmine.records import Estimate
from coalmine.records.estimate import rounded_down, rounded_up
from coalmine.statistics.differences import Difference
from coalmine.visible import visible

# Beside eight other columns.
FORMAT_WIDTH = 28

if TYPE_CHECKING:
    from rich.table import Table


def comparison_table(comparison: Comparison) -> Table:
    """One row per training and format."""
    names = _formats(comparison)
    labeled = any(run.side is not None for run in comparison.runs)
    first = (*(["side"] if labeled else []), "run", *(["format"] if len(names) > 1 else []))
    interval = f"{100 * comparison.confidence:g}% interval"
    numbers = rights(visible(comparison.utility_name), "canaries", "median exposure", interval)
    table = plain_table(*first, *numbers, "frontier")
    for run in comparison.runs:
        table.add_row(
            *([visible(run.side or run.name)] if labeled else []),
            visible(run.name),
            *([visible(names[run.template])] if len(names) > 1 else []),
            _utility(run.utility),
            str(run.canaries),
            _middle(run.exposure),
            _limits(run.exposure),
            _place(run),
        )
    return table


def difference_table(comparison: Comparison) -> Table:
    """One row per pair and format: the first minus the second, with its interval and its p-values."""
    names = _formats(comparison)
    measures = rights("difference", f"{100 * comparison.confidence:g}% interval", "p", "adjusted", "over")
    table = plain_table("first", "second", *(["format"] if len(names) > 1 else []), *measures)
    for pair in comparison.pairs:
        found = pair.exposure
        numbers = ["not measured", "", "", "", ""]
        if found is not None:
            numbers = [
                f"{found.estimate.value or 0.0:+.2f}",
                _limits(found.estimate),
                f"{found.p_value:.2g}",
                f"{pair.adjusted_p_value:.2g}",
                _counted(pair, found),
            ]
        named = [visible(names[pair.template])] if len(names) > 1 else []
        table.add_row(visible(pair.first), visible(pair.second), *named, *numbers)
    return table


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


def _counted(pair: PairDifference, found: Difference) -> str:
    """What the test of a difference is over."""
    if pair.unit == "trainings":
        return f"{pair.trainings[0]} against {pair.trainings[1]} trainings"
    return f"{found.estimate.n} canaries, {found.pairing}"


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
    return f"{rounded_down(estimate.low)} to {rounded_up(estimate.high)}"


def _place(run: ComparedRun) -> str:
    if run.on_frontier is None:
        return "not placed"
    return "on it" if run.on_frontier else f"beaten by {visible(', '.join(run.dominated_by))}"
