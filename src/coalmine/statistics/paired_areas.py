"""Two areas under the ROC of the same members and non-members, scored in two ways, and whether they differ."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.errors import InputError


class PairedAreas(NamedTuple):
    """The areas by the first and the second scores, the standard error of their difference, and how alike the orders are."""

    first: float
    second: float
    standard_error: float
    # Spearman's, over members and non-members together; 1 for the same order, and for scores that are all equal.
    rank_correlation: float

    @property
    def difference(self) -> float:
        """By how much the second area is larger."""
        return self.second - self.first


def paired_areas(first: tuple[ArrayLike, ArrayLike], second: tuple[ArrayLike, ArrayLike]) -> PairedAreas:
    """Areas from (in, out) scores of the same texts in the same order, higher for members.

    The standard error is that of DeLong, DeLong and Clarke-Pearson, "Comparing the Areas under Two or More Correlated Receiver
    Operating Characteristic Curves" (1988).

    >>> found = paired_areas(([3, 4, 5], [1, 2, 2.5]), ([3, 1.5, 5], [1, 2, 2.5]))
    >>> found.first, round(found.second, 3)
    (1.0, 0.778)
    """
    ways = [[np.asarray(side, dtype=np.float64) for side in way] for way in (first, second)]
    ins, outs = ways[0]
    if [side.shape for side in ways[0]] != [side.shape for side in ways[1]] or not ins.size or not outs.size:
        raise InputError("two ways to score need scores of the same texts, at least one in and one out")
    wins = [_wins(ins, outs) for ins, outs in ways]  # each (in, out)
    differences = wins[1] - wins[0]
    variance = sum(
        float(np.var(differences.mean(axis=axis), ddof=1)) / n
        for axis, n in ((1, len(ins)), (0, len(outs)))
        if n > 1
    )
    joined = [np.concatenate(way) for way in ways]
    return PairedAreas(
        float(wins[0].mean()),
        float(wins[1].mean()),
        float(np.sqrt(variance)),
        _spearman(joined[0], joined[1]),
    )


def _wins(ins: NDArray[np.float64], outs: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((ins[:, None] > outs) + 0.5 * (ins[:, None] == outs), dtype=np.float64)


def _spearman(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    from scipy.stats import rankdata

    ranks = [rankdata(one) for one in (first, second)]
    if any(np.ptp(one) == 0 for one in ranks):
        return 1.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
