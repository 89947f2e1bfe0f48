"""Whether the numbers of an exposure.json can be true together: rank, size and value, what each method allows, and the manifest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from coalmine.records.contradictions import (
    at_most,
    count_problems,
    estimate_problems,
    hits_of,
    in_range,
    level_problems,
    same,
    share_problems,
    twice,
    whole_number,
)

if TYPE_CHECKING:
    from coalmine.audits.exposure.results import ExposureDocument, ExposureResult, FormatFacts
    from coalmine.corpus.planting.manifest import CanarySet

# The method of a format to those that its canaries may have been measured by in the end.
_MAY_BECOME = {
    "exact": {"exact"},
    "bounded": {"bounded"},
    "guided": {"guided", "bounded"},  # bounded, where the search alone proved every rank
    "splitting": {"splitting", "exact"},  # exact, where the space is no larger than what a run begins with
    "sampled": {"sampled"},
    "extrapolated": {"extrapolated"},
    "references": {"references"},
    "auto": set[str](),  # where nothing could be measured, no method was taken
}
# A log-perplexity is a sum of numbers of at least 0; a server may round each of them.
_LEAST_LOG_PERPLEXITY = -1e-3
# Log-perplexities that differ by less may be the same number, added up in another order.
_SAME_BITS = 1e-6


def exposure_problems(document: ExposureDocument) -> Iterator[str]:
    """What cannot be true in the results of `expose`."""
    yield from level_problems("the confidence", document.confidence)
    yield from share_problems("the probability of being planted", document.inclusion)
    yield from count_problems("the number of expansions", document.expansions)
    formats = {facts.format_id: facts for facts in document.formats}
    yield from twice("format", [facts.format_id for facts in document.formats])
    yield from twice("canary", [result.canary_id for result in document.results])
    sizes: dict[str, int] = {}
    for facts in document.formats:
        problems = list(_format_problems(facts))
        yield from problems
        if problems:
            return
        sizes[facts.format_id] = int(facts.size)
    for result in document.results:
        if result.format_id not in formats:
            yield f"canary {result.canary_id!r} is of format {result.format_id!r}, which is not described"
            continue
        yield from _result_problems(
            result, formats[result.format_id], sizes[result.format_id], document.confidence
        )
    for facts in document.formats:
        yield from _order_problems(
            facts, [one for one in document.results if one.format_id == facts.format_id]
        )
    for format_id, fit in document.tail_fits.items():
        if format_id not in formats or formats[format_id].method != "extrapolated":
            yield f"there is a curve for format {format_id!r}, which was not extrapolated"
        yield from share_problems(f"the p-value of the curve of format {format_id!r}", fit.ks_p_value)


def _format_problems(facts: FormatFacts) -> Iterator[str]:
    name = f"format {facts.format_id!r}"
    size = whole_number(facts.size)
    if size is None:
        yield f"the size of {name} is not a whole number of at least 1"
    elif not same(math.log2(size), facts.size_bits):
        yield f"{name} has {size:,} members and {facts.size_bits:g} bits, which are those of another size"
    if facts.method not in _MAY_BECOME:
        yield f"{name} was measured by a method that is not known"


def _result_problems(
    result: ExposureResult, facts: FormatFacts, size: int, confidence: float
) -> Iterator[str]:
    estimate, name = result.estimate, f"canary {result.canary_id!r}"
    yield from estimate_problems(name, estimate, 0)
    yield from count_problems(f"{name}: the number of copies", result.repetitions)
    yield from count_problems(f"{name}: the number of copies that were meant", result.planned_repetitions, 1)
    yield from in_range(
        f"{name}: the log-perplexity", result.known_log_perplexity_bits, _LEAST_LOG_PERPLEXITY
    )
    if result.method != estimate.method:
        yield f"{name} was measured by {result.method!r}, and its estimate by {estimate.method!r}"
        return
    most = estimate.n if result.method == "references" and estimate.n > 0 else size
    if not same(result.most_possible_bits, math.log2(most)):
        yield f"{name} could have {result.most_possible_bits:g} bits at most, but there are {most:,} to compare with"
    if estimate.status == "not_measured":
        if result.method not in _MAY_BECOME:
            yield f"{name} was to be measured by a method that is not known"
        return
    if result.known_log_perplexity_bits is None:
        yield f"{name} has an exposure and no log-perplexity"
    if result.method not in _MAY_BECOME[facts.method]:
        yield f"{name} was measured by {result.method!r}, and its format by {facts.method!r}"
        return
    if estimate.confidence is not None and not same(estimate.confidence, confidence):
        yield f"{name} has a confidence of {estimate.confidence:g}, and the results have {confidence:g}"
    yield from _OF_METHOD[result.method](name, result, size)


def _order_problems(facts: FormatFacts, results: list[ExposureResult]) -> Iterator[str]:
    """Of canaries whose ranks are among the same members or references, a more surprising one has no better rank."""
    ranked: dict[tuple[bool, int], list[tuple[float, int, str]]] = {}
    for one in results:
        if one.rank is not None and one.known_log_perplexity_bits is not None:
            # Ranks in the whole space are comparable whatever proved them; those among references only with the same ones.
            among = (True, one.estimate.n) if one.method == "references" else (False, 0)
            place = (one.known_log_perplexity_bits, one.rank, one.canary_id)
            ranked.setdefault(among, []).append(place)
    for places in ranked.values():
        places.sort()
        last, before = 0, (0, "")
        for bits, rank, name in places:
            while places[last][0] + _apart(facts, bits) < bits:
                before = max(before, places[last][1:])
                last += 1
            if before[0] > rank:
                yield (
                    f"canary {name!r} is more surprising than canary {before[1]!r}, and has rank {rank:,} where that has {before[0]:,}"
                )
                return


def _apart(facts: FormatFacts, bits: float) -> float:
    """How far apart two log-perplexities must be for the order of their ranks to be known; both may be rounded."""
    if facts.resolution is None:
        return _SAME_BITS
    return 2 * max(facts.resolution.least_bits, facts.resolution.relative * bits, _SAME_BITS)


def _proven_problems(name: str, result: ExposureResult, size: int) -> Iterator[str]:
    """Of a rank among all members, or of bounds of it: exposure is log2 size - log2 rank."""
    estimate, rank = result.estimate, result.rank
    yield from _rank_problems(name, rank, size)
    yield from estimate_problems(name, estimate, 0, math.log2(size))
    if estimate.confidence is not None:
        yield f"{name} has a confidence, although it is proven"
    if (rank is None) != (estimate.value is None):
        yield f"{name} has {'a value and no rank' if rank is None else 'a rank and no value'}"
    if rank is not None and estimate.value is not None and not same(estimate.value, _bits(rank, size)):
        yield (
            f"{name} has rank {rank:,} of {size:,}, which is an exposure of {_bits(rank, size):.2f} bits, and the value "
            f"{estimate.value:.2f}"
        )


def _exact_problems(name: str, result: ExposureResult, size: int) -> Iterator[str]:
    if result.estimate.status != "measured":
        yield f"{name} was ranked among all members and has no value"
    if result.estimate.n != size:
        yield f"{name} was ranked among {result.estimate.n:,} members, but its format has {size:,}"
    yield from _proven_problems(name, result, size)


def _guided_problems(name: str, result: ExposureResult, size: int) -> Iterator[str]:
    """Of draws behind what a search proved; a rank that is proven all the same lies between the limits."""
    estimate, rank = result.estimate, result.rank
    yield from _rank_problems(name, rank, size)
    yield from estimate_problems(name, estimate, 0, math.log2(size))
    yield from _needs_confidence(name, result)
    if rank is None or estimate.low is None or estimate.high is None:
        return
    if not (at_most(estimate.low, _bits(rank, size)) and at_most(_bits(rank, size), estimate.high)):
        yield (
            f"{name} has rank {rank:,} of {size:,}, which is an exposure of {_bits(rank, size):.2f} bits, and limits of "
            f"{estimate.low:.2f} and {estimate.high:.2f}"
        )


def _splitting_problems(name: str, result: ExposureResult, size: int) -> Iterator[str]:
    yield from _no_rank(name, result)
    yield from _needs_confidence(name, result)
    yield from estimate_problems(name, result.estimate, 0, math.log2(size))


def _sampled_problems(name: str, result: ExposureResult, size: int) -> Iterator[str]:
    """Of a share of samples: exposure is log2 n - log2 of how many are no more surprising."""
    estimate = result.estimate
    yield from _no_rank(name, result)
    yield from _needs_confidence(name, result)
    yield from estimate_problems(name, estimate, 0, math.log2(size))
    if estimate.value is None or same(estimate.value, math.log2(size)):
        return
    if not hits_of(2.0 ** -max(0.0, estimate.value), estimate.n):
        yield f"{name} has the value {estimate.value:.2f}, which is no share of {estimate.n:,} samples"


def _extrapolated_problems(name: str, result: ExposureResult, _: int) -> Iterator[str]:
    """Of a curve, which may end beyond what a space of this size allows."""
    yield from _no_rank(name, result)
    yield from _needs_confidence(name, result)
    if result.estimate.status != "measured":
        yield f"{name} was extrapolated and has no value"


def _references_problems(name: str, result: ExposureResult, _: int) -> Iterator[str]:
    """Of a rank among n references: exposure is log2 n - log2 rank, with a bound only at rank 1, and 0 at rank n + 1."""
    estimate, rank, n = result.estimate, result.rank, result.estimate.n
    yield from _needs_confidence(name, result)
    if rank is None or n < 1 or not 1 <= rank <= n + 1:
        yield f"{name} has {'no rank' if rank is None else f'rank {rank:,}'} among {n:,} references"
    elif rank == 1:
        if estimate.value is not None:
            yield f"{name} is less surprising than all {n:,} references, and has a value"
    elif estimate.value is None or not same(estimate.value, _bits(min(rank, n), n)):
        shown = "no value" if estimate.value is None else f"the value {estimate.value:.2f}"
        yield (
            f"{name} has rank {rank:,} among {n:,} references, which is an exposure of {_bits(min(rank, n), n):.2f} bits, "
            f"and {shown}"
        )


_OF_METHOD: dict[str, Callable[[str, ExposureResult, int], Iterator[str]]] = {
    "exact": _exact_problems,
    "bounded": _proven_problems,
    "guided": _guided_problems,
    "splitting": _splitting_problems,
    "sampled": _sampled_problems,
    "extrapolated": _extrapolated_problems,
    "references": _references_problems,
}


def _rank_problems(name: str, rank: int | None, size: int) -> Iterator[str]:
    if rank is not None and not 1 <= rank <= size:
        yield f"{name} has rank {rank:,} of {size:,}"


def _no_rank(name: str, result: ExposureResult) -> Iterator[str]:
    if result.rank is not None:
        yield f"{name} has a rank, which the method {result.method} does not give"


def _needs_confidence(name: str, result: ExposureResult) -> Iterator[str]:
    if result.estimate.confidence is None:
        yield f"{name} was estimated by {result.method} and has no confidence"


def _bits(rank: int, size: int) -> float:
    """The exposure at a rank, from 1 to `size`; whatever else is wrong was said before."""
    return math.log2(size) - math.log2(rank) if rank >= 1 else math.inf


def manifest_problems(document: ExposureDocument, canaries: CanarySet) -> Iterator[str]:
    """What the results of `expose` say of their canaries and formats, and the manifest that they were measured with does not."""
    known = {canary.canary_id: canary for canary in canaries}
    for facts in document.formats:
        form = canaries.formats.get(facts.format_id)
        if form is None or form.template != facts.template or form.size != int(facts.size):
            yield f"format {facts.format_id!r} is not that of the manifest"
    for result in document.results:
        canary = known.get(result.canary_id)
        if canary is None:
            yield f"canary {result.canary_id!r} is not in the manifest"
            continue
        planned = result.planned_repetitions
        said = (
            result.format_id,
            result.repetitions,
            result.planted,
            canary.repetitions if planned is None else planned,
        )
        if said != (canary.format_id, canary.times_trained_on, canary.planted, canary.repetitions):
            yield (
                f"canary {result.canary_id!r} is of another format, was planted another number of times, or was withheld, by the manifest"
            )
