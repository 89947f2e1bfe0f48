"""Log-linear trends of rates, such as over model size, repetitions or context, with confidence intervals and p-values.

The slope is that of weighted least squares on log10 of x, as in Quantifying Memorization Across Neural Language Models (Carlini et
al., 2022, arXiv:2202.07646). Each rate is binomial, with as many trials as its clusters are worth, and that gives the standard
error of the slope as long as the rates are on a smooth curve: the line itself, or a logistic one, because rates of 0.05, 0.2 and
0.5 are far from a line and yet grow smoothly. Where the rates are further from both than their trials explain (1% level), the
interval is at least that of the spread around the nearer one, by Student's t with as many degrees of freedom as points less two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from coalmine.errors import InputError
from coalmine.records import Estimate
from coalmine.records.estimate import Share
from coalmine.statistics.scores import FloatArray, checked_confidence

FEWEST_POINTS = 3
_METHOD = "binomial line on log10, weighted by trials"
_ALIKE = "trials of one cluster may all agree; clusters are independent of each other"
_ALONE = "trials are independent of each other"
_SMOOTH = "rates are on a smooth curve in log10 of x, unless they are further from a line and a logistic curve than their trials explain"
_VARIES = "rates vary from training to training around a logistic curve in log10 of x, equally at every x"
# Below this p-value, rates are further from both curves than their trials explain, and the spread counts.
POOR_FIT = 0.01
# Added to the successes and to the failures at each point, so that a curve exists where a rate is 0 or 1.
_ADDED = 0.5
_STEPS = 100
# The smallest p-value that is reported, and the closest that a rate of the curve comes to 0 or 1.
_LEAST = 1e-12


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """The line rate = intercept + slope * log10(x), fitted to rates (from 0 to 1) at several x.

    >>> round(log_linear_trend([1, 10, 100], [10, 20, 30], [100, 100, 100]).rate_at(10), 3)
    0.2
    """

    # The change of the rate per tenfold increase of x.
    slope: Estimate
    # The rate at x = 1; None where no line was fitted.
    intercept: float | None
    # The share of the weighted variance of the rates that the line explains; None where no line was fitted, or all rates are equal.
    r_squared: float | None
    # Two-sided, of "there is no trend"; None where no line was fitted.
    p_value: Share | None = None
    # The same if rates also vary around a logistic curve, as those of models do from training to training, as much as they do here.
    p_value_with_spread: Share | None = None
    # The variance around the nearer curve as a multiple of that of the trials, and the p-value of one this large.
    dispersion: float | None = None
    lack_of_fit: Share | None = None

    def rate_at(self, x: float) -> float | None:
        """The rate on the line at x; None where no line was fitted."""
        if self.intercept is None or self.slope.value is None:
            return None
        return self.intercept + self.slope.value * math.log10(x)


class _Points(NamedTuple):
    """Rates at several places, which are log10 of x, and the share of each cluster in each of them."""

    place: FloatArray
    rate: FloatArray
    trials: FloatArray
    # (clusters, points): the share of a point's trials that are in a cluster; None where each trial is its own cluster.
    shares: FloatArray | None

    @property
    def worth(self) -> FloatArray:
        """The number of independent trials that the rate at each place is worth."""
        return self.trials if self.shares is None else 1.0 / np.sum(self.shares**2, axis=0)


def log_linear_trend(
    x: Sequence[float],
    successes: Sequence[int],
    trials: Sequence[int],
    *,
    clusters: Sequence[ArrayLike] | None = None,
    trained_apart: bool = False,
    confidence: float = 0.95,
    assumptions: Sequence[str] = (),
) -> Trend:
    """Fit the rates successes / trials to log10(x), each weighted by its trials; the slope is the change of the rate per tenfold x.

    `clusters` has one row per point, with the cluster of each of its trials; a label means the same cluster at all points. Trials of
    one cluster then count as agreeing with each other, within a point and, where that makes the slope less certain, across points.
    Without it each trial is independent. With `trained_apart` each point is a separately trained model, whose rate varies from
    training to training, so the spread around the logistic curve counts wherever it is the larger error. With fewer than three
    different x no line is fitted.

    >>> trend = log_linear_trend([1, 10, 100], [10, 20, 30], [100, 100, 100])
    >>> round(trend.slope.value, 3), round(trend.r_squared, 3), round(trend.p_value, 4)
    (0.1, 1.0, 0.0006)
    >>> log_linear_trend([1, 10], [1, 2], [10, 10]).slope.status
    'not_measured'
    """
    level = checked_confidence(confidence)
    points = _checked(x, successes, trials, clusters)
    place, rate, weight = points.place, points.rate, points.trials
    different = len(np.unique(place))
    if different < FEWEST_POINTS:
        return Trend(slope=_not_measured(different, int(weight.sum())), intercept=None, r_squared=None)
    middle, mean = np.average(place, weights=weight), float(np.average(rate, weights=weight))
    # The derivative of the slope by each rate.
    parts = weight * (place - middle) / float(np.sum(weight * (place - middle) ** 2))
    slope = float(parts @ rate)
    residual = rate - mean - slope * (place - middle)
    spread, dispersion, lack_of_fit = _spread(points, parts, residual)
    counted = dispersion if lack_of_fit < POOR_FIT else 0.0
    error = spread if trained_apart else spread._replace(dispersion=counted)
    total = float(np.sum(weight * (rate - mean) ** 2))
    assumed = (_VARIES if trained_apart else _SMOOTH, *assumptions)
    return Trend(
        slope=_slope_estimate(slope, error.half_width(1.0 - level), level, points, lack_of_fit, assumed),
        intercept=mean - slope * float(middle),
        r_squared=None if total <= 1e-15 else 1.0 - float(np.sum(weight * residual**2)) / total,
        p_value=error.p_value(slope),
        p_value_with_spread=spread.p_value(slope),
        dispersion=dispersion,
        lack_of_fit=lack_of_fit,
    )


def _spread(points: _Points, parts: FloatArray, residual: FloatArray) -> tuple[_SlopeError, float, float]:
    """The error of the slope if rates vary around a logistic curve; the dispersion around the nearer curve, and its p-value."""
    freedom = len(points.place) - 2
    around_logistic = _around_logistic(points)
    nearest = min(around_logistic, _around_line(points, residual))
    error = _SlopeError(points, parts, freedom, around_logistic / freedom)
    return error, nearest / freedom, _chance_of_more(freedom, nearest)


def _slope_estimate(
    slope: float,
    half: float,
    level: float,
    points: _Points,
    lack_of_fit: float,
    assumptions: tuple[str, ...],
) -> Estimate:
    low, high = slope - half, slope + half
    poor = f"the rates are further from a smooth curve than their trials explain (p = {lack_of_fit:.1g})"
    return Estimate(
        method=_METHOD,
        status="measured",
        value=slope,
        low=low,
        high=high,
        confidence=level,
        n=int(points.trials.sum()),
        statement=f"the rate changes by {100 * slope:+.2f} percentage points (between {100 * low:+.2f} and {100 * high:+.2f}) per "
        f"tenfold increase, over {len(np.unique(points.place))} points",
        assumptions=(_ALONE if points.shares is None else _ALIKE, *assumptions),
        warnings=(poor,) if lack_of_fit < POOR_FIT else (),
    )


class _SlopeError(NamedTuple):
    """The standard error of a slope, and what it depends on."""

    points: _Points
    # The derivative of the slope by each rate.
    parts: FloatArray
    freedom: int
    # The variance of the rates around the curve, as a multiple of that of their trials; 0 where it does not count.
    dispersion: float

    def half_width(self, outside: float) -> float:
        """Half the width of an interval that misses with probability `outside`."""
        from scipy.special import ndtri, stdtrit

        z = -float(ndtri(outside / 2))
        # The lower tail keeps a small probability exact; 1 minus half of it would round it away.
        t = -float(stdtrit(self.freedom, outside / 2))
        return self._standard_error(z) * max(z, t * math.sqrt(self.dispersion))

    def p_value(self, slope: float) -> float:
        """The smallest probability of a miss at which the interval excludes 0."""
        low, high = _LEAST, 1.0
        if abs(slope) > self.half_width(low):
            return low
        while high > low * (1 + 1e-9):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if abs(slope) > self.half_width(middle) else (middle, high)
        return high

    def _standard_error(self, z: float) -> float:
        points, worth = self.points, self.points.worth
        # Agresti and Coull (1998): a rate of 0 of n does not prove a rate of 0, so its variance is not 0 either.
        towards = (worth * points.rate + z**2 / 2) / (worth + z**2)
        moved = self.parts * np.sqrt(towards * (1 - towards))
        variance = float(np.sum(moved**2 / worth))
        if points.shares is not None:
            # Whatever the correlation across points is, the variance is between those at correlations of 0 and 1.
            variance = max(variance, float(np.sum((points.shares @ moved) ** 2)))
        return math.sqrt(variance)


def _with_added(points: _Points) -> tuple[FloatArray, FloatArray]:
    """Trials and rates with half a success and half a failure added to each."""
    trials = points.worth + 2 * _ADDED
    return trials, (points.worth * points.rate + _ADDED) / trials


def _around_line(points: _Points, residual: FloatArray) -> float:
    """Pearson's chi-squared of the rates around the line."""
    trials, rate = _with_added(points)
    return float(np.sum(trials * residual**2 / (rate * (1 - rate))))


