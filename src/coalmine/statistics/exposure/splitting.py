"""Exposure in bits from several runs of multilevel splitting.

A run holds members that are uniform below each of a sequence of falling levels. The product of the shares below the next level,
times the share below the canary's own log-perplexity, is an unbiased estimate of the probability that a random member is no more
surprising than the canary (Del Moral, Feynman-Kac Formulae, 2004). Members that were known before the runs are counted, and only
the others are estimated. `coalmine.search.walks.splitting` makes the runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.errors import InputError
from coalmine.records import Estimate
from coalmine.records.estimate import rounded_down
from coalmine.statistics.exposure.ranks import exposure_bits
from coalmine.statistics.intervals import clopper_pearson
from coalmine.statistics.scores import FloatArray, canary_array, checked_confidence, checked_count

SPLITTING_ASSUMPTIONS: tuple[str, ...] = (
    "members that are no more surprising than the canary can be reached from uniform draws, or from known canaries, by refilling parts",
    "the estimates of the runs are spread roughly like log-normal numbers",
)
FREE_ASSUMPTIONS: tuple[str, ...] = (
    "the first members of the runs are independent and uniform draws from the whole secret space",
)

# An estimate is given where at least this share of the runs reached it, and their effective number is at least this share of them.
SEEN_BY, WORTH = 0.8, 0.5
# Intervals from this few runs are slightly too narrow: without this, nominal 95% intervals covered the truth in 92% to 93% of 200 audits.
WIDENED = 1.2
# With fewer initial members than this whose descendants count, the runs may all have missed the same region.
FEW_LINES = 10


class SplittingRun(NamedTuple):
    """The members that one run held: uniform on the whole space at first, then below each level.

    Attributes:
        costs: (levels + 1, particles), log-perplexities in bits; infinite after a level below which nothing was found.
        known: (levels + 1, particles), whether each was known before the run.
        ancestors: (levels + 1, particles), the initial member that each descends from.
    """

    costs: FloatArray
    known: NDArray[np.bool_]
    ancestors: NDArray[np.int32]


class _Below(NamedTuple):
    """The estimates of each run of the share of the space up to one cost."""

    log2_every: FloatArray  # (runs,)
    log2_others: FloatArray  # (runs,), without the known
    lines: int


class SplittingRuns:
    """Several runs through the same levels."""

    def __init__(self, runs: Sequence[SplittingRun], levels: Sequence[float]) -> None:
        if len(runs) < 2:
            raise InputError(f"an interval needs at least two runs, got {len(runs)}; make more")
        self.levels = np.array(levels, dtype=np.float64)
        self.costs = np.stack([run.costs for run in runs])  # (runs, stages, particles)
        self.known = np.stack([run.known for run in runs])
        self.ancestors = np.stack([run.ancestors for run in runs])
        if (np.diff(self.levels) >= 0).any() or self.costs.shape[1] != len(self.levels) + 1:
            raise InputError(
                f"levels must fall, and runs must have one more row than the {len(self.levels)} levels"
            )
        with np.errstate(divide="ignore"):
            kept = np.log2((self.costs[:, :-1] <= self.levels[None, :, None]).mean(axis=2))
        self.log2_weights = np.concatenate([np.zeros((len(runs), 1)), np.cumsum(kept, axis=1)], axis=1)

    def stage(self, cost: float) -> int:
        """The last stage whose level is no lower than a cost."""
        return int((self.levels >= cost).sum())

    def below(self, cost: float) -> _Below:
        """The estimates for the members up to a cost."""
        stage = self.stage(cost)
        inside = self.costs[:, stage] <= cost
        others = inside & ~self.known[:, stage]
        lines = sum(
            len(np.unique(one[row])) for one, row in zip(self.ancestors[:, stage], inside, strict=True)
        )
        with np.errstate(divide="ignore"):
            weights = self.log2_weights[:, stage]
            return _Below(
                weights + np.log2(inside.mean(axis=1)), weights + np.log2(others.mean(axis=1)), lines
            )

    def first(self, cost: float) -> tuple[int, int]:
        """How many of the initial members of all runs cost no more, and how many there are."""
        return int((self.costs[:, 0] <= cost).sum()), self.costs[:, 0].size


def splitting_exposures(
    thresholds: ArrayLike,
    runs: SplittingRuns,
    *,
    known: Sequence[int],
    proven: Sequence[int],
    complete: Sequence[bool],
    size: int,
    scored: int,
    confidence: float = 0.95,
    canary_ids: Sequence[str] | None = None,
) -> list[Estimate]:
    """The exposure in bits of each canary, in the order given.

    Per canary: `thresholds` (its log-perplexity in bits), `known` (how many of the members that are marked in the runs cost no
    more), `proven` (how many members are known by now to cost no more, itself included) and `complete` (whether all neighbors of
    the known canaries were scored). `scored` is how many members the model scored.
    """
    limits = canary_array(thresholds, canary_ids)
    level = checked_confidence(confidence)
    size = checked_count(size, "size")
    return [
        _exposure(_Asked(runs, float(limit), known[j], max(1, proven[j]), complete[j], size, scored, level))
        for j, limit in enumerate(limits)
    ]


class _Asked(NamedTuple):
    """One canary: its cost, what is known of its rank, and the runs that estimate the rest of it."""

    runs: SplittingRuns
    cost: float
    known: int
    proven: int
    complete: bool
    size: int
    scored: int
    level: float

    @property
    def ceiling(self) -> float:
        """The most bits that its proven rank allows."""
        return exposure_bits(min(self.proven, self.size), self.size)


def _exposure(asked: _Asked) -> Estimate:
    runs, cost, known, _, _, size, scored, level = asked
    below = runs.below(cost)
    log2_size = math.log2(size)
    if runs.stage(cost) == 0:
        return _from_first(asked)
    if _supported(below.log2_others):
        # Known members are counted, and only the others are estimated.
        middle, low, high = (
            _log2_add(math.log2(known) if known else -math.inf, log2_size + one)
            for one in log2_mean_interval(below.log2_others, level)
        )
    elif _supported(below.log2_every):
        middle, low, high = (log2_size + one for one in log2_mean_interval(below.log2_every, level))
    else:
        return _bounds(asked)
    ceiling = asked.ceiling
    if log2_size - high > ceiling + 1e-9:
        return _bounds(asked._replace(complete=False))
    value, least, most = (min(max(log2_size - one, 0.0), ceiling) for one in (middle, high, low))
    seen = int(np.isfinite(below.log2_every).sum())
    return Estimate(
        method="splitting",
        status="measured",
        value=value,
        low=least,
        high=most,
        confidence=level,
        n=scored,
        statement=(
            f"exposure is {value:.2f} bits ({100 * level:g}% interval {least:.2f} to {most:.2f}): {seen} of {len(runs.costs)} runs of "
            f"splitting reached it, with {scored:,} members scored; {_free(runs, cost, level)}"
        ),
        assumptions=SPLITTING_ASSUMPTIONS,
        warnings=(
            (f"the members that count descend from only {below.lines} of the initial members of all runs",)
            if below.lines < FEW_LINES
            else ()
        ),
    )


def _from_first(asked: _Asked) -> Estimate:
    """The canary is in the upper half: the uniform draws show it as exactly as anything."""
    level, ceiling = asked.level, asked.ceiling
    count, n = asked.runs.first(asked.cost)
    low_p, high_p = clopper_pearson(count, n, level)
    value, low, high = (
        min(abs(math.log2(p)), ceiling) if p > 0 else ceiling for p in (count / n, high_p, low_p)
    )
    return Estimate(
        method="splitting",
        status="measured",
        value=value,
        low=low,
        high=high,
        confidence=level,
        n=asked.scored,
        statement=(
            f"exposure is {value:.2f} bits ({100 * level:g}% interval {low:.2f} to {high:.2f}): {count:,} of {n:,} uniform draws are no "
            "more surprising"
        ),
        assumptions=FREE_ASSUMPTIONS,
    )


def _bounds(asked: _Asked) -> Estimate:
    """Bounds for a canary that no run, or too few, reached: the lowest level that enough runs reached limits its rank from above."""
    runs, cost, known, proven, complete, size, scored, level = asked
    log2_size, ceiling = math.log2(size), asked.ceiling
    above = [
        float(limit)
        for limit in runs.levels[runs.levels >= cost][::-1]
        if _supported(runs.below(float(limit)).log2_others)
    ]
    free = _free_bits(runs, cost, level)
    reason = "too few runs reached a member as unsurprising as this canary, so there is a bound but no value"
    if above and complete:
        _, _, high = log2_mean_interval(runs.below(above[0]).log2_others, level)
        low = min(max(log2_size - _log2_add(math.log2(max(known, proven)), log2_size + high), 0.0), ceiling)
        rank = math.ceil(min(2.0 ** min(log2_size - low, 1000.0), float(min(size, 2**1000))))
        how = f"at most about {rank:,} members are no more surprising, by the lowest level that enough runs reached"
        assumptions = SPLITTING_ASSUMPTIONS
    else:
        low = min(free, ceiling)
        how = f"less surprising than all but a few of {runs.first(cost)[1]:,} uniform draws"
        assumptions = FREE_ASSUMPTIONS
        reason += "; this canary has too many neighbors to score them all" if not complete else ""
    return Estimate(
        method="splitting",
        status="lower_bound",
        value=None,
        low=low,
        high=ceiling,
        confidence=level,
        n=scored,
        statement=(
            f"exposure is at least {rounded_down(low)} bits ({100 * level:g}% confidence): {how}; {_free(runs, cost, level)}"
        ),
        assumptions=assumptions,
        warnings=(reason,),
    )


def log2_mean_interval(log2_numbers: FloatArray, level: float) -> tuple[float, float, float]:
    """The log2 of the mean of independent nonnegative numbers of very different sizes, and of its confidence limits."""
    from scipy.special import stdtrit

    n = len(log2_numbers)
    top = float(log2_numbers.max())
    numbers = np.exp2(log2_numbers - top)
    mean = float(numbers.mean())
    error = float(numbers.std(ddof=1)) / mean / math.sqrt(n)
    reach = WIDENED * float(stdtrit(n - 1, (1 + level) / 2)) * error / math.log(2)
    middle = top + math.log2(mean)
    return middle, middle - reach, middle + reach


def _supported(log2_numbers: FloatArray) -> bool:
    """Whether enough of the runs reached something, and no few of them dominate."""
    seen = np.isfinite(log2_numbers)
    if seen.mean() < SEEN_BY:
        return False
    numbers = np.exp2(log2_numbers - log2_numbers.max())
    return bool(numbers.sum() ** 2 / (numbers @ numbers) >= WORTH * len(numbers))


def _free_bits(runs: SplittingRuns, cost: float, level: float) -> float:
    """A lower limit on the exposure from the uniform draws alone, which holds for every model."""
    count, n = runs.first(cost)
    return abs(math.log2(clopper_pearson(count, n, 2 * level - 1 if level > 0.5 else level)[1]))


def _free(runs: SplittingRuns, cost: float, level: float) -> str:
    bits = rounded_down(_free_bits(runs, cost, level))
    return f"{runs.first(cost)[1]:,} uniform draws alone show at least {bits} bits, for any model"


def _log2_add(first: float, second: float) -> float:
    return float(np.logaddexp2(first, second))
