"""Exposure under random guessing: the exposures of canaries if the model had memorized nothing.

Without memorization a canary is exchangeable with its n references, so its rank is uniform on 1 to n + 1. Exposure is log2 n - log2
rank, as in `reference_exposures` (0 at rank n + 1). Its mean is close to 1 / ln 2 = 1.44 bits, its median is 1, and a quarter of all
canaries reach 2 (A Note On Interpreting Canary Exposure; Jagielski, 2023, arXiv:2306.00133). For m canaries among the same n
references every order of all n + m is equally likely, which gives the exact distribution of each of their quantiles.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from coalmine.records import Estimate
from coalmine.statistics.scores import FloatArray, IntArray, checked_count, membership_scores

# Up to this many references the mean is a sum over all ranks; above, Stirling's series is accurate to the last digits.
_SUMMED_UP_TO = 1_000_000
_SMALLEST = 1e-12


class RandomGuessing(NamedTuple):
    """The exposures (bits) of `canaries` canaries among `references` references under a model without memorization.

    >>> round(RandomGuessing(references=1000, canaries=1).quantile_bits(0.5), 2)
    1.0
    """

    references: int
    canaries: int

    def mean_bits(self) -> float:
        """The expected exposure of one canary, in bits.

        >>> round(RandomGuessing(references=10**6, canaries=1).mean_bits(), 4), round(1 / math.log(2), 4)
        (1.4427, 1.4427)
        """
        n = self.references
        # The mean of log2 n - log2 i over i = 1 .. n + 1, where the last term counts as 0.
        if n <= _SUMMED_UP_TO:
            return float(np.sum(math.log2(n) - np.log2(np.arange(1, n + 1))) / (n + 1))
        return (n * math.log2(n) - math.lgamma(n + 1) / math.log(2)) / (n + 1)

    def quantile_bits(self, share: float) -> float:
        """The quantile of the exposure of one canary, in bits: the lowest that it does not exceed with probability `share` or more.

        >>> guessing = RandomGuessing(references=10**6 - 1, canaries=1)
        >>> round(guessing.quantile_bits(0.5), 3), round(guessing.quantile_bits(0.75), 3)
        (1.0, 2.0)
        """
        # A tolerance for rounding, so that a tenth of ten is one.
        worse = math.floor((1.0 - share) * (self.references + 1) * (1 + 1e-12))
        rank = min(worse, self.references) + 1
        return max(0.0, math.log2(self.references / rank))

    def chance_of(self, place: int, better_references: int) -> float:
        """The probability that at most `better_references` are no more surprising than the canary at `place` (1 is the best).

        That happens when at least `place` canaries are among the best `place + better_references` of all.

        >>> round(RandomGuessing(references=9, canaries=1).chance_of(1, 0), 9)  # the best of ten
        0.1
        """
        n, m = self.references, self.canaries
        drawn = min(place + better_references, n + m)
        canaries = np.arange(max(place, drawn - n), min(m, drawn) + 1, dtype=np.float64)
        log_chances = (
            _log_ways(m, canaries) + _log_ways(n, drawn - canaries) - _log_ways(n + m, np.float64(drawn))
        )
        # A sum of this many terms is not accurate beyond this, and a p-value is never 0.
        return float(np.clip(np.sum(np.exp(log_chances)), _SMALLEST, 1.0))


def _log_ways(total: int, chosen: FloatArray | np.float64) -> FloatArray:
    """The logarithm of the number of ways to choose `chosen` of `total`."""
    from scipy.special import gammaln

    return np.asarray(gammaln(total + 1.0) - gammaln(chosen + 1.0) - gammaln(total - chosen + 1.0))


class GuessingComparison(NamedTuple):
    """Measured exposures compared with those of random guessing."""

    exposures_bits: FloatArray  # (canaries,), in the order of the canaries
    # The probability of an exposure at least as high without memorization.
    p_values: FloatArray  # (canaries,)
    median: Estimate
    p_value: float
    guessing: RandomGuessing


def exposures_among(in_scores: ArrayLike, out_scores: ArrayLike) -> tuple[FloatArray, IntArray]:
    """The exposure of each in score among the out scores, in bits, and how many out scores are no lower; ties count against it.

    >>> exposures_among([5.0, 0.0], [1.0, 2.0, 3.0, 4.0])
    (array([2., 0.]), array([0, 4]))
    """
    scores = membership_scores(in_scores, out_scores)
    n = len(scores.out_scores)
    better = n - np.searchsorted(np.sort(scores.out_scores), scores.in_scores, side="left")
    return np.log2(n) - np.log2(np.minimum(better + 1, n)), better.astype(np.int64)


def compare_with_guessing(in_scores: ArrayLike, out_scores: ArrayLike) -> GuessingComparison:
    """The median exposure in bits, and the p-value of "no memorization": the probability of one as high by guessing.

    Scores are higher for what was trained on. The p-value is exact for any number of canaries and references, and conservative
    where there are ties, which count against the canaries. With an even number of canaries the median is the lower of the middle two.

    >>> result = compare_with_guessing([5.0, 6.0, 7.0], [1.0, 2.0, 3.0, 4.0])
    >>> print(result.median.statement)
    median exposure is 2.00 bits among 4 references; guessing gives 0.4, and 2.00 or more with probability 0.14
    """
    scores = membership_scores(in_scores, out_scores)
    exposures, better = exposures_among(*scores)
    m, n = checked_count(len(scores.in_scores), "canaries"), len(scores.out_scores)
    guessing = RandomGuessing(references=n, canaries=m)
    middle = m // 2 + 1
    beaten_by = int(np.sort(better)[middle - 1])
    value = float(np.sort(exposures)[m - middle])
    p_value = guessing.chance_of(middle, beaten_by)
    warnings = []
    if beaten_by == 0:
        warnings.append(
            f"the median canary is less surprising than all {n:,} references, so log2 {n:,} reflects their number and not how much "
            "the model remembers"
        )
    return GuessingComparison(
        exposures_bits=exposures,
        p_values=(better + 1) / (n + 1.0),
        median=Estimate(
            method="median exposure",
            status="measured",
            value=value,
            low=None,
            high=None,
            confidence=None,
            n=m,
            statement=(
                f"median exposure is {value:.2f} bits among {n:,} {'reference' if n == 1 else 'references'}; guessing gives "
                f"{guessing.quantile_bits(0.5):.1g}, and {value:.2f} or more with "
                f"probability {f'{p_value:.2g}' if p_value > _SMALLEST else 'below 1e-12'}"
            ),
            assumptions=(
                "canaries and references were drawn the same way, and those to plant were chosen at random",
            ),
            warnings=tuple(warnings),
        ),
        p_value=p_value,
        guessing=guessing,
    )
