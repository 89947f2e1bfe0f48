"""Whether exposures are those that the scores kept beside them give: log-perplexities, ranks among all members, samples and references."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.candidate_scores import CandidateScores
from coalmine.audits.exposure.estimators import REFERENCES, SAMPLED, estimator_of
from coalmine.errors import InputError
from coalmine.records import Estimate
from coalmine.records.contradictions import at_most, differences, same
from coalmine.search.walks.thresholds import in_steps
from coalmine.statistics.exposure.ranks import exposure_bits, reference_exposures, sampled_exposures

if TYPE_CHECKING:
    from coalmine.audits.exposure.results import ExposureResult, Exposures, FormatFacts

FloatArray = NDArray[np.float64]
# A canary may cost this many times its resolution more or less among the members than when its resolution was computed.
_MOST_RESOLUTIONS = 20.0


def stated_problems(document: Exposures) -> Iterator[str]:
    """What follows from the sizes of formats and from the ranks that are stated, and is stated differently."""
    sizes = {facts.format_id: int(facts.size) for facts in document.formats}
    for facts in document.formats:
        if not same(math.log2(sizes[facts.format_id]), facts.size_bits):
            yield f"format {facts.format_id!r} has {sizes[facts.format_id]:,} members, and the bits of another size"
    for result in document.results:
        name, estimate, rank = f"canary {result.canary_id!r}", result.estimate, result.rank
        size = sizes.get(result.format_id)
        if size is None:
            yield f"{name} is of a format that is not described"
            continue
        if not same(result.most_possible_bits, math.log2(size)):
            yield f"{name} could have {result.most_possible_bits:g} bits at most, but its format has {size:,} members"
        if estimate.method != result.method or estimate.confidence not in {None, document.confidence}:
            yield f"{name} has an estimate by another method, or at another confidence, than the results say"
        bits = math.log2(size) - (result.known_log_perplexity_bits or 0.0)
        proven = (document.proven_bits or {}).get(result.canary_id)
        if proven is not None and not same(proven, max(0.0, bits)):
            yield f"{name} has {proven:g} bits by its probability, which gives {max(0.0, bits):g}"
        estimator = estimator_of(result.method)
        if estimator.strength == "proven" and (rank is None) != (estimate.value is None):
            yield f"{name} has {'a value and no rank' if rank is None else 'a rank and no value'}"
        if rank is None or estimate.status == "not_measured":
            continue
        among = estimate.n if estimator.among == "references" else size
        exposure = exposure_bits(min(rank, max(1, among)), max(1, among))
        low, value, high = estimate.low, estimate.value, estimate.high
        is_value = (
            value is None
            or (estimator.strength == "interval" and estimator.among == "space")
            or same(value, exposure)
        )
        if not (
            is_value
            and at_most(low or 0.0, exposure)
            and at_most(exposure, exposure if high is None else high)
        ):
            yield (
                f"{name} has rank {rank:,} of {among:,}, which is an exposure of {exposure:.2f} bits, and the value "
                f"{'of a bound' if value is None else format(value, '.2f')}"
            )


def score_problems(document: Exposures, kept: Sequence[CandidateScores]) -> Iterator[str]:
    """What the results of `expose` say, and the scores that were written with them contradict.

    Scores that were not kept contradict nothing, and neither do draws of which an estimate depends on more than their scores.
    """
    described = {facts.format_id for facts in document.formats}
    for format_id in dict.fromkeys(one.format_id for one in kept):
        if format_id not in described:
            yield f"there are scores of format {format_id!r}, which is not described"
    for facts in document.formats:
        scores = {one.kind: one.log_perplexities_bits for one in kept if one.format_id == facts.format_id}
        own = [one for one in document.results if one.format_id == facts.format_id]
        if "canary" in scores:
            yield from _own_problems(facts, own, scores["canary"])
        known = [
            one
            for one in own
            if one.estimate.status != "not_measured" and one.known_log_perplexity_bits is not None
        ]
        if "member" in scores:
            ranked = [one for one in known if estimator_of(one.method).keeps == "member"]
            yield from _rank_problems(facts, ranked, scores["member"])
        for question in _recomputed(document, facts):
            if question.kind in scores:
                answered = [one for one in known if one.method == question.method]
                yield from _estimate_problems(question, answered, scores[question.kind])


def _own_problems(facts: FormatFacts, results: list[ExposureResult], bits: FloatArray) -> Iterator[str]:
    """Canaries have the scores that were kept of them, in the order of the results; those that could not be scored have none."""
    scored = [one for one in results if one.known_log_perplexity_bits is not None]
    if len(bits) != len(scored):
        yield (
            f"{len(scored):,} of {len(results):,} canaries of format {facts.format_id!r} have a log-perplexity, and {len(bits):,} of them "
            "have scores"
        )
        return
    for result, kept in zip(scored, bits.tolist(), strict=True):
        told = result.log_perplexity_bits
        if not same(told, kept):
            yield f"canary {result.canary_id!r} has a log-perplexity of {told:.6f} bits, and its score is {kept:.6f} bits"


def _rank_problems(facts: FormatFacts, results: list[ExposureResult], bits: FloatArray) -> Iterator[str]:
    """Ranks are counts of members; what is within the resolution of a canary may be counted or not."""
    size = int(facts.size)
    if not results:
        return
    if len(bits) != size:
        yield f"format {facts.format_id!r} has {size:,} members, and {len(bits):,} of them have scores"
        return
    ordered = np.sort(in_steps(bits))

    def count(value: float, *, equal: bool) -> int:
        place = in_steps(np.array([value]))[0]
        return int(np.searchsorted(ordered, place, side="right" if equal else "left"))

    for result in results:
        own, name = result.log_perplexity_bits, f"canary {result.canary_id!r}"
        rank = count(own, equal=True)
        if result.estimate.n != size:
            yield f"{name} was ranked among {result.estimate.n:,} members, but its format has {size:,}"
        if result.rank != rank:
            yield f"{name} has rank {result.rank or 0:,}, and {rank:,} of the scores of all members are no higher than its own"
            continue
        ties = rank - count(own, equal=False)
        if ties < 1:
            yield f"{name} has a log-perplexity that is not among the scores of all members"
            continue
        if facts.resolution is None:
            continue
        # The resolution was computed where the canary was walked by itself, and may be that of a slightly different cost.
        reach = _MOST_RESOLUTIONS * float(facts.resolution.at(own))
        narrow, wide = (float(one) for one in facts.resolution.at([own - reach, own + reach]))
        most = count(own + narrow, equal=True), count(own + wide, equal=True)
        least = count(own - wide, equal=False) + ties, count(own - narrow, equal=False) + ties
        for part, told, (fewest, greatest) in (
            ("lower limit", result.estimate.low, most),
            ("upper limit", result.estimate.high, least),
        ):
            if told is not None and not (
                at_most(exposure_bits(greatest, size), told) and at_most(told, exposure_bits(fewest, size))
            ):
                yield f"{name} has the {part} {told:.2f}, which the scores of all members do not give"


class _Recomputed(NamedTuple):
    """An estimator whose estimates follow from the scores of canaries and of candidates of one kind."""

    method: str
    kind: str
    what: str
    # From the scores of canaries and candidates, and how many candidates have none.
    estimates: Callable[[list[float], FloatArray, int], list[Estimate]]
    # Whether the rank is 1 more than how many candidates are no more surprising.
    ranked: bool


def _recomputed(document: Exposures, facts: FormatFacts) -> tuple[_Recomputed, ...]:
    level, size = document.confidence, int(facts.size)
    return (
        _Recomputed(
            REFERENCES.name,
            "reference",
            "references",
            lambda own, others, _: reference_exposures(own, others, level, size=size),
            ranked=True,
        ),
        _Recomputed(
            SAMPLED.name,
            "sample",
            "samples",
            lambda own, others, unknown: sampled_exposures(own, others, size, level, unknown=unknown),
            ranked=False,
        ),
    )


def _estimate_problems(
    question: _Recomputed, results: list[ExposureResult], others: FloatArray
) -> Iterator[str]:
    if not results:
        return
    own = [one.log_perplexity_bits for one in results]
    try:
        found = question.estimates(own, others, max(0, results[0].estimate.n - len(others)))
    except InputError:
        yield f"the scores of its {question.what} are not log-perplexities"
        return
    ranks = 1 + np.searchsorted(np.sort(others), own, side="right")
    for result, expected, rank in zip(results, found, ranks.tolist(), strict=True):
        name, told = f"canary {result.canary_id!r}", result.estimate
        if told.n != expected.n:
            yield f"{name} was compared with {told.n:,} {question.what}, and {expected.n:,} have scores"
        elif question.ranked and result.rank != rank:
            yield f"{name} has rank {result.rank or 0:,} among {told.n:,} {question.what}, and their scores give {rank:,}"
        elif any(differences(told, expected)):
            yield f"{name} has an exposure that the scores of {told.n:,} {question.what} do not give"
