"""Does one rule hold? Each function judges one kind of rule by measured limits, and says why.

A rule is "broken" where an upper limit lies above what is allowed. It is "not_measured" where there is no upper limit, or none at
the level that the policy asks for: what could not be measured never holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from coalmine.audits.exposure_results import ExposureDocument, ExposureResult
from coalmine.audits.extraction_results import CanaryExtraction, Extraction
from coalmine.audits.membership_results import Population
from coalmine.records import Estimate
from coalmine.reports.exposure_table import times_in_words
from coalmine.reports.gate.outcomes import (
    NO_VIOLATION,
    WORDS,
    Judged,
    Outcome,
    RuleOutcome,
    interval_words,
    together,
    too_weak,
    unmeasured,
    weak_words,
)


class MeasuredCanary(NamedTuple):
    """The exposure of a canary, log2 of the size of its secret space, and why it cannot be relied on, if so."""

    result: ExposureResult
    size_bits: float
    problem: str | None = None


def planted_canaries(document: ExposureDocument) -> tuple[MeasuredCanary, ...]:
    """The canaries that the model was trained on; those that were withheld only show what no memory looks like."""
    sizes = {facts.format_id: facts.size_bits for facts in document.formats}
    found = []
    for one in document.results:
        if one.planted:
            fit = document.tail_fits.get(one.format_id) if one.method == "extrapolated" else None
            problem = fit.warnings[0] if fit is not None and fit.warnings else None
            found.append(MeasuredCanary(one, sizes[one.format_id], problem))
    return tuple(found)


def judge_exposures(
    canaries: Sequence[MeasuredCanary],
    limit: float,
    *,
    rule: str = "exposure.at_most",
    which: str = "planted canaries",
    confidence: float = 0.95,
    all_at_once: bool = False,
    fewest: int = 1,
) -> RuleOutcome:
    """Whether the upper limit of every given canary's exposure is at most `limit` bits.

    With `all_at_once` the limits must hold for all of them together at `confidence`: each must then have been measured at a
    level of 1 - (1 - confidence) / m, where m counts the canaries whose number is not exact.
    """
    asks = f"exposure of {which} at most {limit:g} bits"
    if not canaries:
        return unmeasured(rule, asks, f"there are no {which} among the results")
    level = confidence
    if all_at_once:
        uncertain = sum(one.result.estimate.confidence is not None for one in canaries)
        level = 1 - (1 - confidence) / max(1, uncertain)
    judged = [judge_exposure(one, limit, level) for one in canaries]
    warnings = []
    toothless = sum(one.size_bits <= limit for one in canaries)
    if toothless:
        warnings.append(
            f"{toothless} of {len(canaries)} canaries could not break this rule if they were the model's first guess: their "
            f"space has no more than {limit:g} bits; use a larger format or a lower limit"
        )
    return together(rule, asks, judged, what="canaries", fewest=fewest, warnings=warnings)


def judge_exposure(one: MeasuredCanary, limit: float, level: float) -> Judged:
    """Whether the upper limit of one canary's exposure is at most `limit` bits, at a confidence of at least `level`."""
    result, estimate = one.result, one.result.estimate
    name = f"{result.canary_id} (trained on {times_in_words(result.repetitions)})"

    def became(outcome: Outcome, evidence: str, worst: float = -math.inf) -> Judged:
        return Judged(name, outcome, evidence, worst)

    if estimate.status == "not_measured":
        return became("not_measured", estimate.statement)
    if one.problem is not None:
        return became("not_measured", one.problem)
    if one.size_bits <= limit:
        return became("holds", f"at most {one.size_bits:.2f} bits are possible", one.size_bits)
    if too_weak(estimate, level):
        return became("not_measured", weak_words(estimate, level))
    shown = interval_words(estimate, "bits")
    low, high = estimate.low, estimate.high
    if high is not None and min(high, one.size_bits) <= limit:
        return became("holds", shown, high)
    if low is not None and low > limit:
        return became("broken", shown, low if high is None else high)
    if high is None or estimate.status == "lower_bound":
        # The method could not look further up, so nothing says whether the canary is above.
        return became("not_measured", f"{shown}, and there is no upper limit that decides")
    return became(
        "broken", f"{shown}: the upper limit is above, which the measurement does not exclude", high
    )


def smallest_budget(searches: Iterable[Extraction]) -> int | None:
    """The fewest expansions that a search without a proof has spent; None where each has a proof."""
    return min((one.certificate.expansions for one in searches if not one.proven), default=None)


