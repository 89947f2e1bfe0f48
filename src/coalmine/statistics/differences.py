"""Exact permutation tests of the difference between two groups of numbers, and the confidence intervals that they imply.

If two models were trained alike, exchanging their numbers would change nothing. So the difference of means is compared with the
differences after exchanges: of the two numbers of one canary where both models had the same canaries (paired), of canaries
between the groups where they did not (unpaired). Nothing is assumed about the distribution of the numbers, and few of them give
a large p-value instead of a wrong one.

The confidence interval contains all shifts that the test does not reject. An exchange that moves the set S of the first group
makes the difference no smaller exactly if the shift is at least the mean difference over S, so the limits are order statistics of
such means (Hartigan, Using Subsample Values as Typical Values, Journal of the American Statistical Association 64, 1969), and no
search is needed.

`run_difference` compares two ways of training, from one number per training run. A training run is the unit there: what another
seed would give shows in the spread between the runs of one side, and nowhere else. Each side has its own variance, so the standard
error is Welch's. With as many degrees of freedom as the smaller side has runs, less one, the test keeps its level whatever the two
variances are (Mickey and Brown, Bounds on the Distribution Functions of the Behrens-Fisher Statistic, Annals of Mathematical
Statistics 37, 1966). Welch's own degrees of freedom do not: with 2 runs against 5 they reject up to twice as often as they should.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from coalmine.errors import InputError, NotMeasurableError
from coalmine.randomness import arrays
from coalmine.records import Estimate
from coalmine.records.estimate import Count, Share
from coalmine.statistics.scores import FloatArray, IntArray, checked_confidence, number_row

# All exchanges are tried up to this many, else this many at random; with the true order among them the level is exact either way.
MOST_EXCHANGES = 65_536
RANDOM_EXCHANGES = 19_999
# Numbers drawn at a time, so that memory stays bounded.
_NUMBERS_AT_ONCE = 4_000_000
# Sums of the same numbers in another order differ by rounding; they are ties.
_ROUNDING = 1e-9
# Training runs that a side needs for its spread to be known at all.
FEWEST_RUNS = 2

SAME_RUNS = (
    "a difference between two models is about these two, over canaries like these: with one training run per side it cannot be known "
    "whether the ways of training differ, because another seed can differ by more; train several models each way, and give the runs "
    "of one way the same label, as in `coalmine report plain=RUN plain=RUN other=RUN other=RUN`"
)
PAIRED = (
    "if the models were trained alike, the two numbers of each canary could have been the other way round"
)
UNPAIRED = "if the models were trained alike, their canaries could have been exchanged"
SHIFT = "the interval assumes that the difference is the same shift for all"
NORMAL = "the mean exposures of the training runs of one side are normally distributed; the two sides may have different variances"
THESE_CANARIES = "the training runs of a side differ by their seeds, and the difference is about runs like these, with these canaries"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of a first group minus that of a second, in the unit of the numbers, with a test of "there is no difference".

    >>> found = paired_difference([3.0, 4.0, 5.0], [1.0, 3.0, 3.5])
    >>> found.pairing, found.p_value, found.estimate.value
    ('paired', 0.25, 1.5)
    """

    estimate: Estimate
    # Two-sided.
    p_value: Share
    # The smallest p-value that this few numbers can give; 0 for training runs, which may agree arbitrarily well.
    least_p_value: Share
    # Over canaries, the same or others; or over training runs.
    pairing: Literal["paired", "unpaired", "trainings"]
    # How many exchanges were tried, including the true order; 0 for a test over training runs.
    exchanges: Count
    every_exchange: bool


class _Exchanges(NamedTuple):
    """For each exchange, the sum of the differences that it turns round, and how many these are.

    An exchange that turns none round is the true order, or equal to it. `least_p_value` is that of exchanges of one sign only.
    """

    sums: FloatArray
    moved: IntArray
    every: bool
    least_p_value: float


def paired_difference(
    first: ArrayLike,
    second: ArrayLike,
    *,
    most: float = math.inf,
    confidence: float = 0.95,
    seed: int = 0,
    unit: str = "bits",
) -> Difference:
    """The mean of `first` minus `second` in `unit`, pair by pair; no difference can exceed `most`, which limits the interval.

    >>> found = paired_difference([3.0, 4.0, 5.0, 6.0, 5.5, 7.0], [1.0, 3.0, 3.5, 4.0, 5.0, 4.0])
    >>> found.estimate.statement
    '1.67 bits more (95% interval 0.50 to 3.00), p = 0.031, 6 pairs'
    """
    one, other = _side(first, "first"), _side(second, "second")
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
    counted = f"{n} pair{'s' if n > 1 else ''}"
    exchanges = _Exchanges(sums, moved, every, 2.0 ** (1 - n))
    value, level = float(differences.mean()), checked_confidence(confidence)
    return _difference(value, exchanges, level, most, pairing="paired", counted=counted, n=n, unit=unit)


