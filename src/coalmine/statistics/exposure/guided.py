"""Exposure in bits where a search has proven bounds on the rank, and importance sampling (guided draws) estimates the rest.

A search of the secret space proves that `known` members are no more surprising than the canary. Any others are in the part it did
not explore. Members of that part are drawn independently, each with a known probability q, and one that is no more surprising
than the canary has the weight 1 / q: the mean of these weights (0 for the draws that are more surprising) is an unbiased estimate
of the rest of the rank. No weight that counts exceeds a proven limit, so the interval is that of a bounded mean, which holds for
any number of draws and any spread of the weights. Weights and ranks are kept as log2 throughout; they may be far larger than a
float, and their shares of the largest far smaller. Where no draw counts, there are bounds and no value. `effective_n` is the
effective sample size of the draws that count: the square of the sum of the weights over the sum of their squares (Kish, Survey
Sampling, 1965).

Where the order of costs closer than a resolution (bits) is not known, the interval allows all members in between to be on either
side: of the known members, `known_near` has the number that cost less than the canary by more than the resolution (and those of
equal cost), and the number that do not cost more by more than it. The limit on the weights must hold for all of these too.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.errors import InputError
from coalmine.records import Estimate
from coalmine.records.estimate import rounded_down, rounded_up
from coalmine.statistics.exposure.bounded_mean import sparse_mean_interval
from coalmine.statistics.exposure.ranks import exposure_bits
from coalmine.statistics.scores import (
    FloatArray,
    canary_array,
    canary_name,
    checked_confidence,
    checked_count,
    sample_array,
)

GUIDED_ASSUMPTIONS = (
    "the draws are independent, with the stated probabilities",
    "the model's scores are as accurate as its arithmetic",
)
BOUNDED_ASSUMPTIONS = ("the model's scores are as accurate as its arithmetic",)
NO_DRAW_COUNTS = "no draw was as unsurprising as this canary, so there is no estimate: use more draws (--samples) or a larger budget"

# With an effective sample below this the value is rough, although the interval is still valid.
FEW_DRAWS = 10.0
# Weights are differences of sums of logarithms; rounding may exceed a limit by at most this.
ROUNDING_BITS = 1e-6


def bounded_exposure(known: int, most_rank: int, size: int, *, rank: int | None = None) -> Estimate:
    """The exposure in bits of a canary whose rank is proven to be between `known` and `most_rank` of `size` members.

    If the two are the same, the rank is proven and so is the exposure. If not, there is no value, only proven bounds; unless
    `rank` is given: then all members were counted, and the bounds are the resolution of the model's arithmetic.

    >>> bounded_exposure(1_200, 40_000_000, 10**9).statement
    'rank is proven to be between 1,200 and 40,000,000 of 10^9: exposure is between 4.64 and 19.67 bits'
    >>> bounded_exposure(2, 2, 1_024).statement
    'rank is proven to be 2 of 1,024: exposure is exactly 9.00 bits'
    >>> bounded_exposure(2, 4, 1_024, rank=2).statement
    'rank is proven to be 2 of 1,024, or 2 to 4 within the resolution of the model: exposure is 9.00 bits (8.00 to 9.00)'
    """
    known, most_rank, size = _checked_ranks(known, most_rank, size, "the canary")
    if rank is None and known == most_rank:
        rank = known
    if rank is not None and not known <= rank <= most_rank:
        raise InputError(
            f"a rank must be within its bounds, got {rank} with {known} to {most_rank}; check them"
        )
    low, high = exposure_bits(most_rank, size), exposure_bits(known, size)
    # Rounded outwards: whatever the sentence calls proven must be.
    outer_low, outer_high = rounded_down(low), rounded_up(high)
    value = None
    statement = (
        f"rank is proven to be between {known:,} and {most_rank:,} of {_shown(size)}: "
        f"exposure is between {outer_low} and {outer_high} bits"
    )
    if rank is not None:
        value = exposure_bits(rank, size)
        statement = f"rank is proven to be {rank:,} of {_shown(size)}: exposure is exactly {value:.2f} bits"
        if known != most_rank:
            statement = (
                f"rank is proven to be {rank:,} of {_shown(size)}, or {known:,} to {most_rank:,} within the resolution of the "
                f"model: exposure is {value:.2f} bits ({outer_low} to {outer_high})"
            )
    return Estimate(
        method="bounded",
        status="lower_bound" if value is None else "measured",
        value=value,
        low=low,
        high=high,
        confidence=None,
        n=known,
        statement=statement,
        assumptions=BOUNDED_ASSUMPTIONS,
    )


def guided_exposures(
    thresholds: ArrayLike,
    costs: ArrayLike,
    log2_weights: ArrayLike,
    *,
    log2_most_weight: ArrayLike,
    known: Sequence[int],
    most_rank: Sequence[int],
    size: int,
    confidence: float = 0.95,
    canary_ids: Sequence[str] | None = None,
    resolutions: ArrayLike | None = None,
    known_near: Sequence[tuple[int, int]] | None = None,
) -> list[Estimate]:
    """The exposure in bits of each canary, in the order given, from proven bounds on its rank and from guided draws.

    Per canary: `thresholds` (its log-perplexity in bits), `known` (how many members are proven to cost no more, itself included),
    `most_rank` (how many may at most) and `log2_most_weight` (a proven limit on the log2 weight of a drawable member that costs no
    more than the canary). Per draw, in the order in which they were made: `costs` (bits) and `log2_weights` (-log2 of the
    probability of drawing this member). Members can be drawn that may count towards the rank and are not among the known.

    `resolutions` (bits, per canary) and `known_near` allow for the resolution of the model. A canary whose rank is proven gets its
    exact exposure, and without any draw the proven bounds are the result; see `bounded_exposure`.

    >>> estimate = guided_exposures(
    ...     [20.0], [19.0, 25.0, 18.5, 31.0], [3.0, 3.0, 3.0, 3.0],
    ...     log2_most_weight=[3.0], known=[4], most_rank=[12], size=1024,
    ... )[0]
    >>> print(estimate.statement)
    exposure is 7.00 bits (95% interval 6.42 to 8.00): 4 members are proven no more surprising, and so are 2 of 4 draws
    >>> estimate.effective_n, estimate.warnings
    (2.0, ('based on an effective sample of only 2.0 draws',))
    """
    limits = canary_array(thresholds, canary_ids)
    names = [canary_name(place, canary_ids) for place in range(len(limits))]
    largest = _one_for_each(log2_most_weight, len(limits), "log2_most_weight", "canary")
    proven = _proven_ranks(known, most_rank, known_near, size, names)
    level = checked_confidence(confidence)
    draws, weights = _checked_draws(costs, log2_weights)
    given = np.zeros(len(limits)) if resolutions is None else resolutions
    widths = _one_for_each(given, len(limits), "resolutions", "canary")
    estimates = []
    for j, ranks in enumerate(proven):
        if ranks.nearest == ranks.most or not len(draws):
            rank = ranks.known if ranks.nearest == ranks.most else None
            estimates.append(bounded_exposure(ranks.fewest, ranks.most, ranks.size, rank=rank))
        else:
            found = _counted(draws, weights, (limits[j], widths[j]), float(largest[j]), names[j])
            estimates.append(_guided(found, ranks, level))
    return estimates


class _ProvenRank(NamedTuple):
    """What is proven about a rank of `size`: how many known members count for sure, by cost, and possibly; and how many may at most."""

    fewest: int
    known: int
    nearest: int
    most: int
    size: int


def _proven_ranks(
    known: Sequence[int],
    most_rank: Sequence[int],
    known_near: Sequence[tuple[int, int]] | None,
    size: int,
    names: Sequence[str],
) -> list[_ProvenRank]:
    for what, numbers in (("known", known), ("most_rank", most_rank)):
        if len(numbers) != len(names):
            raise InputError(
                f"there are {len(names):,} thresholds but {len(numbers):,} of {what}; give one per canary"
            )
    found = []
    for j, name in enumerate(names):
        sure, most, members = _checked_ranks(known[j], most_rank[j], size, name)
        fewest, nearest = (sure, sure) if known_near is None else known_near[j]
        found.append(_ProvenRank(fewest, sure, nearest, most, members))
    return found


class _Counted(NamedTuple):
    """The draws that may count: their positions among `n`, their weights as shares of the largest, which count, and which do for sure."""

    positions: NDArray[np.int64]
    log2_shares: FloatArray
    counted: NDArray[np.bool_]
    surely: NDArray[np.bool_]
    n: int
    log2_largest: float

    def share_interval(self, which: NDArray[np.bool_], level: float) -> tuple[float, float]:
        """The interval of the mean weight of some of the draws, as a share of the largest."""
        return sparse_mean_interval(
            self.n, *_above_zero(self.positions[which], self.log2_shares[which]), level
        )


def _counted(
    draws: FloatArray, weights: FloatArray, limit: tuple[float, float], log2_largest: float, name: str
) -> _Counted:
    """The draws that may count for a canary with this log-perplexity and resolution (bits)."""
    cost, width = limit
    beyond = np.flatnonzero(draws <= cost + width)
    shares = _shares(weights[beyond], log2_largest, beyond, name)
    surely = (draws[beyond] < cost - width) | (draws[beyond] == cost)
    return _Counted(beyond, shares, draws[beyond] <= cost, surely, len(draws), log2_largest)


def _guided(found: _Counted, ranks: _ProvenRank, level: float) -> Estimate:
    floor, ceiling = exposure_bits(ranks.most, ranks.size), exposure_bits(ranks.fewest, ranks.size)

    def bits(known: int, log2_rest: float) -> float:
        log2_rank = float(np.logaddexp2(math.log2(known), log2_rest))
        return min(max(math.log2(ranks.size) - log2_rank, floor), ceiling)

    def bits_of_share(known: int, share: float) -> float:
        return bits(known, math.log2(share) + found.log2_largest if share > 0.0 else -math.inf)

    everything = np.ones(len(found.positions), dtype=bool)
    low = bits_of_share(ranks.nearest, found.share_interval(everything, level)[1])
    high = bits_of_share(ranks.fewest, found.share_interval(found.surely, level)[0])
    number = int(found.counted.sum())
    log2_sum, effective_n = _log2_sum_and_worth(found.log2_shares[found.counted])
    value = bits(ranks.known, log2_sum + found.log2_largest - math.log2(found.n)) if number else None
    if value is not None:
        # Where every share is too small for a float the mean counts as 0, and the value is then more accurate.
        low, high = min(low, value), max(high, value)
    return Estimate(
        method="guided",
        status="lower_bound" if value is None else "measured",
        value=value,
        low=low,
        high=high,
        confidence=level,
        n=found.n,
        effective_n=effective_n,
        statement=_guided_statement(value, (low, high), level, ranks.known, number, found.n),
        assumptions=GUIDED_ASSUMPTIONS,
        warnings=_warnings(effective_n),
    )


def _guided_statement(
    value: float | None, interval: tuple[float, float], level: float, known: int, counted: int, n: int
) -> str:
    low, high = interval
    proven = f"{known:,} {'member is' if known == 1 else 'members are'} proven no more surprising"
    draws = f"{n:,} {'draw' if n == 1 else 'draws'}"
    if value is None:
        return (
            f"exposure is between {rounded_down(low)} and {rounded_up(high)} bits "
            f"({100 * level:g}% interval): {proven}, and none of {draws} is"
        )
    return (
        f"exposure is {value:.2f} bits ({100 * level:g}% interval {low:.2f} to {high:.2f}): "
        f"{proven}, and so {'is' if counted == 1 else 'are'} {counted:,} of {draws}"
    )


def _above_zero(counted: NDArray[np.int64], log2_shares: FloatArray) -> tuple[NDArray[np.int64], FloatArray]:
    """Positions and shares as floats, without those below the smallest normal float.

    They count as 0 in the mean, which is then too low by less than 2**-1022 of the largest weight.
    """
    kept = log2_shares >= -1022.0
    return counted[kept], np.exp2(log2_shares[kept])


def _log2_sum_and_worth(log2_weights: FloatArray) -> tuple[float, float]:
    """log2 of the sum of the weights, and their effective number; -inf and 0.0 without weights."""
    if not len(log2_weights):
        return -math.inf, 0.0
    top = float(log2_weights.max())
    weights = np.exp2(log2_weights - top)
    total = float(weights.sum())
    return top + math.log2(total), total**2 / float(weights @ weights)


def _warnings(effective_n: float) -> tuple[str, ...]:
    if effective_n == 0.0:
        return (NO_DRAW_COUNTS,)
    if effective_n < FEW_DRAWS:
        return (f"based on an effective sample of only {math.floor(effective_n * 10) / 10:.1f} draws",)
    return ()


def _shares(
    log2_weights: FloatArray, log2_largest: float, positions: NDArray[np.int64], name: str
) -> FloatArray:
    """The log2 weights relative to the largest possible, at most 0."""
    shares = log2_weights - log2_largest
    wrong = np.flatnonzero(shares > ROUNDING_BITS)
    if len(wrong):
        first = wrong[0]
        raise InputError(
            f"no draw that counts for {name} may have a log2 weight above {log2_largest:g}, got {log2_weights[first]:g} "
            f"at position {positions[first]}; raise log2_most_weight to a limit that holds for every member"
        )
    return np.minimum(shares, 0.0)


def _checked_draws(costs: ArrayLike, log2_weights: ArrayLike) -> tuple[FloatArray, FloatArray]:
    given = _numbers(costs, "costs")
    # Without draws the proven bounds remain, so that is not an error.
    draws = sample_array(given, "draws") if given.size else given.ravel()
    weights = _one_for_each(log2_weights, len(draws), "log2_weights", "draw")
    wrong = np.flatnonzero(weights < -ROUNDING_BITS)
    if len(wrong):
        raise InputError(
            f"log2_weights must be at least 0, because no probability exceeds 1, got {weights[wrong[0]]:g} "
            f"at position {wrong[0]}; give -log2 of the probability of each draw"
        )
    return draws, weights


def _numbers(numbers: ArrayLike, what: str) -> FloatArray:
    try:
        return np.asarray(numbers, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"{what} must be numbers, but they cannot be read as such; give bits as floats"
        ) from None


def _one_for_each(numbers: ArrayLike, count: int, what: str, owner: str) -> FloatArray:
    array = _numbers(numbers, what)
    if array.shape != (count,):
        raise InputError(
            f"{what} must be one row of {count:,} numbers, got shape {array.shape}; give one per {owner}"
        )
    wrong = np.flatnonzero(~np.isfinite(array))
    if len(wrong):
        raise InputError(
            f"{what} must be finite, got {array[wrong[0]]} at position {wrong[0]}; "
            "a member that cannot be drawn has no weight"
        )
    return array


def _checked_ranks(known: int, most_rank: int, size: int, name: str) -> tuple[int, int, int]:
    size = checked_count(size, "size")
    try:
        sure, most = operator.index(known), operator.index(most_rank)
    except TypeError:
        raise InputError(
            f"the ranks of {name} must be whole numbers, got {known!r} and {most_rank!r}; give them as int"
        ) from None
    if not 1 <= sure <= most <= size:
        raise InputError(
            f"the rank of {name} must have 1 <= known <= most_rank <= size, got known {sure}, most_rank {most} and "
            f"size {size}; the canary itself is always known"
        )
    return sure, most, size


def _shown(size: int) -> str:
    """A whole number with commas, or as a power of ten if it is a large one."""
    digits = str(size)
    if len(digits) > 9 and digits.rstrip("0") == "1":
        return f"10^{len(digits) - 1}"
    return f"{size:,}"