def judge_extractions(
    canaries: Sequence[CanaryExtraction],
    most: int,
    *,
    budget: int | None,
    rule: str = "extraction.at_most_extracted",
    which: str = "planted canaries",
    among_first: int | None = None,
    accept_unproven: bool = False,
    budget_at_least: int | None = None,
    fewest: int = 1,
) -> RuleOutcome:
    """Whether at most `most` of the given canaries came out of a search that spent `budget` expansions (None: not known).

    A canary that came out counts whether or not the search is proven. One that did not counts as safe only where the search is
    proven, or where `accept_unproven` says that the budget is enough.
    """
    first = "" if among_first is None else f" among the first {among_first}"
    asks = f"at most {most} of the {which} extracted{first}"
    if not canaries:
        return unmeasured(rule, asks, f"there are no {which} among the results")
    out = [
        one
        for one in canaries
        if one.extracted and (among_first is None or one.place is None or one.place <= among_first)
    ]
    names = ", ".join(f"{one.canary_id} at place {one.place}" for one in out[:3])
    came_out = {id(one) for one in out}
    open_ones = [one for one in canaries if id(one) not in came_out and not one.proven]
    enough = len(out) + len(open_ones) <= most
    spent = "an unknown number of" if budget is None else f"{budget:,}"
    details = tuple(f"{one.canary_id}: extracted at place {one.place}" for one in out)
    outcome: Outcome = "holds"
    if len(out) > most:
        outcome = "broken"
        evidence = f"{len(out)} of {len(canaries)} came out: {names}{' ...' if len(out) > 3 else ''}"
    elif len(canaries) < fewest:
        outcome = "not_measured"
        evidence = f"{len(canaries)} canaries were looked for, and the policy asks for at least {fewest}"
    elif open_ones and not enough and not accept_unproven:
        outcome = "not_measured"
        evidence = (
            f"{len(open_ones)} of {len(canaries)} did not come out within {spent} expansions, which proves nothing; search with a "
            "larger --budget, or accept_unproven"
        )
    elif (
        open_ones
        and not enough
        and budget_at_least is not None
        and (budget is None or budget < budget_at_least)
    ):
        outcome = "not_measured"
        evidence = (
            f"the search spent {spent} expansions, and the policy asks for at least {budget_at_least:,}"
        )
    elif open_ones:
        evidence = f"{len(out)} of {len(canaries)} came out within {spent} expansions; that no more would is not proven"
    else:
        evidence = f"{len(out)} of {len(canaries)} came out, and it is proven that no more are among those looked for"
    return RuleOutcome(
        rule=rule,
        asks=asks,
        outcome=outcome,
        words=WORDS[outcome],
        evidence=evidence,
        judged=len(canaries),
        details=details,
    )


def judge_estimates(
    estimates: Sequence[tuple[str, Estimate]],
    limit: float,
    *,
    rule: str,
    asks: str,
    what: str,
    confidence: float,
) -> RuleOutcome:
    """Whether the upper limit of every named estimate is at most `limit`."""
    if not estimates:
        return unmeasured(rule, asks, f"there are no {what} among the results")
    judged = []
    for name, estimate in estimates:
        if estimate.status == "not_measured" or estimate.high is None:
            judged.append(Judged(name, "not_measured", estimate.statement))
        elif too_weak(estimate, confidence):
            judged.append(Judged(name, "not_measured", weak_words(estimate, confidence)))
        else:
            outcome: Outcome = "holds" if estimate.high <= limit else "broken"
            judged.append(Judged(name, outcome, interval_words(estimate, ""), estimate.high))
    return together(rule, asks, judged, what=what)


def judge_epsilon(
    populations: Sequence[Population], claimed: float, *, rule: str, asks: str, confidence: float
) -> RuleOutcome:
    """Whether a lower bound on epsilon for one record exceeds the claimed one; below it nothing is proven."""
    if not populations:
        return unmeasured(rule, asks, "there are no populations among the results")
    judged = []
    for one in populations:
        bound = one.best.one_copy
        if bound is None or bound.low is None or bound.status == "not_measured":
            why = "there is no bound for one copy" if bound is None else bound.statement
            judged.append(Judged(one.name, "not_measured", why))
        elif too_weak(bound, confidence):
            judged.append(Judged(one.name, "not_measured", weak_words(bound, confidence)))
        elif bound.low > claimed:
            judged.append(Judged(one.name, "broken", bound.statement, bound.low))
        elif one.epsilon_ceiling / one.copies <= claimed:
            why = f"so few scores could show {one.epsilon_ceiling / one.copies:.2f} at most, whatever the model remembers"
            judged.append(Judged(one.name, "not_measured", why))
        else:
            judged.append(Judged(one.name, "holds", bound.statement, bound.low))
    # A population that could not have shown a violation does not stand in the way of one that could.
    able = [one for one in judged if one.outcome != "not_measured"]
    found = together(rule, asks, able or judged, what="populations")
    if found.outcome == "holds":
        unable = len(judged) - len(able)
        rest = f" ({unable} more could not have shown one)" if unable else ""
        found = msgspec.structs.replace(
            found,
            words=NO_VIOLATION,
            evidence=f"{found.evidence}; no violation was shown{rest}, which proves no privacy",
        )
    return found
