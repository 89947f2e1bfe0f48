"""Is one group of numbers higher than another, and by how much? Exact tests by exchanging, and the intervals that they imply.

If two trainings were alike, exchanging their numbers would change nothing. So the difference of means is compared with those
after exchanges: of the two numbers of one canary where both trainings had the same canaries (paired), of canaries between the
groups where they had not (unpaired). Nothing is assumed about the shape of the numbers, and few of them give a large p-value
instead of a wrong one.

The interval has all shifts that the test does not reject. An exchange that moves the set S of the first group makes the
difference no smaller exactly if the shift is at least the mean difference over S, so the limits are order statistics of such
means (Hartigan's typical values), and no search is needed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.errors import InputError, NotMeasurableError
from coalmine.randomness import arrays
from coalmine.records import Estimate
from coalmine.statistics.score_arrays import checked_confidence

FloatArray = NDArray[np.float64]
# All exchanges are tried up to this many, else so many at random; with the true order among them the level is exact either way.
MOST_EXCHANGES = 65_536
RANDOM_EXCHANGES = 19_999
# What is drawn at one time, so that memory stays bounded.
_NUMBERS_AT_ONCE = 4_000_000
# Sums of the same numbers in another order differ by rounding; they are ties.
_ROUNDING = 1e-9

SAME_RUNS = (
    "a difference of two models is of these two, over canaries like these: with one training per side it cannot be known whether the "
    "ways of training differ, because another seed can differ by more; train several models each way, and name those of one way "
    "alike, as in `coalmine compare plain=RUN plain=RUN other=RUN other=RUN`"
)
PAIRED = "if the trainings were alike, each canary could have had its two numbers the other way round"
UNPAIRED = "if the trainings were alike, their canaries could have been exchanged"
SHIFT = "the interval takes the difference to be a shift that is the same for all"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of a first group minus that of a second, with an exact test of "there is no difference"."""

    estimate: Estimate
    # Two-sided.
    p_value: float
    # The least p-value that so few numbers can give.
    least_p_value: float
    # Over canaries, the same or others; or over trainings.
    pairing: Literal["paired", "unpaired", "trainings"]
    # How many exchanges were tried, the true order among them; 0 for a test over trainings.
    exchanges: int
    every_exchange: bool


def paired_difference(
    first: ArrayLike,
    second: ArrayLike,
    *,
    most: float = math.inf,
    confidence: float = 0.95,
    seed: int = 0,
    unit: str = "bits",
) -> Difference:
    """The mean of `first` minus `second`, pair by pair; no difference can be larger than `most`, which limits the interval.

    >>> found = paired_difference([3.0, 4.0, 5.0, 6.0, 5.5, 7.0], [1.0, 3.0, 3.5, 4.0, 5.0, 4.0])
    >>> found.estimate.statement
    '1.67 bits more (95% interval 0.50 to 3.00), p = 0.031, 6 pairs'
    """
    one, other = number_row(first, "first"), number_row(second, "second")
    if len(one) != len(other):
        raise InputError(
            f"pairs need as many numbers on both sides, got {len(one)} and {len(other)}; compare them unpaired"
        )
    differences = one - other
    n = len(differences)
    every = 2**n <= MOST_EXCHANGES
    if every:
        flips = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 == 1
        sums, moved = flips @ differences, flips.sum(axis=1)
    else:
        sums, moved = _random_flips(differences, arrays(seed, "differences", "paired"))
    return _difference(
        float(differences.mean()),
        sums,
        moved,
        most=most,
        confidence=confidence,
        every=every,
        # All of one sign, or all of the other.
        least=2.0 ** (1 - n),
        pairing="paired",
        counted=f"{n} pair{'s' if n > 1 else ''}",
        n=n,
        unit=unit,
    )


def unpaired_difference(
    first: Sequence[ArrayLike],
    second: Sequence[ArrayLike],
    *,
    most: float = math.inf,
    confidence: float = 0.95,
    seed: int = 0,
    unit: str = "bits",
) -> Difference:
    """The mean of `first` minus `second`, where each is a list of strata and only numbers of the same stratum are compared.

    A stratum with m against n numbers has the weight m n / (m + n).

    >>> found = unpaired_difference([[9.0, 8.0, 9.5, 7.0, 8.5]], [[1.0, 2.0, 1.5, 3.0]])
    >>> found.estimate.statement
    '6.53 bits more (95% interval 5.00 to 8.00), p = 0.016, 5 against 4'
    """
    if len(first) != len(second) or not first:
        raise InputError(
            f"strata must be the same on both sides and at least one, got {len(first)} and {len(second)}"
        )
    strata = [(number_row(a, "first"), number_row(b, "second")) for a, b in zip(first, second, strict=True)]
    ways = math.prod(math.comb(len(a) + len(b), len(a)) for a, b in strata)
    every = ways <= MOST_EXCHANGES
    if every:
        sums, moved = _all_exchanges(strata)
    else:
        sums, moved = _random_exchanges(strata, arrays(seed, "differences", "unpaired"))
    weights = [len(a) * len(b) / (len(a) + len(b)) for a, b in strata]
    means = [float(a.mean() - b.mean()) for a, b in strata]
    sizes = [sum(len(side) for side in sides) for sides in zip(*strata, strict=True)]
    return _difference(
        float(np.average(means, weights=weights)),
        sums,
        moved,
        most=most,
        confidence=confidence,
        every=every,
        least=min(1.0, 2.0 / ways),
        pairing="unpaired",
        counted=f"{sizes[0]} against {sizes[1]}",
        n=sum(sizes),
        unit=unit,
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values of several comparisons, raised so that one below a level is wrong with at most that probability for any of them.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, p_values[place] * (len(p_values) - rank)))
        adjusted[place] = highest
    return adjusted


