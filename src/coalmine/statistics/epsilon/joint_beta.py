"""Where does epsilon lie, for somebody who begins without an opinion about both error rates?

After Zanella-Béguelin et al., "Bayesian Estimation of Differential Privacy". With Jeffreys priors the false positive rate and the
false negative rate of a threshold are independent beta variables given the counts. The probability that epsilon is at most e is the
mass of the region of rates that (e, delta) allows. Its quantiles give a credible interval, which is not a confidence
interval: it holds on average over the prior, and not for every true epsilon.
"""

from __future__ import annotations

import math

import numpy as np

from coalmine.errors import InputError
from coalmine.records import Estimate
from coalmine.statistics.epsilon.beta_comparison import gauss_legendre
from coalmine.statistics.epsilon.hypothesis import LARGEST_EPSILON
from coalmine.statistics.epsilon.thresholds import ThresholdCounts
from coalmine.statistics.membership_scores import FloatArray, checked_delta
from coalmine.statistics.score_arrays import checked_confidence

METHOD = "joint beta, credible interval"
ASSUMPTIONS = (
    "Jeffreys priors on both error rates",
    "the threshold was chosen without these scores, and they are independent of each other",
)
_PRIOR = 0.5
_PRECISION = 1e-6
_NODES = 48
# Quantiles of the second rate at which the integral over the first is cut, so that no step of it is overlooked.
_CUTS = (1e-13, 1e-4, 0.02, 0.5, 0.98, 1.0 - 1e-4, 1.0 - 1e-13)


class EpsilonPosterior:
    """The posterior of epsilon, given what one threshold let through."""

    def __init__(self, counts: ThresholdCounts, delta: float) -> None:
        self.delta = checked_delta(delta)
        tp, fp = counts.hits + _PRIOR, counts.errors + _PRIOR
        fn, tn = counts.trials - counts.hits + _PRIOR, counts.others - counts.errors + _PRIOR
        # As the rule is, and with its answers exchanged: privacy bounds both.
        self._sides = (_ErrorRates(fp, tn, fn, tp), _ErrorRates(tn, fp, tp, fn))

    def probability_of_at_most(self, epsilon: float) -> float:
        """The posterior probability that epsilon is at most so much."""
        # Both sides cannot exceed what is allowed at once, so the probabilities add up.
        beyond = sum(side.probability_of_excess(epsilon, self.delta) for side in self._sides)
        return float(np.clip(1.0 - beyond, 0.0, 1.0))

    def quantile(self, share: float) -> float:
        """The epsilon that is not exceeded with probability `share`."""
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
    """Two independent rates: f, beta with (f_a, f_b), and g, beta with (g_a, g_b)."""

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
        # With f = sin(t)^2 the density has no pole, however few were counted.
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
    """The credible interval of epsilon with equal tails, from the counts of one threshold; its value is the posterior median.

    `confidence` is the posterior probability that the interval holds. A `high` of None means that no finite epsilon does.

    >>> counts = ThresholdCounts(hits=90, trials=100, errors=10, others=100)
    >>> estimate = joint_beta_interval(counts, delta=1e-5, confidence=0.9)
    >>> round(estimate.low, 2), round(estimate.value, 2), round(estimate.high, 2)
    (1.91, 2.33, 2.83)
    """
    level = checked_confidence(confidence)
    if not (0 <= counts.hits <= counts.trials and 0 <= counts.errors <= counts.others):
        raise InputError(f"counts must lie between 0 and the number of scores, got {counts}; count again")
    posterior = EpsilonPosterior(counts, delta)
    tail = (1.0 - level) / 2.0
    low, middle, high = (posterior.quantile(share) for share in (tail, 0.5, 1.0 - tail))
    upper = None if math.isinf(high) else high
    return Estimate(
        method=METHOD,
        status="measured" if math.isfinite(middle) else "lower_bound",
        value=middle if math.isfinite(middle) else None,
        low=low,
        high=upper,
        confidence=level,
        n=counts.trials + counts.others,
        statement=(
            f"epsilon lies in {low:.2f} to {'infinity' if upper is None else format(upper, '.2f')} with posterior probability "
            f"{100 * level:g}%: credible, not confidence"
        ),
        assumptions=ASSUMPTIONS,
    )
