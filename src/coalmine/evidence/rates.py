"""Whether rates, such as an AUC or the share of recited sequences, are within the limit of a rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coalmine.evidence.limits import scores_needed, widened_low
from coalmine.evidence.outcomes import (
    PartOutcome,
    RuleOutcome,
    error_level,
    interval_words,
    not_shown,
    open_part,
    stronger,
    together,
    too_weak,
    weak_words,
)
from coalmine.records import Estimate


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
    missing: Sequence[PartOutcome] = (),
) -> RuleOutcome:
    """Whether every named estimate is at most `limit`; `missing` are those without a number."""
    if not estimates and not missing:
        return not_shown(rule, asks, f"there are no {what} among the results", "measure some", 1.0)
    shared = 1 - (1 - confidence) / max(1, len(estimates))
    judged = [*(_judge_estimate(one, limit, confidence, shared, what) for one in estimates), *missing]
    p_values = [one.p_value for one in estimates if one.p_value is not None]
    chance = min(1.0, len(p_values) * min(p_values)) if p_values else 1.0
    return together(rule, asks, judged, what=what, chance=chance, level=error_level(confidence))


def _judge_estimate(
    one: NamedEstimate, limit: float, confidence: float, shared: float, what: str
) -> PartOutcome:
    name, estimate = one.name, one.estimate
    if estimate.status == "not_measured" or estimate.high is None:
        return open_part(name, estimate.statement, f"measure more {_units(what)}")
    shown = interval_words(estimate, "")
    if estimate.high <= limit:
        if too_weak(estimate, confidence):
            return open_part(name, weak_words(estimate, confidence), stronger(confidence), estimate.high)
        return PartOutcome(name, "holds", shown, estimate.high)
    if widened_low(estimate, shared) > limit:
        return PartOutcome(name, "broken", shown, estimate.high)
    needed = scores_needed(estimate, limit, one.n)
    many = "more" if needed is None else f"about {needed:,}"
    return open_part(name, f"{shown}: the limit lies in between", f"{many} {_units(what)}", estimate.high)


def _units(what: str) -> str:
    return "sequences" if what == "groups" else "canaries of this kind, and as many references"