def unpaired_difference(
    first: Sequence[ArrayLike],
    second: Sequence[ArrayLike],
    *,
    most: float = math.inf,
    confidence: float = 0.95,
    seed: int = 0,
    unit: str = "bits",
) -> Difference:
    """The mean of `first` minus `second` in `unit`; each is a list of strata, and only numbers of the same stratum are compared.

    A stratum with m against n numbers has the weight m n / (m + n).

    >>> found = unpaired_difference([[9.0, 8.0, 9.5, 7.0, 8.5]], [[1.0, 2.0, 1.5, 3.0]])
    >>> found.estimate.statement
    '6.53 bits more (95% interval 5.00 to 8.00), p = 0.016, 5 against 4'
    """
    if len(first) != len(second) or not first:
        raise InputError(f"both sides need the same strata, at least one, got {len(first)} and {len(second)}")
    strata = [(_side(a, "first"), _side(b, "second")) for a, b in zip(first, second, strict=True)]
    ways = math.prod(math.comb(len(a) + len(b), len(a)) for a, b in strata)
    every = ways <= MOST_EXCHANGES
    if every:
        sums, moved = _all_exchanges(strata)
    else:
        sums, moved = _random_exchanges(strata, arrays(seed, "differences", "unpaired"))
    weights = [len(a) * len(b) / (len(a) + len(b)) for a, b in strata]
    means = [float(a.mean() - b.mean()) for a, b in strata]
    sizes = [sum(len(side) for side in sides) for sides in zip(*strata, strict=True)]
    counted = f"{sizes[0]} against {sizes[1]}"
    exchanges = _Exchanges(sums, moved, every, min(1.0, 2.0 / ways))
    value, level = float(np.average(means, weights=weights)), checked_confidence(confidence)
    return _difference(
        value, exchanges, level, most, pairing="unpaired", counted=counted, n=sum(sizes), unit=unit
    )


def run_difference(
    first: ArrayLike,
    second: ArrayLike,
    *,
    most: float = math.inf,
    confidence: float = 0.95,
    unit: str = "bits",
) -> Difference:
    """The mean of `first` minus that of `second` in `unit`, with one number per training run on each side.

    >>> found = run_difference([6.1, 6.6, 6.3], [2.0, 2.9, 2.4])
    >>> found.estimate.statement
    '3.90 bits more (95% interval 2.61 to 5.19), p = 0.0058, 3 against 3 trainings'
    """
    from scipy.special import stdtr, stdtrit

    one, other, level = _side(first, "first"), _side(second, "second"), checked_confidence(confidence)
    fewest = min(len(one), len(other))
    counted = f"{len(one)} against {len(other)} trainings"
    if fewest < FEWEST_RUNS:
        raise NotMeasurableError(
            f"{counted} cannot show how much a seed matters; train at least {FEWEST_RUNS} on each side"
        )
    value = float(one.mean() - other.mean())
    error = math.sqrt(float(one.var(ddof=1)) / len(one) + float(other.var(ddof=1)) / len(other))
    if error <= 0.0:
        raise NotMeasurableError(
            "the trainings of each side are equal to the last digit, so their seeds show nothing; train with different seeds"
        )
    p_value = float(2.0 * stdtr(fewest - 1, -abs(value) / error))
    half = -float(stdtrit(fewest - 1, (1.0 - level) / 2.0)) * error
    low, high = max(-most, value - half), min(most, value + half)
    return Difference(
        estimate=Estimate(
            method="t over trainings",
            status="measured",
            value=value,
            low=low,
            high=high,
            confidence=level,
            n=len(one) + len(other),
            statement=difference_words(value, (low, high), level, p_value, counted, unit),
            assumptions=(NORMAL, THESE_CANARIES),
        ),
        p_value=p_value,
        least_p_value=0.0,
        pairing="trainings",
        exchanges=0,
        every_exchange=False,
    )


