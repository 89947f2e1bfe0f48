"""Estimates of epsilon that are not confidence bounds: a Bayesian credible interval, and a point estimate from exposures.

The credible interval is that of Bayesian Estimation of Differential Privacy (Zanella-Béguelin et al., 2022, arXiv:2206.05199). With
Jeffreys priors the false-positive rate and the false-negative rate of a threshold are independent beta variables given the counts.
The probability that epsilon is at most e is the mass of the region of rates that (e, delta) allows. Its quantiles give a credible
interval, which is not a confidence interval: it holds on average over the prior, and not for every true epsilon.

The point estimate is that of A Note On Interpreting Canary Exposure (Jagielski, 2023, arXiv:2306.00133). "Trained on" for whatever
is less surprising than the median canary is an attack with a TPR of one half and an FPR of 2 to the power of minus the median
exposure. Privacy allows no attack a ratio above exp(epsilon), so epsilon is at least ln 2 (median exposure - 1), if both rates were
known. They are counted, so this is a point estimate and not a bound.
"""

from __future__ import annotations

import math

import numpy as np

from coalmine.errors import InputError
from coalmine.records import Estimate
from coalmine.statistics.epsilon.beta_comparison import gauss_legendre
from coalmine.statistics.epsilon.lower_bounds import LARGEST_EPSILON
from coalmine.statistics.epsilon.thresholds import ThresholdCounts
from coalmine.statistics.scores import FloatArray, checked_confidence, checked_delta

JOINT_BETA = "joint beta, credible interval"
MEDIAN_EXPOSURE = "median exposure, point estimate"
_JOINT_BETA_ASSUMPTIONS = (
    "Jeffreys priors on both error rates",
    "the threshold was chosen without these scores, and they are independent of each other",
)
_PRIOR = 0.5
_PRECISION = 1e-6
_NODES = 48
# Quantiles of the second rate at which the integral over the first is split, so that no steep part of it is missed.
_CUTS = (1e-13, 1e-4, 0.02, 0.5, 0.98, 1.0 - 1e-4, 1.0 - 1e-13)


class EpsilonPosterior:
    """The posterior distribution of epsilon, given the counts at one threshold."""

    def __init__(self, counts: ThresholdCounts, delta: float) -> None:
        self.delta = checked_delta(delta)
        tp, fp = counts.hits + _PRIOR, counts.errors + _PRIOR
        fn, tn = counts.trials - counts.hits + _PRIOR, counts.others - counts.errors + _PRIOR
        # For the attack as it is, and with its answers swapped: privacy bounds both.
        self._sides = (_ErrorRates(fp, tn, fn, tp), _ErrorRates(tn, fp, tp, fn))

    def probability_of_at_most(self, epsilon: float) -> float:
        """The posterior probability that the true epsilon is at most `epsilon`."""
        # The two sides cannot both exceed what is allowed, so the probabilities add up.
        beyond = sum(side.probability_of_excess(epsilon, self.delta) for side in self._sides)
        return float(np.clip(1.0 - beyond, 0.0, 1.0))

    def quantile(self, share: float) -> float:
        """The quantile of epsilon at probability `share`."""
        if self.probability_of_at_most(0.0) >= share:
            return 0.0
        low, high = 0.0, 1.0
        while self.probability_of_at_most(high) < share:
            if high >= LARGEST_EPSILON:
                return math.inf
            low, high = high, 2.0 * high
        while high - low > _PRECISION:
            middle = (low + high) / 2.0
            low, high = (low, middle) if self.probability_of_at_most(middle) >= share else (middle, high)
        return high


