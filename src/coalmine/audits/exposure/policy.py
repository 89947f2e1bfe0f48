"""The rules of a policy about exposure.

A rule holds where every upper limit is within what is allowed. It is broken where a lower limit is above it, at a level that all
canaries share, and where chance alone does not explain it. Everything else is not shown either way: what could not be measured, a limit
that lies on both sides, and limits of an extrapolated curve, which neither satisfy nor break a rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from coalmine.audits.exposure.chance import (
    EXTRAPOLATED,
    WRONG_SIDE,
    counted_better,
    group_test,
    judge,
    pushed_away,
)
from coalmine.audits.exposure.coverage import without_exposure
from coalmine.audits.exposure.estimators import estimator_of
from coalmine.audits.exposure.results import EXPOSURES, ExposureResult, Exposures
from coalmine.evidence.limits import MOST_ADVISED, rounded_up, widened_low
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
from coalmine.evidence.policy import PolicySection, PolicyTerms, absent
from coalmine.evidence.run import Run
from coalmine.evidence.words import times_in_words
from coalmine.records import Estimate
from coalmine.records.estimate import rounded_down
from coalmine.statistics.intervals import clopper_pearson


class ExposureRules(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on each planted canary's exposure, in bits."""

    at_most: float | None = None
    # Canaries that were trained on more often are not judged by `at_most`.
    up_to_repetitions: int | None = None
    # A limit for the canaries that were trained on exactly so often; TOML has text for keys.
    by_repetitions: dict[str, float] = {}
    # Whether the upper limits of all canaries must hold together at the confidence of the policy (Bonferroni).
    all_at_once: bool = False


class MeasuredCanary(NamedTuple):
    """The exposure of a canary, and log2 of the size of its secret space."""

    result: ExposureResult
    size_bits: float
    # What its probability alone proves of its exposure, in bits; None where that is not known.
    proven: float | None = None


def planted_canaries(document: Exposures) -> tuple[MeasuredCanary, ...]:
    """The canaries that the model was trained on; those that were withheld only show what no memory looks like."""
    sizes = {facts.format_id: facts.size_bits for facts in document.formats}
    proven = document.proven_bits or {}
    return tuple(
        MeasuredCanary(one, sizes[one.format_id], proven.get(one.canary_id))
        for one in document.results
        if one.planted
    )


