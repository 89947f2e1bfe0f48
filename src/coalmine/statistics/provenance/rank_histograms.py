"""`RankHistogram`: features of a user from the ranks that a model gives to the tokens of the user's texts.

The features of Auditing Data Provenance in Text-Generation Models (Song and Shmatikov, 2019, arXiv:1811.00513, appendix A), with
what the paper leaves open decided by name. Ranks begin at 0, so that the last rank of the vocabulary has a bin.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from coalmine.errors import InputError, NotMeasurableError
from coalmine.statistics.scores import FloatArray, IntArray, checked_count

Scaling = Literal["shares", "counts", "unit"]

# The rank of a token that is not among those that the model lists.
UNLISTED = -1


class RankHistogram(msgspec.Struct, frozen=True, kw_only=True):
    """How ranks are counted: in `bins` bins of equal width over the `vocabulary` tokens that the model ranks.

    There are never more bins than ranks. If only the `top` likeliest tokens are known, the bins cover their ranks, and one more
    bin counts all other tokens: -1, or any rank from `top` on. `scaling` is "shares" (of the user's tokens), "counts" (which also
    tell how much a user wrote) or "unit" (counts divided by their Euclidean norm).

    >>> RankHistogram(vocabulary=8, bins=4).features([0, 1, 2, 7])
    array([0.5 , 0.25, 0.  , 0.25])
    >>> RankHistogram(vocabulary=8, bins=4, top=2, scaling="counts").features([0, 1, -1, 7])
    array([1., 1., 2.])
    """

    # How many tokens the model ranks.
    vocabulary: int
    # The number that the code of the paper's authors uses; the paper has none.
    bins: int = 100
    scaling: Scaling = "shares"
    top: int | None = None

    def __post_init__(self) -> None:
        checked_count(self.vocabulary, "vocabulary")
        checked_count(self.bins, "bins")
        if self.top is not None and checked_count(self.top, "top") > self.vocabulary:
            raise InputError(
                f"top must be at most the vocabulary, got {self.top} of {self.vocabulary} tokens; leave it out if all are ranked"
            )
        if self.scaling not in get_args(Scaling):
            raise InputError(
                f"scaling must be one of {', '.join(get_args(Scaling))}, got {self.scaling!r}; shares is the default"
            )

    @property
    def width(self) -> int:
        """The number of features of a user."""
        return min(self.bins, self._listed) + (self.top is not None)

    def features(self, ranks: ArrayLike) -> FloatArray:
        """The features of one user, of shape (width,), from the ranks of all counted tokens, in any order."""
        row = _whole_row(ranks, "ranks")
        features: FloatArray = self.features_of_many(row, [0, len(row)])[0]
        return features

    def features_of_many(self, ranks: ArrayLike, offsets: ArrayLike) -> FloatArray:
        """The features of many users, or texts, of shape (users, width): those of user i are ranks[offsets[i]:offsets[i + 1]].

        >>> RankHistogram(vocabulary=2).features_of_many([0, 0, 1, 1], [0, 3, 4])
        array([[0.66666667, 0.33333333],
               [0.        , 1.        ]])
        """
        row = self._checked(_whole_row(ranks, "ranks"))
        sizes = _sizes(_whole_row(offsets, "offsets"), len(row))
        users = np.repeat(np.arange(len(sizes)), sizes)
        flat = np.bincount(users * self.width + self._places(row), minlength=len(sizes) * self.width)
        counts = flat.reshape(len(sizes), self.width).astype(np.float64)
        if self.scaling == "shares":
            counts /= sizes[:, None]
        elif self.scaling == "unit":
            counts /= np.sqrt((counts**2).sum(axis=1, keepdims=True))
        return counts

    @property
    def _listed(self) -> int:
        return self.vocabulary if self.top is None else self.top

    def _places(self, row: IntArray) -> IntArray:
        """The bin of each rank."""
        bins = min(self.bins, self._listed)
        places = row * bins // self._listed
        if self.top is not None:
            places[(row == UNLISTED) | (row >= self.top)] = bins
        return places

    def _checked(self, row: IntArray) -> IntArray:
        least = 0 if self.top is None else UNLISTED
        wrong = np.flatnonzero((row < least) | (row >= self.vocabulary))
        if len(wrong):
            raise InputError(
                f"ranks must be between {least} and {self.vocabulary - 1}, got {row[wrong[0]]} at position {wrong[0]}; ranks begin "
                f"at 0, and {UNLISTED} is for tokens that are not among the top"
            )
        return row


def _sizes(offsets: IntArray, tokens: int) -> IntArray:
    sizes = np.diff(offsets)
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != tokens or np.any(sizes < 0):
        raise InputError(
            f"offsets must go from 0 to the number of ranks, which is {tokens}, and never decrease; give one more than there are users"
        )
    if not np.all(sizes):
        which = (
            "" if len(sizes) == 1 else f" for user {np.flatnonzero(sizes == 0)[0]} of {len(sizes)}, from 0"
        )
        raise NotMeasurableError(
            f"a histogram of ranks needs at least one counted token, but there is none{which}; leave such users out"
        )
    return sizes


def _whole_row(numbers: ArrayLike, what: str) -> IntArray:
    array = np.asarray(numbers)
    # An empty list is an array of floats.
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(
            f"{what} must be one row of whole numbers, got {array.dtype} of shape {array.shape}; flatten or count them first"
        )
    return array.astype(np.int64)