def difference_words(
    value: float, interval: tuple[float, float], level: float, p_value: float, counted: str, unit: str
) -> str:
    """A difference with its interval and p-value, as part of a sentence."""
    limits = "no interval"
    if all(map(math.isfinite, interval)):
        low, high = (math.floor(interval[0] * 100) / 100, math.ceil(interval[1] * 100) / 100)
        if value < 0:
            low, high = -high, -low
        limits = f"{100 * level:g}% interval {low:.2f} to {high:.2f}"
    return (
        f"{abs(value):.2f} {unit} {'less' if value < 0 else 'more'} ({limits}), p = {p_value:.2g}, {counted}"
    )


def _difference(
    value: float,
    exchanges: _Exchanges,
    level: float,
    most: float,
    *,
    pairing: Literal["paired", "unpaired"],
    counted: str,
    n: int,
    unit: str,
) -> Difference:
    """From exchanges to a p-value and a confidence interval."""
    p_value, limits = _p_value_and_limits(exchanges, value, level)
    low, high = -most, most
    warnings: tuple[str, ...] = ()
    if limits is not None:
        low, high = max(-most, limits[0]), min(most, limits[1])
    else:
        least = f"{exchanges.least_p_value:.2g}"
        few = f"{counted}: too few for a {100 * level:g}% interval to exclude anything, and p is at least {least}"
        warnings = (few,)
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
            warnings=warnings,
        ),
        p_value=p_value,
        least_p_value=exchanges.least_p_value,
        pairing=pairing,
        exchanges=len(exchanges.moved),
        every_exchange=exchanges.every,
    )


def _p_value_and_limits(
    exchanges: _Exchanges, value: float, level: float
) -> tuple[float, tuple[float, float] | None]:
    """The two-sided p-value, and the limits of the shifts that are not rejected; None where there are too few exchanges."""
    sums, moved = exchanges.sums, exchanges.moved
    scale = _ROUNDING * max(1.0, float(np.abs(sums).max(initial=0.0)))
    turned = moved > 0
    total, same = len(moved), int(len(moved) - turned.sum())
    means = np.sort(sums[turned] / moved[turned])
    # An exchange leaves the difference no smaller if the numbers that it turns round sum to 0 or less.
    no_smaller = same + int(np.searchsorted(means, scale, side="right"))
    no_larger = same + len(means) - int(np.searchsorted(means, -scale, side="left"))
    p_value = min(1.0, 2.0 * min(no_smaller, no_larger) / total)
    # A shift is rejected if it leaves too few exchanges in addition to the true order.
    outside = math.floor((1.0 - level) / 2.0 * total * (1 + 1e-12)) - same
    if outside < 0:
        return p_value, None
    if not len(means):
        return p_value, (-math.inf, math.inf)
    return p_value, (min(float(means[outside]), value), max(float(means[-1 - outside]), value))


def _random_flips(differences: FloatArray, chance: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """For the true order, and then for pairs turned round at random, the sum over these pairs and their number."""
    sums, moved = np.zeros(RANDOM_EXCHANGES + 1), np.zeros(RANDOM_EXCHANGES + 1, dtype=np.int64)
    rows = max(1, _NUMBERS_AT_ONCE // len(differences))
    for start in range(1, RANDOM_EXCHANGES + 1, rows):
        part = slice(start, min(start + rows, RANDOM_EXCHANGES + 1))
        flips = chance.random((part.stop - start, len(differences))) < 0.5
        sums[part], moved[part] = flips @ differences, flips.sum(axis=1)
    return sums, moved


def _all_exchanges(strata: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, IntArray]:
    """For every exchange, the sum over the first side's members that move minus that over the second side's, and their number."""
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
) -> tuple[FloatArray, IntArray]:
    """The same for random exchanges, after the true order."""
    sums, moved = np.zeros(RANDOM_EXCHANGES + 1), np.zeros(RANDOM_EXCHANGES + 1, dtype=np.int64)
    for a, b in strata:
        both, n = np.concatenate([a, b]), len(a)
        for number in range(1, RANDOM_EXCHANGES + 1):
            chosen = chance.permutation(len(both))[:n]
            newcomers = chosen >= n
            sums[number] += a.sum() - both[chosen].sum()
            moved[number] += newcomers.sum()
    return sums, moved


def _side(numbers: ArrayLike, which: str) -> FloatArray:
    """The numbers of one side as a row of finite ones."""
    row = number_row(numbers, f"the {which} numbers")
    if not len(row):
        raise NotMeasurableError(f"there are no numbers on the {which} side, so there is nothing to compare")
    if not np.all(np.isfinite(row)):
        raise InputError(
            f"the {which} numbers must be finite, got {row[~np.isfinite(row)][0]}; find out why before comparing"
        )
    return row