def _around_logistic(points: _Points) -> float:
    """Pearson's chi-squared of the rates around the logistic curve in log10 of x that fits them best."""
    from scipy.special import expit

    trials, rate = _with_added(points)
    design = np.stack([np.ones_like(points.place), points.place - points.place.mean()], axis=1)
    start = float(np.average(rate, weights=trials))
    curve = np.array([math.log(start / (1 - start)), 0.0])

    def likelihood(candidate: FloatArray) -> float:
        logits = design @ candidate
        return float(np.sum(trials * (rate * logits - np.logaddexp(0.0, logits))))

    for _ in range(_STEPS):
        fitted = np.clip(expit(design @ curve), _LEAST, 1 - _LEAST)
        score = design.T @ (trials * (rate - fitted))
        step = np.linalg.solve((design.T * (trials * fitted * (1 - fitted))) @ design, score)
        # A full Newton step can overshoot; halving it often enough cannot.
        while likelihood(curve + step) < likelihood(curve) - 1e-9 and np.abs(step).max() > 1e-12:
            step /= 2
        curve = curve + step
        if np.abs(step).max() < 1e-10:
            break
    fitted = np.clip(expit(design @ curve), _LEAST, 1 - _LEAST)
    return float(np.sum(trials * (rate - fitted) ** 2 / (fitted * (1 - fitted))))


