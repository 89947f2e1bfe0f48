"""Whether the numbers of a membership.json can be true together: counts, rates, areas and bounds on epsilon."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from coalmine.records.contradictions import (
    another_interval,
    at_most,
    count_problems,
    estimate_problems,
    hits_of,
    in_range,
    level_problems,
    same,
    share_problems,
    twice,
)
from coalmine.statistics.intervals import effective_interval

if TYPE_CHECKING:
    from coalmine.audits.membership.results import EpsilonBound, Membership, Population
    from coalmine.corpus.planting.manifest import CanarySet
    from coalmine.statistics.epsilon.claimed import Verdict

# Bounds on epsilon are found by halving intervals, and so is the highest that there can be.
_BOUND_ROUNDING = 1e-3
# More are not in any memory, and a float does not hold them.
_MOST_SCORES = 2**53


def membership_problems(document: Membership) -> Iterator[str]:
    """What cannot be true in the results of `membership`."""
    yield from level_problems("the confidence", document.confidence)
    yield from share_problems("delta", document.delta)
    yield from share_problems("the probability of being planted", document.inclusion)
    yield from twice("population", [one.name for one in document.populations])
    for one in document.populations:
        yield from _population_problems(one, document.confidence)
    names = {one.name for one in document.populations}
    for row in document.calibration:
        name = f"the calibration of population {row.population!r}"
        if row.population not in names:
            yield f"{name} is of a population that is not there"
        if not same(row.gain_bits, row.calibrated_median_bits - row.plain_median_bits):
            yield f"{name} has a gain of {row.gain_bits:g} bits, which is not the difference of its medians"
    yield from _verdict_problems("the verdict", document.verdict)


def _population_problems(one: Population, confidence: float) -> Iterator[str]:
    name = f"population {one.name!r}"
    for part, count, least in (
        ("copies", one.copies, 1),
        ("in scores", one.in_count, 1),
        ("out scores", one.out_count, 1),
        ("withheld canaries", one.withheld_count, 0),
    ):
        yield from count_problems(f"{name}: the number of {part}", count, least)
    if one.withheld_count > one.out_count:
        yield f"{name} has {one.withheld_count:,} withheld canaries among {one.out_count:,} out scores"
    yield from _guessing_problems(name, one)
    yield from estimate_problems(f"{name}: the AUC", one.auc, 0, 1)
    if one.auc.status == "measured" and one.auc.n != one.in_count + one.out_count:
        yield f"{name} has an AUC of {one.auc.n:,} scores, and {one.in_count + one.out_count:,} of them"
    if _has_other_limits(one, confidence):
        yield f"{name} has an AUC with an interval that {one.in_count:,} in and {one.out_count:,} out scores do not give"
    if one.tpr_p_values and len(one.tpr_p_values) != len(one.tpr_at_fpr):
        yield f"{name} has {len(one.tpr_at_fpr)} rates and {len(one.tpr_p_values)} p-values"
    for rate in one.tpr_at_fpr:
        yield from estimate_problems(f"{name}: the {rate.method}", rate, 0, 1)
        if rate.value is not None and hits_of(rate.value, one.in_count) is None:
            yield f"{name}: the {rate.method} is not a share of {one.in_count:,} scores"
    for estimate in (one.auc, *one.tpr_at_fpr):
        if estimate.confidence is not None and not same(estimate.confidence, confidence):
            yield f"{name}: the {estimate.method} has a confidence of {estimate.confidence:g}, and the results have {confidence:g}"
    for p_value in (*one.tpr_p_values, one.epsilon_p_value):
        yield from share_problems(f"{name}: a p-value", p_value)
    yield from _epsilon_problems(name, one)
    yield from _verdict_problems(f"{name}: the verdict", one.verdict)
    for canary in one.proven:
        whose = f"{name}: canary {canary.canary_id!r}"
        yield from in_range(f"{whose}: its rank", canary.rank, 1)
        yield from in_range(f"{whose}: its exposure", canary.at_least_bits, 0)
        yield from share_problems(f"{whose}: its p-value", canary.p_value)
        yield from level_problems(f"{whose}: its confidence", canary.confidence)


def _has_other_limits(one: Population, confidence: float) -> bool:
    """Whether the interval of the AUC is not the one that follows from its value and the numbers of scores."""
    area, trials = one.auc.value, min(one.in_count, one.out_count)
    if area is None or not (0 <= area <= 1 and 1 <= trials <= _MOST_SCORES and 0 < confidence < 1):
        return False  # that is said already
    return another_interval(one.auc, *effective_interval(area, trials, confidence))


def _guessing_problems(name: str, one: Population) -> Iterator[str]:
    facts = one.guessing
    most = math.log2(one.out_count) if one.out_count >= 1 else 0.0
    yield from estimate_problems(f"{name}: the median exposure", facts.median, 0, most)
    if facts.median.status == "measured" and facts.median.n != one.in_count:
        yield f"{name} has a median exposure of {facts.median.n:,} canaries, and {one.in_count:,} of them"
    for part, bits in (
        ("the mean exposure", facts.mean_bits),
        ("the mean exposure of guessing", facts.guessing_mean_bits),
        ("the median exposure of guessing", facts.guessing_median_bits),
        ("the upper quartile of guessing", facts.guessing_upper_quartile_bits),
    ):
        yield from in_range(f"{name}: {part}", bits, 0, most)
    if not at_most(facts.guessing_median_bits, facts.guessing_upper_quartile_bits):
        yield f"{name} has a median of guessing that is above its upper quartile"
    yield from share_problems(f"{name}: the share in the upper quarter", facts.share_in_upper_quarter)
    yield from share_problems(f"{name}: the p-value of its median", facts.p_value)


def _epsilon_problems(name: str, one: Population) -> Iterator[str]:
    yield from in_range(f"{name}: the highest bound on epsilon", one.epsilon_ceiling, 0)
    # By group privacy it is at most the quotient, and at a delta above 0 less.
    most = one.epsilon_ceiling / max(1, one.copies) + _BOUND_ROUNDING
    yield from in_range(f"{name}: the highest bound for one copy", one.one_copy_ceiling, 0, most)
    bounds: list[EpsilonBound] = [*one.epsilon, one.best]
    bounds += [] if one.independent is None else [one.independent]
    for bound in bounds:
        yield from estimate_problems(f"{name}: epsilon by {bound.canary.method!r}", bound.canary, 0)
        if bound.one_copy is None:
            continue
        yield from estimate_problems(
            f"{name}: epsilon of one copy by {bound.one_copy.method!r}", bound.one_copy, 0
        )
        if one.copies == 1 and bound.one_copy != bound.canary:
            yield f"{name} was planted once, and has one epsilon for a canary and another for its only copy"
    headline = one.best.canary.low
    if headline is not None and headline > one.epsilon_ceiling + _BOUND_ROUNDING:
        yield f"{name} has an epsilon of at least {headline:.2f}, and {one.epsilon_ceiling:.2f} is the most that its scores could show"


def _verdict_problems(name: str, verdict: Verdict | None) -> Iterator[str]:
    if verdict is None:
        return
    yield from in_range(f"{name}: the claimed epsilon", verdict.claimed_epsilon, 0)
    yield from in_range(
        f"{name}: the alternative epsilon", verdict.alternative_epsilon, verdict.claimed_epsilon
    )
    yield from count_problems(f"{name}: the number of copies", verdict.copies, 1)
    yield from share_problems(f"{name}: the claimed delta", verdict.claimed_delta)
    yield from share_problems(f"{name}: the p-value", verdict.p_value)
    yield from share_problems(f"{name}: the power", verdict.power)
    yield from level_problems(f"{name}: the confidence", verdict.confidence)


def membership_manifest_problems(document: Membership, canaries: CanarySet) -> Iterator[str]:
    """What the results say about populations, and the manifest of their canaries contradicts."""
    for one in document.populations:
        if one.natural is True:
            kind = {canary.canary_id for canary in canaries if canary.kind == one.format_id}
            if one.in_count > len(kind) or not {canary.canary_id for canary in one.proven} <= kind:
                yield f"population {one.name!r} has secrets that are not of this kind, by the manifest"
            continue
        form = None if one.format_id is None else canaries.formats.get(one.format_id)
        planted = [canary for canary in canaries if canary.planted and canary.format_id == one.format_id]
        count = len([canary for canary in planted if one.pooled or canary.repetitions == one.copies])
        if form is None or (one.template is not None and one.template != form.template):
            yield f"population {one.name!r} is of a format that is not that of the manifest"
        elif count != one.in_count + one.unscored_count:
            all_of_them = one.in_count + one.unscored_count
            yield f"population {one.name!r} has {all_of_them:,} canaries that were planted, and the manifest {count:,}"
        known = {canary.canary_id for canary in planted}
        if not {canary.canary_id for canary in one.proven} <= known:
            yield f"population {one.name!r} has a canary that was not planted, by the manifest"
