"""The difference between two ways of training, from one number per training: Student's t with the fewest degrees of freedom.

A training is the unit here: what another seed would give is in the spread between the trainings of one side, and nowhere else.
Each side has a variance of its own, so the standard error is Welch's. With as many degrees of freedom as the smaller side has
trainings, less one, the test keeps its level whatever the two variances are (Mickey and Brown, 1966), where Welch's own
degrees of freedom do not: with 2 trainings against 5 they reject up to twice as often as they should.
"""

from __future__ import annotations

import math

from numpy.typing import ArrayLike

from coalmine.errors import NotMeasurableError
from coalmine.records import Estimate
from coalmine.statistics.differences import Difference, difference_words, number_row
from coalmine.statistics.score_arrays import checked_confidence

# Trainings that a side needs for its spread to be known at all.
FEWEST_RUNS = 2
NORMAL = "the mean exposures of trainings of one side are normal around that of the side; those of the two sides may vary differently"
THESE_CANARIES = "the trainings of a side differ by their seeds, and the difference is of trainings like these, with these canaries"


def run_difference(
    first: ArrayLike,
    second: ArrayLike,
    *,
    most: float = math.inf,
    confidence: float = 0.95,
    unit: str = "bits",
) -> Difference:
    """The mean of `first` minus that of `second`, with one number per training on each side.

    >>> found = run_difference([6.1, 6.6, 6.3], [2.0, 2.9, 2.4])
    >>> found.estimate.statement
    '3.90 bits more (95% interval 2.61 to 5.19), p = 0.0058, 3 against 3 trainings'
    """
    from scipy.special import stdtr, stdtrit

    one, other, level = (
        number_row(first, "first"),
        number_row(second, "second"),
        checked_confidence(confidence),
    )
    fewest = min(len(one), len(other))
    if fewest < FEWEST_RUNS:
        raise NotMeasurableError(
            f"{len(one)} against {len(other)} trainings cannot show how much a seed matters; train at least {FEWEST_RUNS} on each side"
        )
    value = float(one.mean() - other.mean())
    error = math.sqrt(float(one.var(ddof=1)) / len(one) + float(other.var(ddof=1)) / len(other))
    if error <= 0.0:
        raise NotMeasurableError(
            "the trainings of each side are equal to the last digit, so their seeds say nothing; train with different seeds"
        )
    p_value = float(2.0 * stdtr(fewest - 1, -abs(value) / error))
    half = -float(stdtrit(fewest - 1, (1.0 - level) / 2.0)) * error
    low, high = max(-most, value - half), min(most, value + half)
    counted = f"{len(one)} against {len(other)} trainings"
    return Difference(
        estimate=Estimate(
            method="t over trainings",
            status="measured",
            value=value,
            low=low,
            high=high,
            confidence=level,
            n=len(one) + len(other),
            statement=difference_words(value, (low, high), level, p_value, counted, unit),
            assumptions=(NORMAL, THESE_CANARIES),
        ),
        p_value=p_value,
        # However few the trainings are, they may agree so well that nothing is left to chance.
        least_p_value=0.0,
        pairing="trainings",
        exchanges=0,
        every_exchange=False,
    )
