"""Straight lines through rates in the logarithm of x, such as model size, repetitions or context, with intervals and p-values.

The slope is that of weighted least squares, as in Quantifying Memorization Across Neural Language Models (Carlini et al., 2022,
arXiv:2202.07646). Each rate is binomial, with as many trials as its clusters are worth, and that is the error of the slope as long
as the rates lie on a smooth curve: the line itself, or a logistic one, because rates of 0.05, 0.2 and 0.5 are far from a line and
yet grow smoothly. Where they are further from both than their trials explain, that spread is its error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.errors import InputError
from coalmine.records import Estimate
from coalmine.statistics.score_arrays import checked_confidence

FEWEST_POINTS = 3
_METHOD = "binomial line on log10, weighted by trials"
_ALIKE = "trials of one cluster may all agree, clusters are independent of each other"
_ALONE = "trials are independent of each other"
_SMOOTH = "rates lie on a smooth curve in log10 of x, unless they are further from a line and a logistic one than their trials explain"
_VARIES = "rates vary around a logistic curve in log10 of x from training to training, as much at one x as at another"
# Below this, rates are further from both curves than their trials explain, and the spread counts.
POOR_FIT = 0.01
# This much of a success and of a failure is added at each point, so that there is a curve where a rate is 0 or 1.
_ADDED = 0.5
_STEPS = 100
# No p-value is given as smaller than this, and no rate of the curve is closer to 0 or 1.
_LEAST = 1e-12
_FloatArray = NDArray[np.float64]


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """The line rate = intercept + slope * log10(x), fitted to rates at several x."""

    # By how much the rate grows where x grows tenfold.
    slope: Estimate
    # The rate at x = 1; None where no line was fitted.
    intercept: float | None
    # Share of the weighted variance of the rates that the line explains; None where no line was fitted, or all rates are equal.
    r_squared: float | None
    # Two-sided, of "there is no trend"; None where no line was fitted.
    p_value: float | None = None
    # The same if rates also vary around a logistic curve, as those of models do from training to training, by as much as is seen here.
    p_value_with_spread: float | None = None
    # The variance around the nearer curve over that of the trials, and how often it would be as large by chance.
    dispersion: float | None = None
    lack_of_fit: float | None = None

    def rate_at(self, x: float) -> float | None:
        """What the line says at x; None where no line was fitted."""
        if self.intercept is None or self.slope.value is None:
            return None
        return self.intercept + self.slope.value * math.log10(x)


class _Points(NamedTuple):
    """Rates at several places, and how much of each cluster is in each."""

    place: _FloatArray
    rate: _FloatArray
    trials: _FloatArray
    # (clusters, points): the share of a point's trials that are of a cluster; None where each trial is a cluster of its own.
    shares: _FloatArray | None

    @property
    def worth(self) -> _FloatArray:
        """How many independent trials the rate at each place is worth."""
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
    """Fit the rates successes / trials to log10(x), each weighted by its trials.

    The interval of the slope is that of the binomial error of each rate; where the rates are further from both a line and a logistic
    curve than that explains (1% level), it is at least that of the spread around the nearer one, by Student's t with as many degrees
    of freedom as points less two. `clusters` has one row per point, with the cluster of each of its trials; a label is the same cluster at all
    points. Trials of one cluster then count as agreeing with each other, within a point and, where that makes the slope less
    certain, across points. Without it each trial is independent. With `trained_apart` each point is a model of its own, whose rate
    varies from training to training, so the spread around the logistic curve counts wherever it is the larger error. Fewer than three different x give no line.

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
    middle = np.average(place, weights=weight)
    # By how much the slope moves with each rate.
    parts = weight * (place - middle) / float(np.sum(weight * (place - middle) ** 2))
    slope = float(parts @ rate)
    mean = float(np.average(rate, weights=weight))
    residual = rate - mean - slope * (place - middle)
    freedom = len(place) - 2
    around_logistic = _around_logistic(points)
    nearest = min(around_logistic, _around_line(points, residual))
    lack_of_fit = _chance_of_more(freedom, nearest)
    spread = _Error(points, parts, freedom, around_logistic / freedom)
    error = spread._replace(dispersion=nearest / freedom if lack_of_fit < POOR_FIT else 0.0)
    if trained_apart:
        error = spread
    half = error.half_width(1.0 - level)
    total = float(np.sum(weight * (rate - mean) ** 2))
    poor = f"the rates are further from a smooth curve than their trials explain (p = {lack_of_fit:.1g})"
    estimate = Estimate(
        method=_METHOD,
        status="measured",
        value=slope,
        low=slope - half,
        high=slope + half,
        confidence=level,
        n=int(weight.sum()),
        statement=f"the rate changes by {100 * slope:+.2f} points (between {100 * (slope - half):+.2f} and "
        f"{100 * (slope + half):+.2f}) for ten times as much, over {different} points",
        assumptions=(
            _ALONE if points.shares is None else _ALIKE,
            _VARIES if trained_apart else _SMOOTH,
            *assumptions,
        ),
        warnings=(poor,) if lack_of_fit < POOR_FIT else (),
    )
    return Trend(
        slope=estimate,
        intercept=mean - slope * float(middle),
        r_squared=None if total <= 1e-15 else 1.0 - float(np.sum(weight * residual**2)) / total,
        p_value=error.p_value(slope),
        p_value_with_spread=spread.p_value(slope),
        dispersion=nearest / freedom,
        lack_of_fit=lack_of_fit,
    )


