"""Exposure in bits from the rank of a canary: exact, estimated from a uniform sample, or among references.

Exposure is log2|R| - log2 rank, where the rank of a canary is the number of members of the secret space R that are no more
surprising to the model than it is, itself included, so ties count against it (The Secret Sharer: Evaluating and Testing Unintended
Memorization in Neural Networks; Carlini et al., 2019, arXiv:1802.08232). Scores are log-perplexities in bits: lower means better
remembered. The rank is known exactly, or estimated from a uniform sample of R, or taken among references, which were drawn like
the canary and never trained on. `coalmine.statistics.exposure.extrapolation` goes beyond the sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.errors import InputError
from coalmine.records import Estimate
from coalmine.records.estimate import rounded_down, rounded_up
from coalmine.statistics.intervals import clopper_pearson
from coalmine.statistics.scores import canary_array, checked_confidence, checked_count, sample_array

SAMPLE_ASSUMPTIONS = ("the samples are independent and uniform draws from the whole secret space",)
REFERENCE_ASSUMPTIONS = (
    "the references are independent draws from the distribution of the canary, never trained on",
)
_WAYS = {"sample": ("sampled", SAMPLE_ASSUMPTIONS), "reference": ("references", REFERENCE_ASSUMPTIONS)}


def exposure_bits(rank: int, size: int) -> float:
    """log2(size) - log2(rank), in bits, for whole numbers of any size with 1 <= rank <= size.

    >>> exposure_bits(1, 10**9) == math.log2(10**9)
    True
    >>> exposure_bits(2**100, 2**110)
    10.0
    >>> exposure_bits(10**40, 10**40)
    0.0
    """
    rank, size = checked_count(rank, "rank"), checked_count(size, "size")
    if rank > size:
        raise InputError(
            f"rank must not exceed the size of the secret space, got rank {rank} of {size}; check both"
        )
    return _log2_ratio(size, rank)


def exact_exposure(rank: int, size: int, *, least: int | None = None, most: int | None = None) -> Estimate:
    """The exposure in bits of a canary whose rank among all `size` members is known; its interval is the number itself.

    Members so close to the canary that the model's arithmetic does not decide their order leave the rank anywhere from `least` to
    `most`; the interval is then from the exposure at `most` to that at `least`.

    >>> exact_exposure(1, 1024).statement
    'rank 1 of 1,024: exposure is exactly 10.00 bits'
    >>> exact_exposure(4, 1024, least=4, most=5).statement
    'rank 4 of 1,024, or 4 to 5 within the resolution of the model: exposure is 8.00 bits (7.67 to 8.00)'
    """
    least, most = rank if least is None else least, rank if most is None else most
    if not least <= rank <= most:
        raise InputError(f"a rank must be within its bounds, got {rank} with {least} to {most}; check them")
    low, bits, high = (exposure_bits(one, size) for one in (most, rank, least))
    if least == most:
        statement = f"rank {int(rank):,} of {int(size):,}: exposure is exactly {bits:.2f} bits"
    else:
        statement = (
            f"rank {int(rank):,} of {int(size):,}, or {least:,} to {most:,} within the resolution of the model: exposure is "
            f"{bits:.2f} bits ({rounded_down(low)} to {rounded_up(high)})"
        )
    return Estimate(
        method="exact",
        status="measured",
        value=bits,
        low=low,
        high=high,
        confidence=None,
        n=int(size),
        statement=statement,
    )


def sampled_exposure(
    canary_score: float,
    sample_scores: ArrayLike,
    size: int,
    confidence: float = 0.95,
    *,
    canary_id: str | None = None,
) -> Estimate:
    """The exposure in bits of one canary from a uniform sample of its secret space; see `sampled_exposures`.

    >>> print(sampled_exposure(20.0, [30.0, 19.0, 41.0, 22.0], size=10**9).statement)
    exposure is 2.00 bits (95% interval 0.31 to 7.31): 1 of 4 samples is no more surprising
    """
    ids = None if canary_id is None else [canary_id]
    return sampled_exposures([canary_score], sample_scores, size, confidence, canary_ids=ids)[0]


def sampled_exposures(
    canary_scores: ArrayLike,
    sample_scores: ArrayLike,
    size: int,
    confidence: float = 0.95,
    *,
    canary_ids: Sequence[str] | None = None,
    unknown: int = 0,
) -> list[Estimate]:
    """The exposure in bits of each canary, in the order given, from a uniform sample of their secret space.

    Exposure is -log2 of the probability p that a random member of the space is no more surprising than the canary. The
    sample gives p as a proportion; its Clopper-Pearson interval gives the interval, clipped to what is possible (0 to log2
    of `size`, because the canary is itself a member). A canary that is less surprising than every sample has no value, only a
    lower bound; one that is more surprising than all has an exposure of 0, which is a measurement.

    `unknown` further samples were drawn, and have no score. Each may be on either side of a canary, so there are only bounds then: the
    lower limit counts all of them, and the upper limit none.

    >>> [e.statement for e in sampled_exposures([5.0, 45.0], [30.0, 40.0], size=1024)]  # doctest: +NORMALIZE_WHITESPACE
    ['less surprising than all 2 samples: exposure is at least 0.24 bits (95% confidence)',
     'exposure is 0.00 bits (95% interval 0.00 to 2.66): 2 of 2 samples are no more surprising']
    >>> sampled_exposures([35.0], [30.0, 40.0], size=1024, unknown=1)[0].statement
    'exposure is between 0.01 and 6.90 bits (95% interval): 1 of 3 samples is no more surprising, and 1 has no score'
    """
    counts, known = _counts_no_more_surprising(canary_scores, sample_scores, "samples", canary_ids)
    level = checked_confidence(confidence)
    ceiling = math.log2(checked_count(size, "size"))
    n = known + unknown
    low_p = clopper_pearson(counts, n, level)[0]
    high_p = clopper_pearson(counts + unknown, n, level)[1]
    lows = np.minimum(_bits(high_p), ceiling)
    highs = np.minimum(_bits(np.maximum(low_p, np.finfo(float).tiny)), ceiling)
    highs[counts == 0] = ceiling
    found = []
    for count, low, high in zip(counts.tolist(), lows.tolist(), highs.tolist(), strict=True):
        if unknown:
            found.append(_between((low, high), level, count, n, unknown))
            continue
        value = min(_log2_ratio(n, count), ceiling) if count else None
        found.append(_among("sample", value, (low, high), level, count, n))
    return found


def _between(interval: tuple[float, float], level: float, count: int, n: int, unknown: int) -> Estimate:
    """The exposure of a canary that `count` of `n` samples are no more surprising than, if `unknown` others have no score."""
    low, high = interval
    are, have = "is" if count == 1 else "are", "has" if unknown == 1 else "have"
    samples = "sample" if n == 1 else "samples"
    return Estimate(
        method="sampled",
        status="lower_bound",
        value=None,
        low=low,
        high=high,
        confidence=level,
        n=n,
        statement=f"exposure is between {rounded_down(low)} and {rounded_up(high)} bits ({100 * level:g}% interval): {count:,} of {n:,} "
        f"{samples} {are} no more surprising, and {unknown:,} {have} no score",
        assumptions=SAMPLE_ASSUMPTIONS,
    )


def reference_exposure(
    canary_score: float,
    reference_scores: ArrayLike,
    confidence: float = 0.95,
    *,
    canary_id: str | None = None,
) -> Estimate:
    """The exposure in bits of one canary among references; see `reference_exposures`.

    >>> print(reference_exposure(20.0, [30.0, 19.0, 41.0, 22.0]).statement)
    exposure is 1.00 bits (95% interval 0.31 to 7.31): 1 of 4 references is no more surprising
    """
    ids = None if canary_id is None else [canary_id]
    return reference_exposures([canary_score], reference_scores, confidence, canary_ids=ids)[0]


def reference_exposures(
    canary_scores: ArrayLike,
    reference_scores: ArrayLike,
    confidence: float = 0.95,
    *,
    canary_ids: Sequence[str] | None = None,
    size: int | None = None,
) -> list[Estimate]:
    """The exposure in bits of each canary, in the order given, among `n` references that were never trained on.

    The rank of a canary is 1 plus the number of references that are no more surprising, from 1 to n + 1, and its
    exposure is log2 n - log2 rank (0 at rank n + 1, where the formula would be slightly below 0). The interval is that of
    -log2 p by Clopper-Pearson, where p is the probability that a further reference is no more surprising; where the value
    is outside it, because of the 1 that the rank adds, the interval is widened to the value. No limit exceeds log2 of `size`, the number
    of members of the space that they were drawn from, where it is given.

    At rank 1 the formula gives log2 n whatever the model remembers: it reflects only the number of references. So the
    estimate is then a lower bound without a value, and without an upper limit (`high` is None), because no number of
    references can show how small p is.

    >>> best = reference_exposures([1.0], [30.0, 40.0, 50.0])[0]
    >>> best.status, best.value, best.high
    ('lower_bound', None, None)
    >>> print(best.statement)
    less surprising than all 3 references: exposure is at least 0.49 bits (95% confidence)
    """
    counts, n = _counts_no_more_surprising(canary_scores, reference_scores, "references", canary_ids)
    level = checked_confidence(confidence)
    low_p, high_p = clopper_pearson(counts, n, level)
    lows, highs = _bits(high_p), _bits(np.maximum(low_p, np.finfo(float).tiny))
    if size is not None:
        most = math.log2(max(n, checked_count(size, "size")))
        lows, highs = np.minimum(lows, most), np.minimum(highs, most)
    found = []
    for count, low, high in zip(counts.tolist(), lows.tolist(), highs.tolist(), strict=True):
        value = _log2_ratio(n, min(count + 1, n)) if count else None
        interval = (low, None) if value is None else (min(low, value), high)
        found.append(_among("reference", value, interval, level, count, n))
    return found


def _among(
    what: str,
    value: float | None,
    interval: tuple[float, float | None],
    level: float,
    count: int,
    n: int,
) -> Estimate:
    """The exposure of a canary that `count` of `n` samples or references are no more surprising than."""
    method, assumptions = _WAYS[what]
    return Estimate(
        method=method,
        status="lower_bound" if value is None else "measured",
        value=value,
        low=interval[0],
        high=interval[1],
        confidence=level,
        n=n,
        statement=_statement(value, interval, level, count=count, n=n, what=what),
        assumptions=assumptions,
    )


def _counts_no_more_surprising(
    canary_scores: ArrayLike, other_scores: ArrayLike, what: str, canary_ids: Sequence[str] | None
) -> tuple[NDArray[np.int64], int]:
    """For each canary, how many of the others have a score <= its own; and how many others there are."""
    canaries = canary_array(canary_scores, canary_ids)
    others = sample_array(other_scores, what)
    # side="right" counts ties, as the definition of rank does.
    counts = np.searchsorted(np.sort(others), canaries, side="right")
    return counts.astype(np.int64), len(others)


def _log2_ratio(larger: int, smaller: int) -> float:
    """log2(larger / smaller) of whole numbers of any size, accurate to the last digits even where they are close."""
    ceiling = math.log2(larger)
    if larger >= 2 * smaller:
        try:
            return min(math.log2(larger / smaller), ceiling)
        except OverflowError:
            return ceiling - math.log2(smaller)
    return min(math.log1p((larger - smaller) / smaller) / math.log(2.0), 1.0, ceiling)


def _bits(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    # np.abs turns the -0.0 of a probability of 1 into 0.0.
    return np.abs(np.log2(probabilities))


def _statement(
    value: float | None, interval: tuple[float, float | None], level: float, *, count: int, n: int, what: str
) -> str:
    low, high = interval
    percent = f"{100 * level:g}%"
    if value is None:
        others = f"all {n:,} {what}s" if n > 1 else f"the only {what}"
        return f"less surprising than {others}: exposure is at least {rounded_down(low)} bits ({percent} confidence)"
    are = "is" if count == 1 else "are"
    whats = what if n == 1 else f"{what}s"
    return (
        f"exposure is {value:.2f} bits ({percent} interval {low:.2f} to {high:.2f}): "
        f"{count:,} of {n:,} {whats} {are} no more surprising"
    )
