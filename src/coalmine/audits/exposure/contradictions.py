"""Whether the numbers of an exposure.json can be true together: rank, size and value, what each method allows, and the manifest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from coalmine.audits.exposure.estimators import METHODS, estimator_of, is_known
from coalmine.records.contradictions import (
    at_most,
    count_problems,
    estimate_problems,
    in_range,
    level_problems,
    same,
    share_problems,
    twice,
    whole_number,
)

if TYPE_CHECKING:
    from coalmine.audits.exposure.results import ExposureResult, Exposures, FormatFacts
    from coalmine.corpus.planting.manifest import CanarySet

# A log-perplexity is a sum of numbers of at least 0; a server may round each of them.
_LEAST_LOG_PERPLEXITY = -1e-3
# No text costs more.
_MOST_BITS = 1e12
# Log-perplexities that differ by less may be the same number, added up in another order.
_SAME_BITS = 1e-6


def exposure_problems(document: Exposures) -> Iterator[str]:
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
        proven = (document.proven_bits or {}).get(result.canary_id)
        if result.format_id not in formats:
            yield f"canary {result.canary_id!r} is of format {result.format_id!r}, which is not described"
            continue
        yield from _result_problems(
            result, formats[result.format_id], sizes[result.format_id], document.confidence
        )
        bits = formats[result.format_id].size_bits - (result.known_log_perplexity_bits or 0.0)
        if proven is not None and not same(proven, max(0.0, bits)):
            yield f"canary {result.canary_id!r} has {proven:g} bits by its probability, which gives {max(0.0, bits):g}"
    for facts in document.formats:
        own = [one for one in document.results if one.format_id == facts.format_id]
        yield from _order_problems(facts, own)
        yield from _tie_problems(facts, own)
    for format_id, fit in document.tail_fits.items():
        if format_id not in formats or estimator_of(formats[format_id].method).strength != "curve":
            yield f"there is a curve for format {format_id!r}, which was not extrapolated"
        yield from share_problems(f"the p-value of the curve of format {format_id!r}", fit.ks_p_value)


def _format_problems(facts: FormatFacts) -> Iterator[str]:
    name = f"format {facts.format_id!r}"
    size = whole_number(facts.size)
    if size is None:
        yield f"the size of {name} is not a whole number of at least 1"
    elif not same(math.log2(size), facts.size_bits):
        yield f"{name} has {size:,} members and {facts.size_bits:g} bits, which are those of another size"
    if facts.method not in METHODS:
        yield f"{name} was measured by a method that is not known"
    if facts.resolution is not None:
        # Of a server that rounds to whole nats, a log-perplexity may be known to no more than itself.
        yield from in_range(f"the resolution of {name}", facts.resolution.relative, 0, 1)
        yield from in_range(f"the least resolution of {name}", facts.resolution.least_bits, 0, _MOST_BITS)


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
    estimator = estimator_of(result.method)
    if not same(result.most_possible_bits, math.log2(size)):
        yield f"{name} could have {result.most_possible_bits:g} bits at most, but its format has {size:,} members"
    most = max(size, estimate.n) if estimator.among == "references" else size
    if estimate.high is not None and not at_most(estimate.high, math.log2(most)):
        yield f"{name} has an upper limit of {estimate.high:.2f} bits, which is more than is possible"
    if estimate.status == "not_measured":
        if result.method not in METHODS:
            yield f"{name} was to be measured by a method that is not known"
        return
    if result.known_log_perplexity_bits is None:
        yield f"{name} has an exposure and no log-perplexity"
    if not is_known(facts.method) or result.method not in (
        facts.method,
        *estimator_of(facts.method).may_return,
    ):
        yield f"{name} was measured by {result.method!r}, and its format by {facts.method!r}"
        return
    if estimate.confidence is not None and not same(estimate.confidence, confidence):
        yield f"{name} has a confidence of {estimate.confidence:g}, and the results have {confidence:g}"
    yield from estimator.check(name, result, size)


def _order_problems(facts: FormatFacts, results: list[ExposureResult]) -> Iterator[str]:
    """Among canaries ranked within the same members or references, a more surprising one cannot have a better rank."""
    ranked: dict[tuple[bool, int], list[tuple[float, int, str]]] = {}
    for one in results:
        if one.rank is not None and one.known_log_perplexity_bits is not None:
            # Ranks in the whole space are comparable whatever proved them; those among references only with the same ones.
            among = (True, one.estimate.n) if estimator_of(one.method).among == "references" else (False, 0)
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


def _tie_problems(facts: FormatFacts, results: list[ExposureResult]) -> Iterator[str]:
    """Ranks among all members count ties: those of equal log-perplexities are equal, and those of different ones are not."""
    places = sorted(
        (one.known_log_perplexity_bits, one.rank, one.canary_id)
        for one in results
        if estimator_of(one.method).keeps == "member"
        and one.rank is not None
        and one.known_log_perplexity_bits is not None
    )
    for (bits, rank, name), (more, worse, other) in itertools.pairwise(places):
        if bits == more and rank != worse:
            yield f"canaries {name!r} and {other!r} are equally surprising, and have ranks {rank:,} and {worse:,}"
            return
        if facts.resolution is not None and bits + _apart(facts, more) < more and rank == worse:
            yield f"canary {other!r} is more surprising than canary {name!r}, and both have rank {rank:,}"
            return


def _apart(facts: FormatFacts, bits: float) -> float:
    """How far apart two log-perplexities must be for the order of their ranks to be known; both may be rounded."""
    if facts.resolution is None:
        return _SAME_BITS
    return 2 * max(facts.resolution.least_bits, facts.resolution.relative * bits, _SAME_BITS)


def manifest_problems(document: Exposures, canaries: CanarySet) -> Iterator[str]:
    """What the results of `expose` say about canaries and formats, and their manifest contradicts."""
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
