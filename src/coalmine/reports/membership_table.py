"""Membership for people: tables with an interval on every number, and what they mean in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from coalmine.audits.membership_results import Membership, Population
from coalmine.records import Estimate
from coalmine.reports.terminal import inert

if TYPE_CHECKING:
    from rich.table import Table

# What the p-value of guessing must be below before a population is called remembered.
SURPRISING = 0.01


def membership_table(result: Membership) -> Table:
    """One row a population: exposure beside guessing, AUC, and TPR at low FPR."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("planted")
    for column in ("in", "out", "median exposure", "p if guessing", "AUC", "TPR at FPR 10 %", "1 %", "0.1 %"):
        table.add_column(column, justify="right")
    for one in result.populations:
        table.add_row(
            inert(one.name),
            f"{one.in_count:,}",
            f"{one.out_count:,}",
            _number(one.guessing.median),
            f"{one.guessing.p_value:.1g}",
            _with_interval(one.auc),
            *(_with_interval(rate) for rate in one.tpr_at_fpr),
        )
    return table


def epsilon_table(result: Membership) -> Table:
    """One row a method, one column a population: lower bounds on epsilon for a canary as a whole, and below them for one copy."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(f"epsilon at delta {result.delta:g}")
    for one in result.populations:
        table.add_column(inert(one.name), justify="right")
    first = result.populations[0]
    for place, bound in enumerate(first.epsilon):
        cells = [epsilon_in_words(one.epsilon[place].canary) for one in result.populations]
        table.add_row(bound.canary.method, *cells)
    table.add_row("best", *(epsilon_in_words(one.best.canary) for one in result.populations))
    if any(one.copies > 1 for one in result.populations):
        cells = [
            "" if one.best.one_copy is None else epsilon_in_words(one.best.one_copy)
            for one in result.populations
        ]
        table.add_row("best, for one copy", *cells)
    return table


def epsilon_in_words(estimate: Estimate) -> str:
    """A bound, a point estimate or a credible interval as a table shows it, or plainly nothing.

    >>> from coalmine.statistics.epsilon_one_run import one_run_bound
    >>> epsilon_in_words(one_run_bound(canaries=100, guessed=50, right=45))
    'at least 1.39'
    """
    if estimate.status == "not_measured":
        return "not measured"
    if estimate.value is None:
        return f"at least {_down(estimate.low or 0.0)}"
    if estimate.low is None:
        return f"about {estimate.value:.2f}"
    return f"{_down(estimate.low)} to {'?' if estimate.high is None else _up(estimate.high)}"


def membership_warnings(result: Membership) -> list[str]:
    """Each different warning once, with the populations it is about."""
    about: dict[str, list[str]] = {}
    for one in result.populations:
        estimates = [one.guessing.median, one.auc, *one.tpr_at_fpr, *(bound.canary for bound in one.epsilon)]
        missing = [e.statement for e in estimates if e.status == "not_measured"]
        for warning in (*one.warnings, *(text for e in estimates for text in e.warnings), *missing):
            about.setdefault(warning, [])
            if one.name not in about[warning]:
                about[warning].append(one.name)
    lines = [f"Warning: {inert(warning)}." for warning in result.warnings]
    return lines + [
        f"Note ({inert('; '.join(names))}): {inert(warning)}." for warning, names in about.items()
    ]


def membership_in_plain_words(result: Membership) -> list[str]:
    """What the numbers mean, a sentence or two for each population, and the verdict on a claim where there is one."""
    lines = []
    for one in result.populations:
        if one.pooled:
            continue
        lines.append(f"Planted {inert(one.name)}: {_guessing_words(one)} {_rate_words(one)}")
        lines.append(f"{_epsilon_words(one, result)}")
    needed = dict.fromkeys(
        text for one in result.populations if not one.pooled for text in one.best.canary.assumptions
    )
    lines.append(f"What is said of epsilon holds if {inert('; '.join(needed))}.")
    for change in result.calibration:
        more = "gains" if change.gain_bits >= 0 else "loses"
        lines.append(
            f"Calibration, {inert(change.population)}: the median exposure {more} {abs(change.gain_bits):.2f} bits, from "
            f"{change.plain_median_bits:.2f} to {change.calibrated_median_bits:.2f}."
        )
    if result.verdict is not None:
        lines.append(f"Verdict: {result.verdict.statement}.")
    return lines


def _guessing_words(one: Population) -> str:
    bits, p_value = one.guessing.median.value, one.guessing.p_value
    said = (
        f"median exposure {bits:.1f} bits among {one.out_count:,} that were not trained on, where guessing gives "
        f"{one.guessing.guessing_median_bits:.1g}"
    )
    if p_value < SURPRISING:
        return f"{said}; a model without memory does as well with probability {p_value:.1g} at most."
    return f"{said}; a model without memory does as well with probability {p_value:.2f}, which is no evidence of memory."


def _rate_words(one: Population) -> str:
    measured = [rate for rate in one.tpr_at_fpr if rate.status == "measured"]
    if not measured:
        return f"There are too few others ({one.out_count:,}) to say how many could be recognized at a low rate of false alarms."
    lowest = measured[-1]
    share = lowest.method.removeprefix("TPR at FPR ")
    return (
        f"Who guesses from the scores, with {share} of false alarms, recognizes {100 * (lowest.value or 0.0):.0f} % of them "
        f"({100 * (lowest.confidence or 0.0):g} % interval {math.floor(100 * (lowest.low or 0.0))} to "
        f"{math.ceil(100 * (lowest.high or 0.0))} %)."
    )


def _epsilon_words(one: Population, result: Membership) -> str:
    low = one.best.canary.low or 0.0
    level = f"{100 * result.confidence:g} % confidence"
    if low < 0.005:
        return f"Nothing about epsilon can be proven from them ({level}); so many scores could show {_down(one.epsilon_ceiling)} at most."
    copy = one.best.one_copy
    by_copy = ""
    if one.copies > 1 and copy is not None:
        by_copy = f", or {_down(copy.low or 0.0)} for one copy, by group privacy"
    return (
        f"No training with an epsilon below {_down(low)} (delta {result.delta:g}) gives such scores{by_copy} ({level}; so many "
        f"scores could show {_down(one.epsilon_ceiling)} at most)."
    )


def _number(estimate: Estimate) -> str:
    return "not measured" if estimate.value is None else f"{estimate.value:.2f}"


def _with_interval(estimate: Estimate) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "not measured"
    return f"{estimate.value:.2f} ({_down(estimate.low)}-{_up(estimate.high)})"


def _down(number: float) -> str:
    return f"{math.floor(number * 100) / 100:.2f}"


def _up(number: float) -> str:
    return f"{math.ceil(number * 100) / 100:.2f}"
