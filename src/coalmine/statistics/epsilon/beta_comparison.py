"""The probability that a beta variable is below a line, or a curve, in another beta variable.

Order statistics of uniform draws are beta variables, and Clopper-Pearson limits are their quantiles. The exact test of a
threshold that was taken from the data comes down to P(G <= c F + d).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from coalmine.statistics.scores import FloatArray

# A function of points (pairs, nodes), for the pairs that are chosen.
_Function = Callable[[FloatArray, NDArray[np.bool_]], FloatArray]
_Curve = Callable[[FloatArray], FloatArray]

# Nodes for each of two pieces. The integrated density spans some 15 of its standard deviations, so the error is far below that of
# the tails that are cut off.
_NODES = 64
_CUT_OFF = 1e-14


class BetaPairs:
    """Pairs of independent beta variables: G with parameters (g_a, g_b), F with (f_a, f_b), all at least 0.5."""

    def __init__(self, g_a: FloatArray, g_b: FloatArray, f_a: FloatArray, f_b: FloatArray) -> None:
        self._g, self._f = _Beta(g_a, g_b), _Beta(f_a, f_b)

    def probability_below(self, factor: float, delta: float) -> FloatArray:
        """P(G <= factor F + delta) for each pair, for a factor above 0 and a delta of at least 0.

        >>> ones = np.array([1.0])
        >>> BetaPairs(ones, ones, ones, ones).probability_below(1.0, 0.0).round(9)  # two uniform variables
        array([0.5])
        >>> BetaPairs(ones, ones, ones, ones).probability_below(0.5, 0.25).round(9)
        array([0.5])
        """
        # The narrower of the two densities is integrated, against the distribution function of the wider one, which is
        # smooth at that scale.
        over_f = factor * self._f.deviation <= self._g.deviation
        result = np.empty(len(over_f))
        if over_f.any():
            f, g = self._f.some(over_f), self._g.some(over_f)
            # The function has a kink where the line leaves [0, 1].
            result[over_f] = f.expect(
                lambda u, chosen: g.some(chosen).below(factor * u + delta), (1.0 - delta) / factor
            )
        if not over_f.all():
            f, g = self._f.some(~over_f), self._g.some(~over_f)
            result[~over_f] = g.expect(lambda w, chosen: f.some(chosen).above((w - delta) / factor), delta)
        return np.clip(result, 0.0, 1.0)

    def probability_below_curve(self, curve: _Curve, inverse: _Curve) -> FloatArray:
        """P(G <= curve(F)) for each pair, for an increasing curve from [0, 1] to itself and its inverse.

        >>> pair = BetaPairs(*np.array([[40.0], [61.0], [30.0], [71.0]]))
        >>> line = pair.probability_below(1.5, 0.0), pair.probability_below_curve(lambda x: 1.5 * x, lambda x: x / 1.5)
        >>> bool(abs(line[0] - line[1])[0] < 1e-9)
        True
        """
        middle = self._f.a / (self._f.a + self._f.b)
        ends = [np.asarray(curve(np.clip(middle + side * self._f.deviation, 0.0, 1.0))) for side in (-1, 1)]
        over_f = (ends[1] - ends[0]) / 2.0 <= self._g.deviation
        result = np.empty(len(over_f))
        # In two pieces that meet at the mean, where the density is.
        if over_f.any():
            f, g = self._f.some(over_f), self._g.some(over_f)
            result[over_f] = f.expect(lambda u, chosen: g.some(chosen).below(curve(u)), f.a / (f.a + f.b))
        if not over_f.all():
            f, g = self._f.some(~over_f), self._g.some(~over_f)
            result[~over_f] = g.expect(lambda w, chosen: f.some(chosen).above(inverse(w)), g.a / (g.a + g.b))
        return np.clip(result, 0.0, 1.0)


class _Beta:
    """Beta variables, each with the range that contains all but a negligible part of it."""

    def __init__(self, a: FloatArray, b: FloatArray) -> None:
        from scipy.special import betainccinv, betaincinv, betaln

        self.a, self.b = a, b
        self.low: FloatArray = np.asarray(betaincinv(a, b, _CUT_OFF))
        self.high: FloatArray = np.asarray(betainccinv(a, b, _CUT_OFF))
        self.log_norm = betaln(a, b)
        self.deviation = np.sqrt(a * b / (a + b + 1.0)) / (a + b)

    def some(self, chosen: NDArray[np.bool_]) -> _Beta:
        part = object.__new__(_Beta)
        for name, values in vars(self).items():
            setattr(part, name, values[chosen])
        return part

    def below(self, x: FloatArray) -> FloatArray:
        from scipy.special import betainc

        return np.asarray(betainc(self.a[:, None], self.b[:, None], np.clip(x, 0.0, 1.0)))

    def above(self, x: FloatArray) -> FloatArray:
        from scipy.special import betaincc

        return np.asarray(betaincc(self.a[:, None], self.b[:, None], np.clip(x, 0.0, 1.0)))

    def expect(self, function: _Function, kink: float | FloatArray) -> FloatArray:
        """The mean of a function of each variable, in two pieces that meet at the kink."""
        total = np.zeros(len(self.a))
        middle = np.asarray(np.clip(kink, self.low, self.high), dtype=np.float64)
        for begin, end in ((self.low, middle), (middle, self.high)):
            there = end > begin
            if there.any():
                total[there] += self.some(there).integral(function, there, begin[there], end[there])
        return total

    def integral(
        self, function: _Function, chosen: NDArray[np.bool_], begin: FloatArray, end: FloatArray
    ) -> FloatArray:
        """The integral of density times function over one piece for each variable."""
        nodes, weights = gauss_legendre(_NODES)
        half = (end - begin) / 2.0
        x = (begin + end)[:, None] / 2.0 + half[:, None] * nodes  # (pairs, nodes)
        log_density = (self.a[:, None] - 1.0) * np.log(x) + (self.b[:, None] - 1.0) * np.log1p(-x)
        density = np.exp(log_density - self.log_norm[:, None])
        return half * np.asarray((density * function(x, chosen)) @ weights)


@functools.cache
def gauss_legendre(nodes: int) -> tuple[FloatArray, FloatArray]:
    """The nodes on (-1, 1) and the weights of Gauss-Legendre quadrature."""
    places, weights = np.polynomial.legendre.leggauss(nodes)
    return places, weights