def _chance_of_more(freedom: int, chi_squared: float) -> float:
    from scipy.special import chdtrc

    return float(chdtrc(freedom, chi_squared))


def _checked(
    x: Sequence[float],
    successes: Sequence[int],
    trials: Sequence[int],
    clusters: Sequence[ArrayLike] | None,
) -> _Points:
    at, hits, of = (np.asarray(values, dtype=np.float64) for values in (x, successes, trials))
    if not (at.ndim == hits.ndim == of.ndim == 1 and len(at) == len(hits) == len(of)):
        raise InputError(
            f"a trend needs as many x as successes and trials, got {at.shape}, {hits.shape} and {of.shape}; give one of each per point"
        )
    if not np.all(np.isfinite(at) & (at > 0)):
        raise InputError(
            f"x must be above 0, because its logarithm is taken, got {list(x)}; leave other points out"
        )
    if not np.all((of >= 1) & (hits >= 0) & (hits <= of)):
        raise InputError(
            "each point needs at least one trial and no more successes than trials; leave empty points out"
        )
    return _Points(np.log10(at), hits / of, of, None if clusters is None else _shares(of, clusters))


def _shares(trials: FloatArray, clusters: Sequence[ArrayLike]) -> FloatArray:
    rows = [np.asarray(row) for row in clusters]
    if [len(row) for row in rows] != trials.tolist():
        raise InputError(
            f"a trend needs the cluster of each trial, got {[len(row) for row in rows]} for {trials.astype(int).tolist()} trials"
        )
    if not rows:
        return np.zeros((0, 0))
    of_all, labels = np.unique(np.concatenate(rows), return_inverse=True)
    point = np.repeat(np.arange(len(rows)), trials.astype(np.int64))
    counts = np.zeros((len(of_all), len(rows)))
    np.add.at(counts, (labels, point), 1.0)
    return np.asarray(counts / trials)


def _not_measured(different: int, n: int) -> Estimate:
    return Estimate.not_measured(
        _METHOD, f"no trend: it takes {FEWEST_POINTS} different values of x, and there are {different}", n=n
    )