class _Error(NamedTuple):
    """What decides how far off a slope may be."""

    points: _Points
    # By how much the slope moves with each rate.
    parts: _FloatArray
    freedom: int
    # How much the rates vary around the curve, as a multiple of the variance of their trials; 0 where that does not count.
    dispersion: float

    def half_width(self, outside: float) -> float:
        """How far an interval reaches to either side with this share outside of it."""
        from scipy.special import ndtri, stdtrit

        z = -float(ndtri(outside / 2))
        # The complement keeps a small share small: half of it below, and not 1 less half of it.
        t = -float(stdtrit(self.freedom, outside / 2))
        return self._standard_error(z) * max(z, t * math.sqrt(self.dispersion))

    def p_value(self, slope: float) -> float:
        """The smallest share outside at which the interval does not hold 0."""
        low, high = _LEAST, 1.0
        if abs(slope) > self.half_width(low):
            return low
        while high > low * (1 + 1e-9):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if abs(slope) > self.half_width(middle) else (middle, high)
        return high

    def _standard_error(self, z: float) -> float:
        points = self.points
        # Agresti and Coull: a rate of 0 of n is not proof of 0, so its variance is not 0 either.
        towards = (points.worth * points.rate + z**2 / 2) / (points.worth + z**2)
        moved = self.parts * np.sqrt(towards * (1 - towards))
        variance = float(np.sum(moved**2 / points.worth))
        if points.shares is not None:
            # Whatever the correlation across points is, the variance lies between that of none and that of 1.
            variance = max(variance, float(np.sum((points.shares @ moved) ** 2)))
        return math.sqrt(variance)


def _with_added(points: _Points) -> tuple[_FloatArray, _FloatArray]:
    """Trials and rates, with part of a success and of a failure added to each."""
    trials = points.worth + 2 * _ADDED
    return trials, (points.worth * points.rate + _ADDED) / trials


def _around_line(points: _Points, residual: _FloatArray) -> float:
    """Pearson's chi-squared of the rates around the line."""
    trials, rate = _with_added(points)
    return float(np.sum(trials * residual**2 / (rate * (1 - rate))))


def _around_logistic(points: _Points) -> float:
    """Pearson's chi-squared of the rates around the logistic curve in log10 of x that is nearest to them."""
    from scipy.special import expit

    trials, rate = _with_added(points)
    design = np.stack([np.ones_like(points.place), points.place - points.place.mean()], axis=1)
    start = float(np.average(rate, weights=trials))
    curve = np.array([math.log(start / (1 - start)), 0.0])

    def likelihood(candidate: _FloatArray) -> float:
        logits = design @ candidate
        return float(np.sum(trials * (rate * logits - np.logaddexp(0.0, logits))))

    for _ in range(_STEPS):
        fitted = np.clip(expit(design @ curve), _LEAST, 1 - _LEAST)
        score = design.T @ (trials * (rate - fitted))
        step = np.linalg.solve((design.T * (trials * fitted * (1 - fitted))) @ design, score)
        # A full step can overshoot; half of it, and half again, cannot for ever.
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


def _shares(trials: _FloatArray, clusters: Sequence[ArrayLike]) -> _FloatArray:
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
        _METHOD, f"no trend: it needs {FEWEST_POINTS} different x, and there are {different}", n=n
    )
