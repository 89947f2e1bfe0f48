"""The skew-normal distribution, accurate far out in its lower tail.

Azzalini, A Class of Distributions which Includes the Normal Ones, Scandinavian Journal of Statistics 12, 1985.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import ArrayLike

from coalmine.errors import InputError
from coalmine.statistics.scores import FloatArray

_LOG_2 = math.log(2.0)
# With the pole of the integrand at least this far from the range of integration, Gauss-Legendre converges fast.
_FAR = 2.0
# exp(-36) is below the rounding error of a double, so nothing beyond it is worth a node.
_CUTOFF = 36.0
_NODES = 28
# Points at a time, which bounds the memory of the quadrature to a few megabytes.
_BLOCK = 8192


@dataclass(frozen=True)
class SkewNormal:
    """The distribution with density 2/scale phi(z) Phi(shape z), where z = (x - location) / scale; x in bits.

    Its lower tail is computed in log space and without cancellation, so it stays accurate tens of scales below the
    location, where textbook formulas (a difference of two nearly equal numbers) give 0, noise or a negative number.

    >>> SkewNormal(30.0, 4.0, 0.0).cdf(30.0)
    0.5
    >>> round(SkewNormal(30.0, 4.0, 2.0).exposure_bits(-130.0), 1)
    5786.4
    """

    location: float
    scale: float
    shape: float

    def __post_init__(self) -> None:
        """Reject parameters that are not those of a distribution."""
        if not (math.isfinite(self.location) and math.isfinite(self.shape) and 0.0 < self.scale < math.inf):
            raise InputError(
                "a skew-normal distribution needs a finite location and shape and a positive scale, "
                f"got {self.location}, {self.shape} and {self.scale}; check the parameters"
            )

    @overload
    def log_pdf(self, x: float) -> float: ...
    @overload
    def log_pdf(self, x: ArrayLike) -> FloatArray: ...
    def log_pdf(self, x: ArrayLike) -> float | FloatArray:
        """The natural logarithm of the density at `x` (bits); a float for a number and an array for an array.

        >>> round(SkewNormal(0.0, 1.0, 0.0).log_pdf(0.0), 4)
        -0.9189
        """
        from scipy.special import log_ndtr

        z = self._standardized(x)
        constant = _LOG_2 - 0.5 * math.log(2.0 * math.pi) - math.log(self.scale)
        return _plain(constant - 0.5 * z * z + log_ndtr(self.shape * z))

    @overload
    def log_cdf(self, x: float) -> float: ...
    @overload
    def log_cdf(self, x: ArrayLike) -> FloatArray: ...
    def log_cdf(self, x: ArrayLike) -> float | FloatArray:
        """The natural logarithm of the probability of at most `x` bits, accurate far into the lower tail.

        >>> round(SkewNormal(0.0, 1.0, -3.0).log_cdf(-40.0), 3)
        -803.915
        """
        # Beyond 1e100 scales the square no longer fits in a double, and the difference no longer matters.
        z = np.clip(self._standardized(x), -1e100, 1e100)
        flat = z.ravel()
        blocks = [
            _standard_log_cdf(flat[start : start + _BLOCK], self.shape)
            for start in range(0, flat.size, _BLOCK)
        ]
        return _plain(np.concatenate(blocks).reshape(z.shape) if blocks else np.zeros(z.shape))

    @overload
    def cdf(self, x: float) -> float: ...
    @overload
    def cdf(self, x: ArrayLike) -> FloatArray: ...
    def cdf(self, x: ArrayLike) -> float | FloatArray:
        """The probability of at most `x` bits.

        >>> SkewNormal(0.0, 1.0, 1.0).cdf(0.0)
        0.25
        """
        return _plain(np.exp(self.log_cdf(x)))

    @overload
    def exposure_bits(self, score: float) -> float: ...
    @overload
    def exposure_bits(self, score: ArrayLike) -> FloatArray: ...
    def exposure_bits(self, score: ArrayLike) -> float | FloatArray:
        """The exposure in bits of a canary with this score: -log2 of the probability of at most `score` bits.

        The Secret Sharer (Carlini et al., 2019, arXiv:1802.08232) integrates the density from 0, because a log-perplexity is
        never negative; here the integral starts at minus infinity. The two differ by -log2(1 - cdf(0) / cdf(score)) bits,
        which is negligible except for a canary of nearly 0 bits. There the integral from 0 vanishes and would give an
        unlimited exposure, which shows nothing about the model; the one used here is finite and never larger.

        >>> SkewNormal(30.0, 4.0, 0.0).exposure_bits(30.0)
        1.0
        """
        # With abs, a probability of 1 gives 0.0 and not -0.0.
        return _plain(np.abs(np.asarray(self.log_cdf(score)) / _LOG_2))

    def _standardized(self, x: ArrayLike) -> FloatArray:
        return (np.asarray(x, dtype=np.float64) - self.location) / self.scale


def _standard_log_cdf(z: FloatArray, shape: float) -> FloatArray:
    """The logarithm of F(z; a) for location 0 and scale 1, from the lower tail with a >= 0, by sums of positive terms only.

    With h = |z| and L = F(-h; |a|), the smaller of the two lower tails, the reflections of the skew-normal give
    F(-h; -|a|) = 2 Phi(-h) - L,  F(h; |a|) = erf(h / sqrt 2) + L  and  F(h; -|a|) = 1 - L. In each, L is either added
    or at most half of what it is taken from.
    """
    from scipy.special import erf, log_ndtr

    height = np.abs(z)
    log_small = _log_lower_tail(height, abs(shape))
    below = z <= 0.0
    if shape >= 0.0:
        above = np.log(erf(height / math.sqrt(2.0)) + np.exp(log_small), where=~below, out=np.zeros_like(z))
        return np.where(below, log_small, np.minimum(above, 0.0))
    log_twice = _LOG_2 + log_ndtr(-height)
    lower = log_twice + np.log1p(-np.exp(np.minimum(log_small - log_twice, -_LOG_2)))
    return np.where(below, lower, np.log1p(-np.exp(log_small)))


def _log_lower_tail(height: FloatArray, shape: float) -> FloatArray:
    """The logarithm of F(-h; a) for h >= 0 and a >= 0.

    F(-h; a) = (h / pi) exp(-h^2 / 2) times the integral over w >= a h of exp(-w^2 / 2) / (h^2 + w^2). The integrand is
    positive, and analytic except for poles at distance h sqrt(1 + a^2) from the range: with far poles it is computed by
    quadrature, with near ones (where F is not small, so differences are harmless) by Owen's T function.
    """
    log_tail = np.empty_like(height)
    far = height * math.hypot(1.0, shape) >= _FAR
    log_tail[far] = _log_tail_by_quadrature(height[far], shape)
    log_tail[~far] = _log_tail_by_owen(height[~far], shape)
    return log_tail


def _log_tail_by_quadrature(height: FloatArray, shape: float) -> FloatArray:
    nodes, weights = _gauss_legendre()
    start = shape * height
    # The t at which start * t + t^2 / 2 reaches the cutoff, written so that nothing cancels.
    length = 2.0 * _CUTOFF / (start + np.sqrt(start * start + 2.0 * _CUTOFF))
    t = np.multiply.outer(length, nodes)  # (points, nodes)
    # The integrand times h^2 (1 + a^2), which keeps it near 1 however large h is.
    pole = (height * math.hypot(1.0, shape))[:, None]
    share = 1.0 / (1.0 + t / pole * ((2.0 * start[:, None] + t) / pole))
    # Summed row by row and not as a matrix product, whose rounding depends on the number of points.
    integral = (np.exp(-t * (start[:, None] + 0.5 * t)) * share * weights).sum(axis=1) * length
    exponent = -0.5 * pole[:, 0] ** 2
    return np.asarray(exponent + np.log(integral / (math.pi * (1.0 + shape * shape))) - np.log(height))


@functools.cache
def _gauss_legendre() -> tuple[FloatArray, FloatArray]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return 0.5 * (nodes + 1.0), 0.5 * weights  # from [-1, 1] to [0, 1]


def _log_tail_by_owen(height: FloatArray, shape: float) -> FloatArray:
    from scipy.special import erf, ndtr, owens_t

    if shape <= 1.0:
        return np.asarray(np.log(ndtr(-height) - 2.0 * owens_t(height, shape)))
    # For a steep shape the roles of h and a h are swapped, or F would be lost against Phi(-h) near h = 0.
    steep = shape * height
    return np.asarray(np.log(2.0 * owens_t(steep, 1.0 / shape) - erf(height / math.sqrt(2.0)) * ndtr(-steep)))


def _plain(array: FloatArray | np.float64) -> float | FloatArray:
    return float(array) if np.ndim(array) == 0 else np.asarray(array)