def _difference(
    value: float,
    sums: FloatArray,
    moved: NDArray[np.int64],
    *,
    most: float,
    confidence: float,
    every: bool,
    least: float,
    pairing: Literal["paired", "unpaired"],
    counted: str,
    n: int,
    unit: str,
) -> Difference:
    """From exchanges to a p-value and an interval.

    `sums` is, for each exchange, the sum of the differences that it turns round, and `moved` how many these are; an exchange
    that turns none round is the true order, or equal to it.
    """
    level = checked_confidence(confidence)
    scale = _ROUNDING * max(1.0, float(np.abs(sums).max(initial=0.0)))
    turned = moved > 0
    same = int(len(moved) - turned.sum())
    means = np.sort(sums[turned] / moved[turned])
    total = len(moved)
    # An exchange leaves the difference no smaller if what it turns round sums to no more than nothing.
    no_smaller = same + int(np.searchsorted(means, scale, side="right"))
    no_larger = same + len(means) - int(np.searchsorted(means, -scale, side="left"))
    p_value = min(1.0, 2.0 * min(no_smaller, no_larger) / total)
    # Of shifts, those are rejected that leave too few exchanges beside the true order.
    outside = math.floor((1.0 - level) / 2.0 * total * (1 + 1e-12)) - same
    low, high = -most, most
    if outside >= 0 and len(means):
        low, high = (
            max(-most, min(float(means[outside]), value)),
            min(most, max(float(means[-1 - outside]), value)),
        )
    warnings = []
    if outside < 0:
        warnings.append(
            f"{counted} are too few for an interval at {100 * level:g}% to exclude anything, and p is at least {least:.2g}"
        )
    return Difference(
        estimate=Estimate(
            method=f"{pairing} exchange",
            status="measured",
            value=value,
            low=low if math.isfinite(low) else None,
            high=high if math.isfinite(high) else None,
            confidence=level,
            n=n,
            statement=difference_words(value, (low, high), level, p_value, counted, unit),
            assumptions=(PAIRED if pairing == "paired" else UNPAIRED, SHIFT),
            warnings=tuple(warnings),
        ),
        p_value=p_value,
        least_p_value=least,
        pairing=pairing,
        exchanges=total,
        every_exchange=every,
    )


def difference_words(
    value: float, interval: tuple[float, float], level: float, p_value: float, counted: str, unit: str
) -> str:
    """A difference with its interval and p-value, as a part of a sentence."""
    limits = "no interval"
    if all(map(math.isfinite, interval)):
        low, high = (math.floor(interval[0] * 100) / 100, math.ceil(interval[1] * 100) / 100)
        if value < 0:
            low, high = -high, -low
        limits = f"{100 * level:g}% interval {low:.2f} to {high:.2f}"
    return (
        f"{abs(value):.2f} {unit} {'less' if value < 0 else 'more'} ({limits}), p = {p_value:.2g}, {counted}"
    )


def _random_flips(
    differences: FloatArray, chance: np.random.Generator
) -> tuple[FloatArray, NDArray[np.int64]]:
    """For the true order, and then for pairs turned round at random, the sum over these pairs and their number."""
    sums, moved = np.zeros(RANDOM_EXCHANGES + 1), np.zeros(RANDOM_EXCHANGES + 1, dtype=np.int64)
    rows = max(1, _NUMBERS_AT_ONCE // len(differences))
    for start in range(1, RANDOM_EXCHANGES + 1, rows):
        part = slice(start, min(start + rows, RANDOM_EXCHANGES + 1))
        flips = chance.random((part.stop - start, len(differences))) < 0.5
        sums[part], moved[part] = flips @ differences, flips.sum(axis=1)
    return sums, moved


def _all_exchanges(strata: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, NDArray[np.int64]]:
    """For every exchange the sum over the first side's members that move minus that over the second side's, and their number."""
    sums, moved = np.zeros(1), np.zeros(1, dtype=np.int64)
    for a, b in strata:
        both, n = np.concatenate([a, b]), len(a)
        chosen = np.array(list(itertools.combinations(range(len(both)), n)))
        came = np.where(chosen >= n, both[chosen], 0.0).sum(axis=1)
        stayed = np.where(chosen < n, both[chosen], 0.0).sum(axis=1)
        sums = (sums[:, None] + (a.sum() - stayed - came)).ravel()
        moved = (moved[:, None] + (chosen >= n).sum(axis=1)).ravel()
    return sums, moved


def _random_exchanges(
    strata: Sequence[tuple[FloatArray, FloatArray]], chance: np.random.Generator
) -> tuple[FloatArray, NDArray[np.int64]]:
    """The same for exchanges at random, after the true order."""
    sums, moved = np.zeros(RANDOM_EXCHANGES + 1), np.zeros(RANDOM_EXCHANGES + 1, dtype=np.int64)
    for a, b in strata:
        both, n = np.concatenate([a, b]), len(a)
        for number in range(1, RANDOM_EXCHANGES + 1):
            chosen = chance.permutation(len(both))[:n]
            newcomers = chosen >= n
            sums[number] += a.sum() - both[chosen].sum()
            moved[number] += newcomers.sum()
    return sums, moved


def number_row(numbers: ArrayLike, which: str) -> FloatArray:
    """Numbers of one side as a row of finite ones."""
    row = np.asarray(numbers, dtype=np.float64)
    if row.ndim != 1:
        raise InputError(f"the {which} numbers must be one row, got {row.ndim} dimensions; flatten them")
    if not len(row):
        raise NotMeasurableError(f"there are no numbers on the {which} side, so there is nothing to compare")
    if not np.all(np.isfinite(row)):
        raise InputError(
            f"the {which} numbers must be finite, got {row[~np.isfinite(row)][0]}; leave out none of them"
        )
    return row