class _ErrorRates:
    """Two independent rates: f is beta with (f_a, f_b), and g is beta with (g_a, g_b)."""

    def __init__(self, f_a: float, f_b: float, g_a: float, g_b: float) -> None:
        from scipy.special import betaincinv, betaln

        self.f_a, self.f_b, self.g_a, self.g_b = f_a, f_b, g_a, g_b
        self._log_norm = float(betaln(f_a, f_b))
        self._f_cuts: FloatArray = np.asarray(betaincinv(f_a, f_b, np.array(_CUTS)))
        self._g_cuts: FloatArray = np.append(betaincinv(g_a, g_b, np.array(_CUTS)), (0.0, 1.0))

    def probability_of_excess(self, epsilon: float, delta: float) -> float:
        """The probability of 1 - g > exp(epsilon) f + delta, or 1 - f > exp(epsilon) g + delta."""
        from scipy.special import betainc

        factor, room = math.exp(epsilon), 1.0 - delta
        # Where either line crosses a quantile of g, where the lines cross each other, and the bulk of f itself.
        cuts = np.concatenate(
            [
                self._f_cuts,
                (room - self._g_cuts) / factor,
                room - factor * self._g_cuts,
                [room / (1.0 + factor)],
            ]
        )
        cuts = np.unique(np.clip(cuts, self._f_cuts[0], self._f_cuts[-1]))
        # With f = sin(t)^2 the density has no pole, however small the counts are.
        angles = np.arcsin(np.sqrt(cuts))
        nodes, weights = gauss_legendre(_NODES)
        half = np.diff(angles) / 2.0
        t = ((angles[1:] + angles[:-1]) / 2.0)[:, None] + half[:, None] * nodes  # (pieces, nodes)
        log_density = (2 * self.f_a - 1) * np.log(np.sin(t)) + (2 * self.f_b - 1) * np.log(np.cos(t))
        density = 2.0 * np.exp(log_density - self._log_norm)
        f = np.sin(t) ** 2
        most_g = np.maximum(room - factor * f, (room - f) / factor)
        below = betainc(self.g_a, self.g_b, np.clip(most_g, 0.0, 1.0))
        return float(np.sum(half[:, None] * weights * density * below))


def joint_beta_interval(counts: ThresholdCounts, *, delta: float = 0.0, confidence: float = 0.95) -> Estimate:
    """The credible interval of epsilon with equal tails, from the counts at one threshold; its value is the posterior median.

    `confidence` is the posterior probability of the interval. A `high` of None means that it has no finite upper end.

    >>> counts = ThresholdCounts(hits=90, trials=100, errors=10, others=100)
    >>> estimate = joint_beta_interval(counts, delta=1e-5, confidence=0.9)
    >>> round(estimate.low, 2), round(estimate.value, 2), round(estimate.high, 2)
    (1.91, 2.33, 2.83)
    """
    level = checked_confidence(confidence)
    if not (0 <= counts.hits <= counts.trials and 0 <= counts.errors <= counts.others):
        raise InputError(f"counts must be between 0 and the number of scores, got {counts}; count again")
    posterior = EpsilonPosterior(counts, delta)
    tail = (1.0 - level) / 2.0
    low, middle, high = (posterior.quantile(share) for share in (tail, 0.5, 1.0 - tail))
    upper = None if math.isinf(high) else high
    return Estimate(
        method=JOINT_BETA,
        status="measured" if math.isfinite(middle) else "lower_bound",
        value=middle if math.isfinite(middle) else None,
        low=low,
        high=upper,
        confidence=level,
        n=counts.trials + counts.others,
        statement=(
            f"epsilon is between {low:.2f} and {'infinity' if upper is None else format(upper, '.2f')} with posterior probability "
            f"{100 * level:g}%: a credible interval, not a confidence interval"
        ),
        assumptions=_JOINT_BETA_ASSUMPTIONS,
    )


def note_epsilon(median_exposure: Estimate, copies: int = 1) -> Estimate:
    """The point estimate of epsilon from a median exposure in bits: ln 2 (median exposure - 1), divided by `copies`, at least 0.

    >>> from coalmine.statistics.exposure.guessing import compare_with_guessing
    >>> among = compare_with_guessing([8.5], list(range(16)))
    >>> round(note_epsilon(among.median).value / math.log(2), 6)  # exposure 1: 16 references, rank 8
    0.0
    """
    bits = median_exposure.value
    if bits is None:
        value, statement = None, "there is no median exposure, so there is no estimate of epsilon from it"
    else:
        value = max(0.0, math.log(2) * (bits - 1.0)) / copies
        statement = f"epsilon is about {value:.2f}, from a median exposure of {bits:.2f} bits: a point estimate, not a bound"
    return Estimate(
        method=MEDIAN_EXPOSURE,
        status="not_measured" if value is None else "measured",
        value=value,
        low=None,
        high=None,
        confidence=None,
        n=median_exposure.n,
        statement=statement,
        assumptions=(*median_exposure.assumptions, "delta is 0, and the true rates are the counted ones"),
        warnings=median_exposure.warnings,
    )
