"""Conformal p-values: how a suspect's score compares with the scores of known non-members, and what so many of them can show.

If a suspect was not trained on, the suspect's score and those of the non-members are exchangeable: every order is equally likely.
That is all that these p-values assume. (Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from coalmine.errors import InputError, ModelOutputError, NotMeasurableError
from coalmine.statistics.exposure.order_tests import shared_order_test
from coalmine.statistics.multiple_tests import TOLERANCE
from coalmine.statistics.scores import FloatArray, checked_count, checked_fdr, number_row

# Up to this many pairs of scores, the distribution of the sum of ranks is counted out.
_PAIRS_EXACT = 100_000
# A p-value is never 0.
_SMALLEST = 1e-300


def conformal_p_values(scores: ArrayLike, calibration: ArrayLike) -> FloatArray:
    """The p-value of "was not trained on" for each score: (1 + number of calibration scores at least as high) / (n + 1).

    Scores have any unit and are higher for what was trained on; `calibration` has those of n known non-members, scored in exactly
    the same way. Ties count against the suspect. The p-values share the non-members, so they depend on each other, in a way under
    which Benjamini-Hochberg and Simes hold (Bates, Candès, Lei, Romano and Sesia, Testing for Outliers with Conformal p-values,
    Annals of Statistics 51, 2023, arXiv:2104.08279).

    >>> conformal_p_values([0.5, 2.0, 9.0], [0.0, 1.0, 2.0, 3.0])
    array([0.8, 0.6, 0.2])
    """
    suspects, others = _scores(scores, "scores"), _scores(calibration, "calibration scores")
    if not len(others):
        raise NotMeasurableError(
            "a conformal p-value needs known non-members to compare with, but there are none; give at least one"
        )
    at_least = len(others) - np.searchsorted(np.sort(others), suspects, side="left")
    return np.asarray((1 + at_least) / (len(others) + 1), dtype=np.float64)


def p_value_together(p_values: Sequence[float], non_members: int) -> float:
    """The p-value of "no suspect was trained on", from the conformal p-values of all suspects against the same non-members.

    If nobody was trained on and all were drawn alike, every order of suspects and non-members is equally likely. The k-th highest
    suspect is compared with that, for k = 1, 2, 4, 8 and so on; half of the error is for the first. Many suspects above most
    non-members are far stronger evidence than the smallest p-value of any of them, which 1 / (n + 1) bounds.

    >>> round(p_value_together([0.01, 0.01, 0.02, 0.3], 99), 5)
    0.00457
    """
    if not len(p_values):
        raise InputError("a test of all suspects needs at least one p-value, got none")
    above = [round(one * (checked_count(non_members, "non_members") + 1)) - 1 for one in p_values]
    return shared_order_test(above, non_members).p_value


def sides_p_value(scores: ArrayLike, calibration: ArrayLike) -> float:
    """The p-value of "these texts were not trained on", for texts of one person against others that cannot have been.

    If the two sides are alike but for the training, every order of all texts is equally likely. Twice the smaller of two p-values under
    that: of the sum of ranks (Mann and Whitney, 1947), which many texts that stand out a little show, and `p_value_together`, which a few
    that stand out far do. Only higher scores of the first side count, and ties count against it. The first is exact up to 100,000 pairs
    of texts, and a normal approximation above.

    >>> sides_p_value([2.0, 3.0, 4.0, 5.0], [-2.0, -1.0, 0.0, 1.0])
    0.02857142857142857
    """
    from scipy.stats import mannwhitneyu

    own, others = _scores(scores, "scores"), _scores(calibration, "calibration scores")
    together = p_value_together(conformal_p_values(own, others).tolist(), len(others))
    # Equals in the order that is worst for the first side, so that there are none.
    places = np.lexsort((np.repeat([0, 1], [len(own), len(others)]), np.append(own, others))).argsort()
    ranks = mannwhitneyu(
        places[: len(own)],
        places[len(own) :],
        alternative="greater",
        method="exact" if len(own) * len(others) <= _PAIRS_EXACT else "asymptotic",
    )
    return float(np.clip(2 * min(together, float(ranks.pvalue)), _SMALLEST, 1.0))


def sides_area(scores: ArrayLike, calibration: ArrayLike) -> float:
    """The share of pairs of texts, one of each side, in which the first side's scores higher; ties count half.

    >>> sides_area([1.0, 3.0], [1.0, 2.0])
    0.625
    """
    own, others = _scores(scores, "scores"), np.sort(_scores(calibration, "calibration scores"))
    below = np.searchsorted(others, own, side="left") + np.searchsorted(others, own, side="right")
    return float(below.mean() / (2 * len(others)))


def smallest_p_value(non_members: int) -> float:
    """The smallest p-value that so many non-members can give: 1 / (n + 1).

    >>> smallest_p_value(99)
    0.01
    """
    return 1.0 / (checked_count(non_members, "non_members") + 1)


def non_members_needed(suspects: int, fdr: float, shown: int = 1) -> int:
    """How many non-members it takes before Benjamini-Hochberg at `fdr` can show `shown` of the suspects.

    So many suspects have to be above all non-members: p = 1 / (n + 1) must be at most fdr * shown / suspects.

    >>> non_members_needed(100, 0.05), non_members_needed(100, 0.05, shown=20)
    (1999, 99)
    """
    share = checked_fdr(fdr) * _part(shown, suspects) / suspects
    return max(1, math.ceil(1.0 / (share * TOLERANCE)) - 1)


def fewest_shown(non_members: int, suspects: int, fdr: float) -> int | None:
    """The smallest number of suspects that Benjamini-Hochberg at `fdr` can show with so many non-members; None if it cannot show any.

    Fewer than this, even if they are above all non-members, are not shown.

    >>> fewest_shown(99, 100, 0.05), fewest_shown(1999, 100, 0.05), fewest_shown(9, 100, 0.05)
    (20, 1, None)
    """
    smallest, tests = smallest_p_value(non_members), checked_count(suspects, "suspects")
    fewest = max(1, math.ceil(smallest * tests / (checked_fdr(fdr) * TOLERANCE)))
    return fewest if fewest <= tests else None


def _scores(values: ArrayLike, what: str) -> FloatArray:
    row = number_row(values, what)
    missing = np.flatnonzero(np.isnan(row))
    if len(missing):
        raise ModelOutputError(
            f"{len(missing):,} of the {len(row):,} {what} are NaN (the first at position {missing[0]}); find out why before drawing "
            "conclusions"
        )
    return row


def _part(shown: int, suspects: int) -> int:
    if checked_count(shown, "shown") > checked_count(suspects, "suspects"):
        raise InputError(f"shown must be at most the number of suspects, got {shown} of {suspects}")
    return shown
