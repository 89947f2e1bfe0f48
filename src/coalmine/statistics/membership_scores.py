"""Are these the scores of members and non-members, and how do they rank once ties are broken?

Scores of membership are higher for what was trained on: a log-perplexity has to be negated first. `in_scores` belong to
what was trained on, `out_scores` to what was drawn in the same way and was not.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.errors import InputError, ModelOutputError, NotMeasurableError
from coalmine.randomness import arrays

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class MembershipScores(NamedTuple):
    """Checked scores, higher for what was trained on."""

    in_scores: FloatArray
    out_scores: FloatArray

    def chance(self, seed: int, use: str) -> np.random.Generator:
        """A generator of this audit's own: with the seed alone, all audits of one size would have the same luck."""
        own = hashlib.sha256(np.concatenate(self).tobytes()).hexdigest()
        return arrays(seed, "membership", use, len(self.in_scores), own)

    def part(self, in_count: int, out_count: int, seed: int, use: str) -> MembershipScores:
        """So many scores of each side, drawn at random: in a sorted file their positions tell of the scores."""
        chance = self.chance(seed, use)
        return MembershipScores(
            chance.permutation(self.in_scores)[:in_count], chance.permutation(self.out_scores)[:out_count]
        )

    def places(self, seed: int) -> tuple[IntArray, IntArray]:
        """The place of each score among all of them, from 0 for the lowest, with ties broken at random.

        What breaks ties does not know who was trained on, so whatever holds for scores without ties holds for the places.

        >>> MembershipScores(np.array([3.0, 1.0]), np.array([0.5, 2.0])).places(seed=0)
        (array([3, 1]), array([0, 2]))
        """
        pooled = np.concatenate(self)
        # A stable sort of a shuffled row leaves ties in the order of the shuffle.
        shuffled = self.chance(seed, "ties").permutation(len(pooled))
        places = np.empty(len(pooled), dtype=np.int64)
        places[shuffled[np.argsort(pooled[shuffled], kind="stable")]] = np.arange(len(pooled))
        return places[: len(self.in_scores)], places[len(self.in_scores) :]


def membership_scores(in_scores: ArrayLike, out_scores: ArrayLike) -> MembershipScores:
    """Both rows of scores as finite numbers, at least one each.

    >>> membership_scores([2, 1.5], [0.5]).in_scores
    array([2. , 1.5])
    """
    return MembershipScores(_row(in_scores, "in scores"), _row(out_scores, "out scores"))


def checked_delta(delta: float) -> float:
    """A delta of differential privacy, in [0, 1).

    >>> checked_delta(1e-5)
    1e-05
    """
    chance = float(delta)
    if not 0.0 <= chance < 1.0:
        raise InputError(f"delta must lie in [0, 1), got {delta}; use for example 1e-5")
    return chance


def checked_epsilon(epsilon: float) -> float:
    """An epsilon of differential privacy: a finite number of at least 0."""
    privacy_loss = float(epsilon)
    if not 0.0 <= privacy_loss < np.inf:
        raise InputError(f"epsilon must be a finite number of at least 0, got {epsilon}; use for example 8.0")
    return privacy_loss


def _row(scores: ArrayLike, what: str) -> FloatArray:
    try:
        array = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"{what} must be numbers, but they cannot be read as such; give one float for each text"
        ) from None
    if array.ndim != 1:
        raise InputError(
            f"{what} must be one row of numbers, got {array.ndim} dimensions; flatten them first"
        )
    if not len(array):
        raise NotMeasurableError(
            f"membership compares what was trained on with what was not, but there are no {what}; give at least one"
        )
    bad = np.flatnonzero(~np.isfinite(array))
    if len(bad):
        raise ModelOutputError(
            f"{len(bad):,} of the {len(array):,} {what} are not finite numbers (the first is {array[bad[0]]}, at position "
            f"{bad[0]}); find out why before anything is concluded"
        )
    return array
