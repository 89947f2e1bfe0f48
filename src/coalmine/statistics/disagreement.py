"""Disagreement of two models about a text: where one is less surprised than the other, and how much of that chance explains.

A text is given to one of two models by a fair coin, and the model that was not trained on it is the control. Where training on a text
changed nothing, the difference of the two models does not know of the coin, so that it favors either model with probability 1/2. How many
texts favor the wrong model by t bits or more therefore shows how many favor the right one by chance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from coalmine.errors import InputError
from coalmine.statistics.scores import FloatArray, checked_count, checked_fdr, number_row


class SpanGain(NamedTuple):
    """The consecutive tokens of a text over which one model is ahead the most: by which share, and the place of the first of them.

    >>> SpanGain(size=0.5, begin=3).size
    0.5
    """

    size: float
    begin: int


def span_share(own_log2: ArrayLike, other_log2: ArrayLike, span: int) -> SpanGain:
    """The largest share of the other model's log-perplexity over `span` consecutive tokens that the own model is spared.

    Both rows are log2 probabilities of the same tokens. A model that knows nine digits by heart is spared nearly all of their 30 bits,
    and one that knows the style of a table is spared a part of many more bits. One bit per token is added to what the other model needs, so
    that text that both find easy does not count. Below 1; negative where the own model needs more everywhere.

    >>> span_share([-0.1, -0.1, -4.0], [-3.3, -3.3, -5.0], span=2).begin
    0
    """
    own, other = number_row(own_log2, "log2 probabilities"), number_row(other_log2, "log2 probabilities")
    size = checked_count(span, "the span")
    if len(own) != len(other) or not len(own):
        raise InputError(
            f"both models must score the same tokens, at least one, got {len(own)} and {len(other)}"
        )
    size = min(size, len(own))
    shares = _window_sums(own - other, size) / (size - _window_sums(other, size))
    begin = int(np.argmax(shares))
    return SpanGain(float(shares[begin]), begin)


def _window_sums(row: FloatArray, size: int) -> FloatArray:
    sums: FloatArray = np.concatenate([[0.0], np.cumsum(row)])
    return sums[size:] - sums[:-size]


def stronger(ahead: ArrayLike, behind: ArrayLike) -> FloatArray:
    """The stronger of two gains: that of the model that was trained on a text, or minus that of the other one. Equals are 0.

    >>> stronger([3.0, 1.0, 2.0], [1.0, 4.0, 2.0]).tolist()
    [3.0, -4.0, 0.0]
    """
    own, other = number_row(ahead, "gains"), number_row(behind, "gains")
    return np.where(own > other, own, np.where(own < other, -other, 0.0))


def beyond_chance(scores: ArrayLike, fdr: float) -> float | None:
    """The least score from which on at most a share `fdr` of the texts is expected to be there by chance; None if there is no such score.

    Scores are positive where the model that was trained on a text is ahead, and negative where the other one is. The threshold is the
    smallest t > 0 with (1 + number of scores <= -t) <= fdr * (number of scores >= t), which bounds the false-discovery rate by `fdr` for
    any number of texts, if the signs of texts that training did not change are independent fair coins (knockoff+ of Controlling the False
    Discovery Rate via Knockoffs, Barber and Candès, 2015, arXiv:1404.5609).

    >>> beyond_chance([5.0, 4.0, 3.0, 2.0, 1.0, -1.0], fdr=0.25)
    2.0
    >>> beyond_chance([5.0, -4.0, 3.0, -2.0], fdr=0.25) is None
    True
    """
    row, rate = number_row(scores, "scores"), checked_fdr(fdr)
    if np.isnan(row).any():
        raise InputError("scores must be numbers, but some are NaN; leave out what could not be measured")
    positive, negative = np.sort(row[row > 0]), np.sort(-row[row < 0])
    if not len(positive):
        return None
    ahead = len(positive) - np.searchsorted(positive, positive, side="left")
    behind = len(negative) - np.searchsorted(negative, positive, side="left")
    within = np.flatnonzero(1 + behind <= rate * ahead * (1 + 1e-12))
    return float(positive[within[0]]) if len(within) else None
