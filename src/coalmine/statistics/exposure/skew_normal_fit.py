"""The maximum-likelihood fit of a skew-normal distribution to a sample of scores.

The search is over the mean, the logarithm of the standard deviation and a shape coordinate u, all of the standardized sample.
Location and scale would be the textbook choice, but there the likelihood is stationary at shape 0 for every sample, and flat
around it. In the mean and the standard deviation, with shape = cbrt(u) + u, it is curved like a bowl there, and the search takes
some ten steps for shapes of 0 and of 40 alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from coalmine.errors import NotMeasurableError
from coalmine.statistics.exposure.minimization import minimize_bounded
from coalmine.statistics.exposure.skew_normal import SkewNormal
from coalmine.statistics.scores import FloatArray, sample_array

FEWEST_SCORES = 20
# The likelihood of some samples keeps rising with the shape, towards a half-normal distribution, and has no maximum. The search
# stops here then, and such a curve must not be extrapolated from.
MOST_EXTREME_SHAPE = 100.0
# A larger sample is fitted in groups first; with this many groups, the grouping hardly changes a fit.
_GROUPS = 2048
# One over the second derivatives of the loss at the normal distribution: those for the mean and the log deviation are known,
# and that for u is of this order for small and for large shapes.
_INVERSE_CURVATURE = np.array([1.0, 0.5, 30.0])
_MEAN_OF_HALF_NORMAL = math.sqrt(2.0 / math.pi)


def fit_skew_normal(scores: ArrayLike) -> SkewNormal:
    """The maximum-likelihood skew-normal of a sample of scores (bits), with the shape within -100 to 100.

    Deterministic. Raises NotMeasurableError for fewer than 20 scores or when all are equal.

    >>> from coalmine.randomness import arrays
    >>> fitted = fit_skew_normal(arrays(0, "doctest").normal(30.0, 4.0, size=20_000))
    >>> abs(fitted.cdf(26.0) - 0.1587) < 0.01
    True
    """
    array = sample_array(scores, "sample scores")
    sample = WeightedSample.of(array)
    if len(array) <= _GROUPS:
        return sample.fit()
    return sample.fit(start=WeightedSample.of(*group_scores(array)).fit())


def group_scores(scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """At most 2,048 groups of neighboring scores: the mean of each (bits), and how many scores are in it.

    The groups are equally wide. Over a range of some ten standard deviations they change the variance by less than one
    part in 100,000, and a refit costs the same for 10^4 scores and for 10^7.

    >>> group_scores(np.array([1.0, 1.0, 3.0]))
    (array([1., 3.]), array([2., 1.]))
    """
    least, most = float(scores.min()), float(scores.max())
    if len(scores) <= _GROUPS or least == most:
        values, counts = np.unique(scores, return_counts=True)
        return values, counts.astype(np.float64)
    group = np.minimum(((scores - least) * (_GROUPS / (most - least))).astype(np.int64), _GROUPS - 1)
    counts = np.bincount(group, minlength=_GROUPS)
    taken = counts > 0
    sums = np.bincount(group, weights=scores - least, minlength=_GROUPS)
    return least + sums[taken] / counts[taken], counts[taken].astype(np.float64)


@dataclass(frozen=True)
class WeightedSample:
    """Scores in standard units, each with a weight; `mean` and `deviation` (bits) convert back to scores."""

    units: FloatArray
    weights: FloatArray
    mean: float
    deviation: float

    @classmethod
    def of(cls, scores: FloatArray, weights: FloatArray | None = None) -> WeightedSample:
        """Standardize scores, each of which counts `weights` times (once by default)."""
        counted = np.ones_like(scores) if weights is None else weights
        total = float(counted.sum())
        if total < FEWEST_SCORES:
            raise NotMeasurableError(
                f"a curve through {total:.0f} scores shows nothing about their tail; "
                f"give at least {FEWEST_SCORES} sample scores"
            )
        mean = _dot(counted, scores) / total
        deviation = math.sqrt(_dot(counted, (scores - mean) ** 2) / total)
        # Rounding alone leaves a deviation of this order when all scores are equal.
        if deviation <= 1e-12 * max(abs(mean), np.finfo(float).tiny):
            raise NotMeasurableError(
                f"all {total:,.0f} sample scores are equal ({mean:g} bits), so there is no distribution to fit; "
                "check that the samples differ and that the model scored each of them"
            )
        return cls((scores - mean) / deviation, counted, mean, deviation)

    def fit(self, start: SkewNormal | None = None, *, tolerance: float = 1e-7) -> SkewNormal:
        """The maximum-likelihood skew-normal, searched from `start` only, or from four starting points.

        The search stops when no component of the gradient of the mean log-likelihood, in standard units, exceeds
        `tolerance`.
        """
        if start is not None:
            return self._curve(self._search(self._coordinates(start), tolerance)[0])
        skewness = _dot(self.weights, self.units**3) / float(self.weights.sum())
        side = -1.0 if skewness < 0.0 else 1.0
        # The moments are near the maximum if the scores are skew-normal; if not, the likelihood can have other maxima on
        # the other side of shape 0 and towards the half-normals.
        shapes = (side * max(_shape_of_skewness(abs(skewness)), 0.3), -side, 10.0, -10.0)
        searches = [
            self._search(np.array([0.0, 0.0, _coordinate_of_shape(shape)]), tolerance) for shape in shapes
        ]
        return self._curve(min(searches, key=lambda search: search[1])[0])

    def _search(self, start: FloatArray, tolerance: float) -> tuple[FloatArray, float]:
        edge = _coordinate_of_shape(MOST_EXTREME_SHAPE)
        shares = self.weights / self.weights.sum()
        return minimize_bounded(
            lambda coordinates: _loss_and_gradient(coordinates, self.units, shares),
            start,
            np.array([(-10.0, 10.0), (-5.0, 5.0), (-edge, edge)]),
            _INVERSE_CURVATURE,
            tolerance,
        )

    def _curve(self, coordinates: FloatArray) -> SkewNormal:
        location, scale, shape, _ = _parameters(coordinates)
        return SkewNormal(self.mean + self.deviation * location, self.deviation * scale, shape)

    def _coordinates(self, curve: SkewNormal) -> FloatArray:
        lean, spread = _lean_and_spread(curve.shape)
        mean = curve.location + curve.scale * _MEAN_OF_HALF_NORMAL * lean
        deviation = curve.scale * spread
        return np.array(
            [
                (mean - self.mean) / self.deviation,
                math.log(deviation / self.deviation),
                _coordinate_of_shape(curve.shape),
            ]
        )


def _loss_and_gradient(
    coordinates: FloatArray, units: FloatArray, shares: FloatArray
) -> tuple[float, FloatArray]:
    """Minus the mean log-likelihood (up to a constant) and its gradient, at (mean, log deviation, u)."""
    from scipy.special import erfcx

    location, scale, shape, shape_slope = _parameters(coordinates)
    z = (units - location) / scale
    # One erfcx gives both log Phi and phi / Phi; beyond 35 it would overflow, and Phi is 1 to the last digit.
    t = np.minimum(shape * z, 35.0)
    scaled = erfcx(t * -math.sqrt(0.5))
    log_phi = np.log(0.5 * scaled) - 0.5 * t * t
    hazard = _MEAN_OF_HALF_NORMAL / scaled  # phi(t) / Phi(t)
    loss = math.log(scale) - _dot(shares, log_phi - 0.5 * z * z)
    weighted = shares * hazard
    hazard_z = _dot(weighted, z)
    # The gradient by location, log scale and shape, ...
    by_location = (_dot(shares, z) - shape * float(weighted.sum())) / scale
    by_log_scale = -1.0 + _dot(shares, z * z) - shape * hazard_z
    # ... and by the three coordinates.
    lean, spread = _lean_and_spread(shape)
    lean_slope = (1.0 + shape * shape) ** -1.5
    log_scale_slope = (_MEAN_OF_HALF_NORMAL / spread) ** 2 * lean * lean_slope
    location_slope = -_MEAN_OF_HALF_NORMAL * scale * (log_scale_slope * lean + lean_slope)
    by_shape = hazard_z + by_location * location_slope + by_log_scale * log_scale_slope
    by_log_deviation = by_location * (location - coordinates[0]) + by_log_scale
    return loss, -np.array([by_location, by_log_deviation, by_shape * shape_slope])


def _dot(left: FloatArray, right: FloatArray) -> float:
    """The sum of products, without the linear algebra library, whose rounding depends on its number of threads."""
    return float((left * right).sum())


def _parameters(coordinates: FloatArray) -> tuple[float, float, float, float]:
    """Location, scale, shape, and the slope of the shape in u."""
    mean, log_deviation, u = (float(coordinate) for coordinate in coordinates)
    root = math.copysign(abs(u) ** (1.0 / 3.0), u)
    shape = root + u
    # The true slope is infinite at 0, where the factor it multiplies is 0.
    slope = 1.0 / (3.0 * max(root * root, 1e-8)) + 1.0
    lean, spread = _lean_and_spread(shape)
    scale = math.exp(log_deviation) / spread
    return mean - scale * _MEAN_OF_HALF_NORMAL * lean, scale, shape, slope


def _lean_and_spread(shape: float) -> tuple[float, float]:
    """The lean, shape / sqrt(1 + shape^2), and the standard deviation in units of the scale."""
    lean = shape / math.hypot(1.0, shape)
    return lean, math.sqrt(1.0 - (_MEAN_OF_HALF_NORMAL * lean) ** 2)


def _shape_of_skewness(skewness: float) -> float:
    """The shape that has this skewness, for 0 <= skewness; a skew-normal's skewness stays below 0.9953."""
    c = (2.0 * min(skewness, 0.95) / (4.0 - math.pi)) ** (1.0 / 3.0)
    lean = c / math.sqrt(1.0 + c * c) / _MEAN_OF_HALF_NORMAL
    return float(lean / math.sqrt(1.0 - lean * lean))


def _coordinate_of_shape(shape: float) -> float:
    """The u with cbrt(u) + u = shape: Cardano's formula for root^3 + root = shape has one real root."""
    root = 2.0 / math.sqrt(3.0) * math.sinh(math.asinh(1.5 * math.sqrt(3.0) * shape) / 3.0)
    return float(root**3)
