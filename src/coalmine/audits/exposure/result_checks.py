"""What cannot be true in one result of each estimator of exposure: its rank, its value, its interval and their sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from coalmine.records.contradictions import at_most, estimate_problems, hits_of, same

if TYPE_CHECKING:
    from coalmine.audits.exposure.results import ExposureResult

# Takes the canary's name, its result and the size of the space; gives a sentence for each contradiction.
ResultCheck = Callable[[str, "ExposureResult", int], Iterator[str]]


def check_proven(name: str, result: ExposureResult, size: int) -> Iterator[str]:
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


def check_exact(name: str, result: ExposureResult, size: int) -> Iterator[str]:
    """Of a rank among all members: it is always known."""
    if result.estimate.status != "measured":
        yield f"{name} was ranked among all members and has no value"
    if result.estimate.n != size:
        yield f"{name} was ranked among {result.estimate.n:,} members, but its format has {size:,}"
    yield from check_proven(name, result, size)


def check_guided(name: str, result: ExposureResult, size: int) -> Iterator[str]:
    """Of draws beyond what a search proved; a rank that is proven nevertheless lies between the limits."""
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


def check_splitting(name: str, result: ExposureResult, size: int) -> Iterator[str]:
    """Of an estimate from runs of splitting, which has an interval and no rank."""
    yield from _no_rank(name, result)
    yield from _needs_confidence(name, result)
    yield from estimate_problems(name, result.estimate, 0, math.log2(size))


def check_sampled(name: str, result: ExposureResult, size: int) -> Iterator[str]:
    """Of a share of samples: exposure is log2 n - log2 of how many are no more surprising."""
    estimate = result.estimate
    yield from _no_rank(name, result)
    yield from _needs_confidence(name, result)
    yield from estimate_problems(name, estimate, 0, math.log2(size))
    if estimate.value is None or same(estimate.value, math.log2(size)):
        return
    if not hits_of(2.0 ** -max(0.0, estimate.value), estimate.n):
        yield f"{name} has the value {estimate.value:.2f}, which is not a share of {estimate.n:,} samples"


def check_extrapolated(name: str, result: ExposureResult, _: int) -> Iterator[str]:
    """Of a curve, which may end beyond what a space of this size allows."""
    yield from _no_rank(name, result)
    yield from _needs_confidence(name, result)
    if result.estimate.status != "measured":
        yield f"{name} was extrapolated and has no value"


def check_references(name: str, result: ExposureResult, _: int) -> Iterator[str]:
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
