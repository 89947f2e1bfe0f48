"""How does a rate grow with the logarithm of something, such as model size, repetitions or context? A straight line, with its error."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.errors import InputError
from coalmine.records import Estimate
from coalmine.statistics.score_arrays import checked_confidence

FEWEST_POINTS = 3
_METHOD = "least squares on log10, weighted by trials"
_ASSUMPTIONS = (
    "the rate is a straight line in log10 of x, up to noise of the same size at each point for each trial",
    "trials are independent of each other",
)
_FloatArray = NDArray[np.float64]


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """The line rate = intercept + slope * log10(x), fitted to rates at several x."""

    # By how much the rate grows where x grows tenfold.
    slope: Estimate
    # The rate at x = 1; None where no line was fitted.
    intercept: float | None
    # Share of the weighted variance of the rates that the line explains; None where no line was fitted, or all rates are equal.
    r_squared: float | None

    def rate_at(self, x: float) -> float | None:
        """What the line says at x; None where no line was fitted."""
        if self.intercept is None or self.slope.value is None:
            return None
        return self.intercept + self.slope.value * math.log10(x)


def log_linear_trend(
    x: Sequence[float], successes: Sequence[int], trials: Sequence[int], *, confidence: float = 0.95
) -> Trend:
    """Fit the rates successes / trials to log10(x), each weighted by its trials.

    The interval of the slope is the wider of two: the one by the spread of the points around the line (Student's t with as many
    degrees of freedom as points less two), and the one by the binomial noise of each rate. The first alone would have no width where
    points happen to lie on a line, such as where nothing was recited at all. Fewer than three different x give no line.

    >>> trend = log_linear_trend([1, 10, 100], [10, 20, 30], [100, 100, 100])
    >>> round(trend.slope.value, 3), round(trend.r_squared, 3)
    (0.1, 1.0)
    >>> log_linear_trend([1, 10], [1, 2], [10, 10]).slope.status
    'not_measured'
    """
    checked_confidence(confidence)
    place, rate, weight = _checked(x, successes, trials)
    different = len(np.unique(place))
    if different < FEWEST_POINTS:
        return Trend(slope=_not_measured(different, int(weight.sum())), intercept=None, r_squared=None)
    middle = np.average(place, weights=weight)
    spread = float(np.sum(weight * (place - middle) ** 2))
    slope = float(np.sum(weight * (place - middle) * rate)) / spread
    mean = float(np.average(rate, weights=weight))
    residual = rate - mean - slope * (place - middle)
    half = max(
        _by_residuals(residual, weight, spread, confidence),
        _by_counts(place - middle, rate, weight, spread, confidence),
    )
    total = float(np.sum(weight * (rate - mean) ** 2))
    estimate = Estimate(
        method=_METHOD,
        status="measured",
        value=slope,
        low=slope - half,
        high=slope + half,
        confidence=confidence,
        n=int(weight.sum()),
        statement=f"the rate changes by {100 * slope:+.2f} points (between {100 * (slope - half):+.2f} and "
        f"{100 * (slope + half):+.2f}) for ten times as much, over {different} points",
        assumptions=_ASSUMPTIONS,
    )
    r_squared = None if total <= 1e-15 else 1.0 - float(np.sum(weight * residual**2)) / total
    return Trend(slope=estimate, intercept=mean - slope * float(middle), r_squared=r_squared)


def _by_residuals(residual: _FloatArray, weight: _FloatArray, spread: float, confidence: float) -> float:
    from scipy.special import stdtrit

    freedom = len(residual) - 2
    variance = float(np.sum(weight * residual**2)) / freedom
    return float(stdtrit(freedom, 0.5 + confidence / 2)) * math.sqrt(variance / spread)


def _by_counts(
    place: _FloatArray, rate: _FloatArray, weight: _FloatArray, spread: float, confidence: float
) -> float:
    from scipy.special import ndtri

    z = float(ndtri(0.5 + confidence / 2))
    # Agresti and Coull: a rate of 0 of n is no proof of 0, so that its variance is not 0 either.
    towards = (weight * rate + z**2 / 2) / (weight + z**2)
    variances = towards * (1 - towards) / weight
    return z * math.sqrt(float(np.sum((weight * place) ** 2 * variances))) / spread


def _checked(
    x: Sequence[float], successes: Sequence[int], trials: Sequence[int]
) -> tuple[_FloatArray, _FloatArray, _FloatArray]:
    at, hits, of = (np.asarray(values, dtype=np.float64) for values in (x, successes, trials))
    if not (at.ndim == hits.ndim == of.ndim == 1 and len(at) == len(hits) == len(of)):
        raise InputError(
            f"a trend needs as many x as successes and trials, got {at.shape}, {hits.shape} and {of.shape}; give one of each a point"
        )
    if not np.all(np.isfinite(at) & (at > 0)):
        raise InputError(
            f"x must be above 0, because its logarithm is taken, got {list(x)}; leave other points out"
        )
    if not np.all((of >= 1) & (hits >= 0) & (hits <= of)):
        raise InputError(
            "each point needs at least one trial and no more successes than trials; leave empty points out"
        )
    return np.log10(at), hits / of, of


def _not_measured(different: int, n: int) -> Estimate:
    return Estimate.not_measured(
        _METHOD, f"no trend: it needs {FEWEST_POINTS} different x, and there are {different}", n=n
    )
