"""Tables and sentences about membership: one row and one sentence per population, and every bound on request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from coalmine.audits.membership.results import EpsilonBound, Membership, Population, times_in_words
from coalmine.evidence.tables import plain_table
from coalmine.evidence.words import format_name
from coalmine.grouped import grouped
from coalmine.records import Estimate
from coalmine.records.estimate import rounded_down, rounded_up
from coalmine.records.privacy import claim_of_model
from coalmine.statistics.roc import RateEstimate
from coalmine.visible import visible

if TYPE_CHECKING:
    from rich.table import Table

# What the p-value of all tests of all populations together must be at most before one of them is called memorized.
SURPRISING = 0.025
# The false-positive rate of the short table.
SHOWN_FPR = 0.01


def membership_table(result: Membership) -> Table:
    """One row per population: AUC, TPR at a false-positive rate of 1%, and the best bound on epsilon."""
    table = _rows_of_populations(result)
    for column in (
        "in",
        "out",
        "AUC",
        f"TPR at\n{100 * SHOWN_FPR:g}% FPR",
        "epsilon\nat least",
        "if scores are\nindependent",
    ):
        table.add_column(column, justify="right", no_wrap=True)
    for one, names in zip(result.populations, _names(result), strict=True):
        rate = next((rate for rate in one.tpr_at_fpr if rate.fpr == SHOWN_FPR), None)
        table.add_row(
            *names,
            f"{one.in_count:,}",
            f"{one.out_count:,}",
            _with_interval(one.auc),
            "not measured" if rate is None else _percent_with_interval(rate),
            _lower(one.best),
            "" if one.independent is None else _lower(one.independent),
        )
    return table


def format_in_words(result: Membership) -> list[str]:
    """The format that all populations have, where it is one; several are a column of the tables."""
    templates = {one.template for one in result.populations if one.template is not None}
    return [f"Format: {visible(format_name(one))}" for one in templates] if len(templates) == 1 else []


def rates_table(result: Membership) -> Table:
    """One row per population: exposure beside guessing, and TPR at each false-positive rate with its p-value."""
    table = _rows_of_populations(result)
    for column in ("median\nexposure", "p if\nguessing"):
        table.add_column(column, justify="right", no_wrap=True)
    for rate in result.populations[0].tpr_at_fpr:
        table.add_column(f"TPR at\n{_share(rate)} FPR", justify="right", no_wrap=True)
    for one, names in zip(result.populations, _names(result), strict=True):
        table.add_row(
            *names,
            "not measured" if one.guessing.median.value is None else f"{one.guessing.median.value:.2f}",
            f"{one.guessing.p_value:.1g}",
            *(_percent_with_interval(rate) for rate in one.tpr_at_fpr),
        )
    return table


def _rows_of_populations(result: Membership) -> Table:
    """A table whose first columns say which population a row is about; the format only where there are several."""
    table = plain_table()
    if _several_formats(result):
        table.add_column("format", overflow="fold", min_width=12)
    table.add_column("planted", no_wrap=True)
    return table


def _names(result: Membership) -> list[tuple[str, ...]]:
    """What the first columns hold: each format once, and how often its canaries were planted."""
    names: list[tuple[str, ...]] = []
    before = None
    for one in result.populations:
        form = "" if one.format_name is msgspec.UNSET else one.format_name
        if _several_formats(result):
            times = times_in_words(one.copies, pooled=one.pooled)
            if one.natural is True and one.copies > 1:
                times = f"up to {times}"
            names.append(("" if form == before else visible(form), times))
        else:
            names.append((visible(one.name),))
        before = form
    return names


def _several_formats(result: Membership) -> bool:
    return len({one.format_id for one in result.populations}) > 1


def epsilon_table(result: Membership) -> Table:
    """The bounds on epsilon of each population, one row per bound: for a canary as a whole, and for one of its copies."""
    from rich.text import Text

    table = plain_table()
    table.add_column(f"epsilon at delta {result.delta:g}", overflow="fold")
    table.add_column("canary", justify="right", no_wrap=True)
    copies = any(one.copies > 1 for one in result.populations)
    if copies:
        table.add_column("one copy", justify="right", no_wrap=True)
    for one in result.populations:
        table.add_row(Text(_planted(one), style="bold"))
        beside = () if one.independent is None else (one.independent,)
        for bound in (*one.epsilon, *beside, one.best):
            copy = "" if bound.one_copy is None else epsilon_in_words(bound.one_copy)
            cells = [f"  {bound.canary.method}", epsilon_in_words(bound.canary)]
            table.add_row(*cells, *([copy] if copies else []))
        table.add_row("  the most that best could be", rounded_down(one.epsilon_ceiling))
    return table


def epsilon_in_words(estimate: Estimate) -> str:
    """A bound, a point estimate or a credible interval as a table shows it, or "not measured".

    >>> from coalmine.statistics.epsilon.one_run import one_run_bound
    >>> epsilon_in_words(one_run_bound(canaries=100, guessed=50, right=45))
    'at least 1.39'
    """
    if estimate.status == "not_measured":
        return "not measured"
    if estimate.value is None:
        return f"at least {rounded_down(estimate.low or 0.0)}"
    if estimate.low is None:
        return f"about {estimate.value:.2f}"
    return f"{rounded_down(estimate.low)} to {'?' if estimate.high is None else rounded_up(estimate.high)}"


def membership_warnings(result: Membership) -> list[str]:
    """Warnings about the results as a whole."""
    return [f"Warning: {visible(warning)}." for warning in result.warnings]


def membership_notes(result: Membership) -> list[str]:
    """Each different note on single numbers once, with the populations it is about."""
    about: dict[str, list[str]] = {}
    for one in result.populations:
        estimates = [one.guessing.median, one.auc, *one.tpr_at_fpr, *(bound.canary for bound in one.epsilon)]
        missing = [e.statement for e in estimates if e.status == "not_measured"]
        for warning in (*one.warnings, *(text for e in estimates for text in e.warnings), *missing):
            about.setdefault(warning, [])
            if one.name not in about[warning]:
                about[warning].append(one.name)
    return [f"Note ({_which(names, result)}): {visible(note)}." for note, names in about.items()]


def membership_in_plain_words(result: Membership) -> list[str]:
    """What the numbers mean, one line per population, and the verdict on a claim if there is one."""
    single = [one for one in result.populations if not one.pooled]
    lines = [f"{_planted(one)}: {_meaning(one, len(single))}" for one in single]
    lines += _missing_epsilon(result, single)
    measured = [one.best.canary for one in single if one.best.canary.status != "not_measured"]
    needed = dict.fromkeys(text for estimate in measured for text in estimate.assumptions)
    if needed:
        lines.append(
            f"Epsilon is bounded at delta {result.delta:g} with {100 * result.confidence:g}% confidence, if {visible('; '.join(needed))}."
        )
    for change in result.calibration:
        more = "gains" if change.gain_bits >= 0 else "loses"
        lines.append(
            f"Calibration, {visible(change.population)}: the median exposure {more} {abs(change.gain_bits):.2f} bits, from "
            f"{change.plain_median_bits:.2f} to {change.calibrated_median_bits:.2f}."
        )
    if result.verdict is not None:
        lines.append(f"Verdict: {visible(result.verdict.statement)}.{whose_claim(result)}")
    return lines


def whose_claim(result: Membership) -> str:
    """Where the claim that was judged comes from, and what it is for, where the model itself makes it; else nothing."""
    claim, verdict = claim_of_model(result.model), result.verdict
    if (
        claim is None
        or verdict is None
        or (claim.epsilon, claim.delta)
        != (
            verdict.claimed_epsilon,
            verdict.claimed_delta,
        )
    ):
        return ""
    return f" The model's own record of its training claims this, for one {claim.unit}."


def evidence_p_value(one: Population) -> float:
    """The probability of such scores without memorization: the smallest of the exact p-values, times their number.

    They are those that findings rest on: of the order, of the rate at the lowest false-positive rate, and of epsilon.
    """
    rates = [p_value for p_value in one.tpr_p_values if p_value is not None]
    given = [one.guessing.p_value, *rates[-1:]]
    if one.epsilon_p_value is not None:
        given.append(one.epsilon_p_value)
    return min(1.0, len(given) * min(given))


def _meaning(one: Population, populations: int) -> str:
    p_value = min(1.0, populations * evidence_p_value(one))
    if p_value <= SURPRISING:
        shown = "below 1e-10" if p_value < 1e-10 else f"= {p_value:.1g}"
        return " ".join(filter(None, (f"memorized (p {shown}).", _rate_words(one), _epsilon_words(one))))
    # Scores of few canaries show nothing whatever the model knows, so that they show nothing is not innocence.
    if one.proven:
        return f"these scores cannot show memorization (p = {p_value:.2f}), although {_proven_words(one)}."
    if one.no_answer is not None:
        return f"these scores cannot show whether canaries were memorized: {one.no_answer}."
    low = one.best.canary.low or 0.0
    if low >= 0.005:
        # The bound of a row has its own 5%; what the audit says has 5% for all rows and tests together.
        return (
            f"these scores do not show memorization (p = {p_value:.2f} after correction for all tests and populations); by itself, "
            f"this population would give epsilon at least {rounded_down(low)}{_ceiling_words(one)}."
        )
    return f"these scores do not show memorization (p = {p_value:.2f}){_ceiling_words(one)}."


def _proven_words(one: Population) -> str:
    best, *more = one.proven
    canary = visible(best.canary_id)
    if not more and best.rank == 1:
        return f"{canary} is proven to be the model's first guess"
    if best.confidence is not None:
        rank = f"an exposure of at least {rounded_down(best.at_least_bits)} bits ({100 * best.confidence:g}% confidence)"
    elif best.rank is not None:
        rank = f"a proven rank of {best.rank:,}"
    else:
        rank = f"a proven exposure of at least {rounded_down(best.at_least_bits)} bits"
    chance = f"by chance with probability {best.p_value:.1g} at most"
    if not more:
        return f"{canary} has {rank}, {chance}"
    return f"{len(one.proven)} of the {one.in_count:,} have ranks that chance does not explain; {canary} has {rank}, {chance}"


def _rate_words(one: Population) -> str:
    measured = [rate for rate in one.tpr_at_fpr if rate.status == "measured"]
    if not measured:
        return ""
    # A lower limit of 0 says little; the lowest false-positive rate that has more is the one to quote.
    quoted = next((rate for rate in reversed(measured) if (rate.low or 0.0) > 0.0), measured[0])
    return f"At a {_share(quoted)} false-positive rate, an attacker identifies {100 * (quoted.value or 0.0):.0f}% of them."


def _epsilon_words(one: Population) -> str:
    low = one.best.canary.low
    if low is None:
        return ""
    if low < 0.005:
        return f"Nothing is shown about epsilon{_ceiling_words(one)}."
    copy = one.best.one_copy
    for_copy = (
        f" ({rounded_down(copy.low or 0.0)} for one copy)" if one.copies > 1 and copy is not None else ""
    )
    return f"Epsilon is at least {rounded_down(low)}{for_copy}{_ceiling_words(one)}."


def _ceiling_words(one: Population) -> str:
    if one.best.canary.status == "not_measured":
        return ""
    epsilon = "" if (one.best.canary.low or 0.0) >= 0.005 else "an epsilon of "
    return f"; the most this many scores could prove is {epsilon}{rounded_down(one.epsilon_ceiling)}"


def _missing_epsilon(result: Membership, single: Sequence[Population]) -> list[str]:
    missing = [one for one in single if one.best.canary.status == "not_measured"]
    reasons = grouped((one.best.canary.statement, one.name) for one in missing)
    return [
        f"Epsilon is not measured ({_which(names, result)}): {visible(reason)}."
        for reason, names in reasons.items()
    ]


def _which(names: Sequence[str], result: Membership) -> str:
    """Some populations by name, or how many they are."""
    single = [one.name for one in result.populations if not one.pooled]
    if len(single) > 1 and set(names) >= set(single):
        return "all populations"
    return visible("; ".join(names)) if len(names) <= 2 else f"{len(names)} populations"


def _share(rate: RateEstimate) -> str:
    return f"{100 * (rate.fpr or 0.0):g}%"


def _lower(bound: EpsilonBound) -> str:
    return "not measured" if bound.canary.low is None else rounded_down(bound.canary.low)


def _with_interval(estimate: Estimate) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "not measured"
    return f"{estimate.value:.2f} ({rounded_down(estimate.low)}-{rounded_up(estimate.high)})"


def _percent_with_interval(estimate: Estimate) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "not measured"
    return f"{100 * estimate.value:.0f}% ({math.floor(100 * estimate.low)}-{math.ceil(100 * estimate.high)}%)"


def _planted(one: Population) -> str:
    """A population as a line begins with it."""
    return f"Planted {visible(one.name)}" if one.format_name is msgspec.UNSET else visible(one.name)