def judge_exposures(
    canaries: Sequence[MeasuredCanary],
    limit: float,
    *,
    rule: str = "exposure.at_most",
    which: str = "planted canaries",
    what: str = "canaries",
    confidence: float = 0.95,
    all_at_once: bool = False,
    fewest: int = 1,
    missing: Sequence[PartOutcome] = (),
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
    tested, level = [judge(*one) for one in canaries], error_level(confidence)
    chance = group_test(tested).p_value
    found = together(rule, asks, judged, what=what, chance=chance, level=level, fewest=fewest)
    if found.outcome == "holds" and pushed_away(tested, level):
        return not_shown(rule, asks, WRONG_SIDE, "look at what was done to the model after training", chance)
    return found


class _Question(NamedTuple):
    """What is asked of each exposure: the limit in bits, the levels of upper and lower limits, and what chance may give."""

    limit: float
    upper: float
    lower: float
    chance: float
    canaries: int


def judge_exposure(one: MeasuredCanary, asked: _Question) -> PartOutcome:
    """Whether the exposure of one canary is at most the limit, above it, or not shown to be either."""
    result, estimate, limit = one.result, one.result.estimate, asked.limit
    name = f"{result.canary_id} (trained on {times_in_words(result.repetitions)})"
    if estimate.status == "not_measured":
        return open_part(name, estimate.statement, "measure it in another way (--method)")
    if not estimator_of(estimate.method).is_evidence:
        why, _, instead = EXTRAPOLATED.partition("; ")
        return open_part(name, why, instead)
    shown = interval_words(estimate, "bits")
    if one.size_bits <= limit:
        why = f"{shown}, but its space has only {one.size_bits:.2f} bits, so the model's first guess would not break this rule"
        return open_part(name, why, "a larger format, or a lower limit", one.size_bits)
    low, high = lower_limit(estimate, asked.lower), estimate.high
    if one.proven is not None and counted_better(estimate) == 0 and one.proven > low:
        low, shown = one.proven, f"{shown}, and at least {rounded_down(one.proven)} by its probability"
    if high is not None and high <= limit:
        if too_weak(estimate, asked.upper):
            return open_part(name, weak_words(estimate, asked.upper), stronger(asked.upper), high)
        return PartOutcome(name, "holds", shown, high)
    if low > limit:
        return PartOutcome(name, "broken", shown, low if high is None else high)
    why = (
        "the lower limit is within it, and there is no upper limit"
        if high is None
        else "the limit lies in between"
    )
    worst = one.size_bits if high is None else high
    return open_part(name, f"{shown}: {why}", _better(estimate, asked), worst)


def lower_limit(estimate: Estimate, level: float) -> float:
    """The lower limit of an exposure, in bits, at a confidence of `level`.

    A rank among references or samples gives it exactly. Other intervals are widened as those of a normal error would be, or of
    Student's t for splitting, which uses a few runs; a number that is exact or proven stays as it is.

    >>> from coalmine.statistics.exposure.ranks import reference_exposure
    >>> best = reference_exposure(1.0, range(2, 1002))
    >>> [round(lower_limit(best, level), 2) for level in (0.95, 0.999)]
    [8.09, 7.05]
    """
    better = counted_better(estimate)
    known = estimate.low is None or estimate.confidence is None or estimate.confidence >= level
    if better is not None and not known and estimate.low is not None:
        return min(estimate.low, bits(clopper_pearson(better, estimate.n, level)[1]))
    return widened_low(estimate, level, estimator_of(estimate.method).degrees_of_freedom)


def bits(probability: float) -> float:
    """Minus log2 of a probability."""
    return math.inf if probability <= 0 else abs(math.log2(probability))


def others_needed(
    estimate: Estimate, limit: float, level: float, chance_level: float, canaries: int
) -> int | None:
    """How many references or samples would decide whether an exposure is above `limit` bits, if their share stays as it is.

    None where more than ten million would not, because the share is too close to the limit.
    """
    better = counted_better(estimate)
    if better is None:
        return None
    share = better / estimate.n
    above = share < 2.0**-limit
    n = 2 * estimate.n
    while n <= MOST_ADVISED:
        count = math.floor(share * n)
        low_p, high_p = clopper_pearson(count, n, level)
        by_chance = 2.0 * canaries * (count + 1) / (n + 1)
        if above and bits(high_p) > limit and by_chance <= chance_level:
            return rounded_up(n)
        if not above and bits(low_p) <= limit:
            return rounded_up(n)
        n = math.ceil(n * 1.25)
    return None


def _better(estimate: Estimate, asked: _Question) -> str:
    """What to measure where a limit lies between the limits of an interval."""
    estimator = estimator_of(estimate.method)
    if estimator.among_others:
        what, option = estimator.among, "plant" if estimator.among == "references" else "expose"
        needed = others_needed(estimate, asked.limit, asked.lower, asked.chance, asked.canaries)
        more = "" if needed is None else f", or about {needed:,} {what} (`coalmine {option} --{what}`)"
        better = "guided`, or splitting where the model does not support incremental decoding"
        return f"another method (`coalmine expose --method {better}){more}"
    return estimator.to_narrow


def measured_canaries(run: Run) -> tuple[MeasuredCanary, ...]:
    """Every planted canary, by the best method that it was measured with; one that could not be measured is there as such."""
    found: dict[tuple[str, str], MeasuredCanary] = {}
    for _, document in run.all(EXPOSURES):
        for one in planted_canaries(document):
            key = (document.manifest_sha256, one.result.canary_id)
            if key not in found or _no_evidence(found[key]):
                found[key] = one
    return tuple(found.values())


def _no_evidence(one: MeasuredCanary) -> bool:
    return (
        one.result.estimate.status == "not_measured"
        or not estimator_of(one.result.estimate.method).is_evidence
    )


def _judge(run: Run, rules: ExposureRules, terms: PolicyTerms, stale: str | None) -> Iterator[RuleOutcome]:
    """The limits on the exposures of planted canaries."""
    canaries = measured_canaries(run)
    limits: list[tuple[str, float, str, list[MeasuredCanary], list[PartOutcome]]] = []
    if rules.at_most is not None:
        most = rules.up_to_repetitions
        which = "planted canaries" + ("" if most is None else f" trained on up to {most} times")
        chosen = [one for one in canaries if most is None or one.result.repetitions <= most]
        limits.append(("exposure.at_most", rules.at_most, which, chosen, without_exposure(run, most)))
    for times, limit in sorted(rules.by_repetitions.items(), key=lambda entry: int(entry[0])):
        chosen = [one for one in canaries if one.result.repetitions == int(times)]
        limits.append(
            (
                f"exposure.by_repetitions.{times}",
                limit,
                f"canaries trained on {times_in_words(int(times))}",
                chosen,
                without_exposure(run, exactly=int(times)),
            )
        )
    for rule, limit, which, chosen, missing in limits:
        if stale is not None or not run.all(EXPOSURES):
            asks = f"exposure of {which} at most {limit:g} bits"
            yield absent(rule, asks, "coalmine expose", run.all(EXPOSURES), stale)
        else:
            found = judge_exposures(
                chosen,
                limit,
                rule=rule,
                which=which,
                confidence=terms.confidence,
                all_at_once=rules.all_at_once,
                fewest=terms.min_canaries,
                missing=missing,
            )
            # Such as that the model was trained on other data, in which case its canaries may not have been there.
            told = dict.fromkeys(text for _, document in run.all(EXPOSURES) for text in document.warnings)
            yield msgspec.structs.replace(found, warnings=(*found.warnings, *told))


def incomplete_settle(run: Run) -> str:
    """What to run where canaries are left unmeasured."""
    used = (one.method for _, document in run.all(EXPOSURES) for one in document.results)
    curve = next((method for method in used if not estimator_of(method).is_evidence), None)
    other = "" if curve is None else f", by another method than {curve}"
    return f"run `coalmine expose` for every format of the canaries.json{other}"


SECTION = PolicySection(
    rules=ExposureRules,
    limits=("at_most", "by_repetitions"),
    judge=_judge,
    about_canaries=True,
    counts=frozenset({"up_to_repetitions"}),
    template="""\
[exposure]
# Bits, for each canary that was planted. A model that remembers nothing gives about 1, and 10 for one canary in 1,024; the most
# is log2 |R|, which is extractable at once. `coalmine expose` measures it. Canaries need a format with more bits than this.
at_most = 10.0
# Judge only canaries that were trained on up to so many times.
#up_to_repetitions = 4
# Whether the upper limits of all canaries must hold together at the level above (Bonferroni). The gate does not need it: a
# canary whose exposure is above its limit passes with probability (1 - confidence) / 2 at most, however many there are.
#all_at_once = true

# Other limits for canaries that were trained on exactly so often.
#[exposure.by_repetitions]
#1 = 3.0
#16 = 10.0
""",
)
