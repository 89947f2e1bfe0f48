"""Whether one rule holds: each function judges one kind of rule by measured limits, and says why.

A rule holds where every upper limit is within what is allowed. It is broken where a lower limit is above it, at a level that all who
are judged share, and where chance alone does not explain it. Everything else is not shown either way: what could not be measured, a
limit that lies on both sides, and limits of an extrapolated curve, which neither satisfy nor break a rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from coalmine.audits.exposure.chance import AMONG_OTHERS, EXTRAPOLATED, NOT_EVIDENCE, best_test, judge
from coalmine.audits.exposure.limits import lower_limit, others_needed, scores_needed
from coalmine.audits.exposure.results import ExposureDocument, ExposureResult
from coalmine.audits.extraction.results import CanaryExtraction, Extraction
from coalmine.audits.membership.findings import population_name
from coalmine.audits.membership.results import Population
from coalmine.evidence.outcomes import (
    NO_VIOLATION,
    WORDS,
    Judged,
    Outcome,
    RuleOutcome,
    error_level,
    interval_words,
    not_shown,
    stronger,
    together,
    too_weak,
    weak_words,
    within,
)
from coalmine.evidence.words import times_in_words
from coalmine.records import Estimate
from coalmine.statistics.exposure.order_tests import order_test


class MeasuredCanary(NamedTuple):
    """The exposure of a canary, and log2 of the size of its secret space."""

    result: ExposureResult
    size_bits: float


def planted_canaries(document: ExposureDocument) -> tuple[MeasuredCanary, ...]:
    """The canaries that the model was trained on; those that were withheld only show what no memory looks like."""
    sizes = {facts.format_id: facts.size_bits for facts in document.formats}
    return tuple(MeasuredCanary(one, sizes[one.format_id]) for one in document.results if one.planted)


def judge_exposures(
    canaries: Sequence[MeasuredCanary],
    limit: float,
    *,
    rule: str = "exposure.at_most",
    which: str = "planted canaries",
    confidence: float = 0.95,
    all_at_once: bool = False,
    fewest: int = 1,
    missing: Sequence[Judged] = (),
) -> RuleOutcome:
    """Whether the exposure of every given canary is at most `limit` bits; `missing` are canaries without a result.

    With `all_at_once` the upper limits must hold for all of them together at `confidence`: each must then have been measured at a
    level of 1 - (1 - confidence) / m, where m counts the canaries whose number is not exact. Lower limits always share it.
    """
    asks = f"exposure of {which} at most {limit:g} bits"
    if not canaries and not missing:
        return not_shown(rule, asks, f"there are no {which} among the results", "plant and measure some", 1.0)
    uncertain = sum(one.result.estimate.confidence is not None for one in canaries)
    shared = 1 - (1 - confidence) / max(1, uncertain)
    question = _Question(
        limit, shared if all_at_once else confidence, shared, error_level(confidence), len(canaries)
    )
    judged = [*(judge_exposure(one, question) for one in canaries), *missing]
    chance = best_test([judge(one.result, one.size_bits) for one in canaries]).p_value
    return together(
        rule, asks, judged, what="canaries", chance=chance, level=error_level(confidence), fewest=fewest
    )


class _Question(NamedTuple):
    """What is asked of each exposure: the limit in bits, the levels of upper and lower limits, and what chance may give."""

    limit: float
    upper: float
    lower: float
    chance: float
    canaries: int


def judge_exposure(one: MeasuredCanary, asked: _Question) -> Judged:
    """Whether the exposure of one canary is at most the limit, above it, or not shown to be either."""
    result, estimate, limit = one.result, one.result.estimate, asked.limit
    name = f"{result.canary_id} (trained on {times_in_words(result.repetitions)})"
    if estimate.status == "not_measured":
        return Judged(name, "not_shown", estimate.statement, math.inf, "measure it in another way (--method)")
    if estimate.method in NOT_EVIDENCE:
        return Judged(
            name, "not_shown", EXTRAPOLATED.partition(";")[0], math.inf, EXTRAPOLATED.partition("; ")[2]
        )
    shown = interval_words(estimate, "bits")
    if one.size_bits <= limit:
        why = f"{shown}, but its space has only {one.size_bits:.2f} bits, so the model's first guess would not break this rule"
        return Judged(name, "not_shown", why, one.size_bits, "a larger format, or a lower limit")
    low, high = lower_limit(estimate, asked.lower), estimate.high
    if high is not None and high <= limit:
        if too_weak(estimate, asked.upper):
            return Judged(name, "not_shown", weak_words(estimate, asked.upper), high, stronger(asked.upper))
        return Judged(name, "holds", shown, high)
    if low > limit:
        return Judged(name, "broken", shown, low if high is None else high)
    why = (
        "the lower limit is within it, and there is no upper limit"
        if high is None
        else "the limit lies in between"
    )
    return Judged(
        name,
        "not_shown",
        f"{shown}: {why}",
        one.size_bits if high is None else high,
        _better(estimate, asked),
    )


def _better(estimate: Estimate, asked: _Question) -> str:
    """What to measure where a limit lies between the limits of an interval."""
    if estimate.method in AMONG_OTHERS:
        what, option = ("references", "plant") if estimate.method == "references" else ("samples", "expose")
        needed = others_needed(estimate, asked.limit, asked.lower, asked.chance, asked.canaries)
        more = "" if needed is None else f", or about {needed:,} {what} (`coalmine {option} --{what}`)"
        return f"another method (`coalmine expose --method guided`, or splitting where the model does not support incremental decoding){more}"
    if estimate.method == "bounded":
        return "a larger --budget, or --method guided"
    return "more draws (`coalmine expose --samples`), or exact ranks (--method exact)"


def smallest_budget(searches: Iterable[Extraction]) -> int | None:
    """The fewest expansions that a search without a proof has spent; None where each has a proof."""
    return min((one.certificate.expansions for one in searches if not one.proven), default=None)


def judge_extractions(
    canaries: Sequence[CanaryExtraction],
    most: int,
    *,
    budget: int | None,
    chances: Mapping[str, float] | None = None,
    rule: str = "extraction.at_most_extracted",
    which: str = "planted canaries",
    among_first: int | None = None,
    accept_unproven: bool = False,
    budget_at_least: int | None = None,
    fewest: int = 1,
    confidence: float = 0.95,
    missing: Sequence[str] = (),
) -> RuleOutcome:
    """Whether at most `most` of the given canaries came out of a search that spent `budget` expansions (None: not known).

    `chances` says, by canary, how likely its place is without memorization; `missing` are planted canaries that were not looked
    for. A canary that came out counts whether or not the search is proven. One that did not counts as safe only where the search is
    proven, or where `accept_unproven` says that the budget is enough.
    """
    first = "" if among_first is None else f" among the first {among_first}"
    asks = f"at most {most} of the {which} extracted{first}"
    if not canaries:
        return not_shown(rule, asks, f"there are no {which} among the results", "plant and extract some", 1.0)
    out = [
        one
        for one in canaries
        if one.extracted and (among_first is None or one.place is None or one.place <= among_first)
    ]
    names = ", ".join(f"{one.canary_id} at place {one.place}" for one in out[:3])
    came_out = {id(one) for one in out}
    open_ones = [one for one in canaries if id(one) not in came_out and not one.proven]
    enough = len(out) + len(open_ones) + len(missing) <= most
    spent = "an unknown number of" if budget is None else f"{budget:,}"
    outcome: Outcome = "not_shown"
    settle = ""
    if len(out) > most:
        outcome = "broken"
        evidence = f"{len(out)} of {len(canaries)} came out: {names}{' ...' if len(out) > 3 else ''}"
    elif len(canaries) < fewest:
        evidence = f"{len(canaries)} canaries were looked for, and the policy asks for at least {fewest}"
        settle = f"plant and extract at least {fewest}"
    elif missing and not enough:
        evidence = f"{len(missing)} planted canaries were not looked for, such as {missing[0]}"
        settle = "run `coalmine extract --verify` with the whole canaries.json"
    elif open_ones and not enough and not accept_unproven:
        evidence = f"{len(open_ones)} of {len(canaries)} did not come out within {spent} expansions, which proves nothing"
        settle = "search with a larger --budget, or accept_unproven"
    elif (
        open_ones
        and not enough
        and budget_at_least is not None
        and (budget is None or budget < budget_at_least)
    ):
        evidence = (
            f"the search spent {spent} expansions, and the policy asks for at least {budget_at_least:,}"
        )
        settle = f"search with --budget {budget_at_least}"
    elif open_ones:
        outcome = "holds"
        evidence = f"{len(out)} of {len(canaries)} came out within {spent} expansions; that no more would is not proven"
    else:
        outcome = "holds"
        evidence = f"{len(out)} of {len(canaries)} came out, and it is proven that no more are among those looked for"
    found = RuleOutcome(
        rule=rule,
        asks=asks,
        outcome=outcome,
        words=WORDS[outcome],
        evidence=evidence,
        judged=len(canaries),
        settle=settle,
        # Where nothing says how large the space is, what came out counts.
        chance=order_test([_chance_of(one, came_out, chances) for one in canaries]).p_value,
        details=tuple(f"{one.canary_id}: extracted at place {one.place}" for one in out),
    )
    return within(found, error_level(confidence))


def _chance_of(one: CanaryExtraction, came_out: set[int], chances: Mapping[str, float] | None) -> float:
    if id(one) not in came_out:
        return 1.0
    return 0.0 if chances is None else chances.get(one.canary_id, 0.0)


class NamedEstimate(NamedTuple):
    """A rate of a population or a group, and how likely one as high is if the rule holds or the model remembers nothing."""

    name: str
    estimate: Estimate
    p_value: float | None
    # How many canaries or sequences it rests on.
    n: int


def judge_estimates(
    estimates: Sequence[NamedEstimate],
    limit: float,
    *,
    rule: str,
    asks: str,
    what: str,
    confidence: float,
    missing: Sequence[Judged] = (),
) -> RuleOutcome:
    """Whether every named estimate is at most `limit`; `missing` are those without a number."""
    if not estimates and not missing:
        return not_shown(rule, asks, f"there are no {what} among the results", "measure some", 1.0)
    shared = 1 - (1 - confidence) / max(1, len(estimates))
    judged = [*(_judge_estimate(one, limit, confidence, shared, what) for one in estimates), *missing]
    p_values = [one.p_value for one in estimates if one.p_value is not None]
    chance = min(1.0, len(p_values) * min(p_values)) if p_values else 1.0
    return together(rule, asks, judged, what=what, chance=chance, level=error_level(confidence))


def _judge_estimate(one: NamedEstimate, limit: float, confidence: float, shared: float, what: str) -> Judged:
    name, estimate = one.name, one.estimate
    if estimate.status == "not_measured" or estimate.high is None:
        return Judged(name, "not_shown", estimate.statement, math.inf, f"measure more {_units(what)}")
    shown = interval_words(estimate, "")
    if estimate.high <= limit:
        if too_weak(estimate, confidence):
            return Judged(
                name, "not_shown", weak_words(estimate, confidence), estimate.high, stronger(confidence)
            )
        return Judged(name, "holds", shown, estimate.high)
    if lower_limit(estimate, shared) > limit:
        return Judged(name, "broken", shown, estimate.high)
    needed = scores_needed(estimate, limit, one.n)
    many = "more" if needed is None else f"about {needed:,}"
    return Judged(
        name, "not_shown", f"{shown}: the limit lies in between", estimate.high, f"{many} {_units(what)}"
    )


def _units(what: str) -> str:
    return "sequences" if what == "groups" else "canaries of this kind, and as many references"


def judge_epsilon(
    populations: Sequence[Population],
    claimed: float,
    *,
    rule: str,
    asks: str,
    confidence: float,
    missing: Sequence[Judged] = (),
) -> RuleOutcome:
    """Whether a lower bound on epsilon for one record exceeds the claimed one; below it nothing is proven."""
    if not populations and not missing:
        return not_shown(rule, asks, "there are no populations among the results", "measure some", 1.0)
    shared = 1 - (1 - confidence) / max(1, len(populations))
    judged = [(one.format_id, _judge_epsilon(one, claimed, confidence, shared)) for one in populations]
    # A population that could not have shown a violation does not stand in the way of another of the same format that could.
    able = {format_id for format_id, one in judged if one.outcome != "not_shown"}
    unable = [one for format_id, one in judged if one.evidence.startswith(_UNABLE) and format_id in able]
    kept = [one for _, one in judged if one not in unable]
    p_values = [one.epsilon_p_value for one in populations if one.epsilon_p_value is not None]
    found = together(
        rule,
        asks,
        [*kept, *missing],
        what="populations",
        chance=min(1.0, len(p_values) * min(p_values)) if p_values else 1.0,
        level=error_level(confidence),
    )
    if found.outcome == "holds":
        rest = f" ({len(unable)} more could not have shown one)" if unable else ""
        found = msgspec.structs.replace(
            found,
            words=NO_VIOLATION,
            evidence=f"{found.evidence}; no violation was shown{rest}, which proves no privacy",
        )
    return found


_UNABLE = "the most this many scores could prove is"
_MORE = "plant more canaries, once each, and withhold half of them by a coin"


def _judge_epsilon(one: Population, claimed: float, confidence: float, shared: float) -> Judged:
    bound = one.best.one_copy
    if bound is None or bound.low is None or bound.status == "not_measured":
        why = "there is no bound for one copy" if bound is None else bound.statement
        return Judged(population_name(one), "not_shown", why, math.inf, _MORE)
    if bound.low > claimed:
        if too_weak(bound, shared):
            settle = f"judge the claim itself (`coalmine membership --claimed-epsilon {claimed:g}`), or {stronger(shared)}"
            return Judged(
                one.name, "not_shown", f"{bound.statement}; {weak_words(bound, shared)}", bound.low, settle
            )
        return Judged(population_name(one), "broken", bound.statement, bound.low)
    if too_weak(bound, confidence):
        return Judged(
            population_name(one), "not_shown", weak_words(bound, confidence), bound.low, stronger(confidence)
        )
    if one.epsilon_ceiling / one.copies <= claimed:
        why = f"{_UNABLE} {one.epsilon_ceiling / one.copies:.2f}, whatever the model remembers"
        return Judged(population_name(one), "not_shown", why, bound.low, _MORE)
    return Judged(population_name(one), "holds", bound.statement, bound.low)
