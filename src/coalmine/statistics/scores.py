"""Scores and parameters, checked before anything is concluded from them.

There are two kinds of scores. Log-perplexities in bits are lower for what the model remembers better; exposure is measured with
them. Membership scores are higher for what was trained on, so a log-perplexity has to be negated first: `in_scores` belong to
what was trained on, `out_scores` to what was drawn the same way and was not.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.errors import InputError, ModelOutputError, NotMeasurableError
from coalmine.randomness import arrays

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class MembershipScores(NamedTuple):
    """Checked membership scores (any unit), higher for what was trained on; `membership_scores` makes them.

    >>> membership_scores([2.0, 1.5], [0.5]).out_scores
    array([0.5])
    """

    in_scores: FloatArray
    out_scores: FloatArray

    @property
    def all_equal(self) -> bool:
        """Whether the scores of both sides are one number, which cannot tell anything apart."""
        return bool(np.ptp(np.concatenate(self)) == 0)

    def chance(self, seed: int, use: str) -> np.random.Generator:
        """A random generator that also depends on the scores: with the seed alone, all audits of one size would share their luck."""
        own = hashlib.sha256(np.concatenate(self).tobytes()).hexdigest()
        return arrays(seed, "membership", use, len(self.in_scores), own)

    def part(self, in_count: int, out_count: int, seed: int, use: str) -> MembershipScores:
        """A random subset with this many scores of each side; the first ones would depend on the scores if they are sorted."""
        chance = self.chance(seed, use)
        return MembershipScores(
            chance.permutation(self.in_scores)[:in_count], chance.permutation(self.out_scores)[:out_count]
        )

    def places(self, seed: int) -> tuple[IntArray, IntArray]:
        """The position of each score among all of them, from 0 for the lowest, with ties broken at random.

        Ties are broken without looking at membership, so whatever holds for scores without ties holds for the positions.

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
    """Membership scores (any unit, higher for what was trained on) as two rows of finite numbers, at least one each.

    >>> membership_scores([2, 1.5], [0.5]).in_scores
    array([2. , 1.5])
    """
    return MembershipScores(_one_side(in_scores, "in scores"), _one_side(out_scores, "out scores"))


def canary_array(scores: ArrayLike, canary_ids: Sequence[str] | None = None) -> FloatArray:
    """The log-perplexities of canaries in bits as one row of finite numbers; an error names the canary at fault.

    >>> canary_array([20, 31.5])
    array([20. , 31.5])
    """
    array = number_row(scores, "canary scores")
    if canary_ids is not None and len(canary_ids) != len(array):
        raise InputError(
            f"there are {len(array):,} canary scores but {len(canary_ids):,} canary ids; give one id per score"
        )
    bad = np.flatnonzero(~np.isfinite(array))
    if len(bad):
        first = int(bad[0])
        raise ModelOutputError(
            f"the log-perplexity of {canary_name(first, canary_ids)} is {array[first]}, which is not a finite number of bits; "
            "check the model's log-probabilities for this text"
        )
    return array


def canary_name(place: int, canary_ids: Sequence[str] | None) -> str:
    """What messages call the canary at a place.

    >>> canary_name(0, ["f0-x1-0"]), canary_name(0, None)
    ("canary 'f0-x1-0'", 'the canary at position 0')
    """
    return f"the canary at position {place}" if canary_ids is None else f"canary {canary_ids[place]!r}"


def sample_array(scores: ArrayLike, what: str) -> FloatArray:
    """The log-perplexities of a sample in bits as one row of finite numbers, at least one; errors call them `what`.

    >>> sample_array([20, 31.5], "samples")
    array([20. , 31.5])
    """
    array = number_row(scores, what)
    if not len(array):
        raise NotMeasurableError(
            f"exposure compares a canary with other texts, but there are no {what}; give at least one score"
        )
    problem = "have a log-perplexity that is not a finite number"
    return _finite(array, what, problem, "check the model's log-probabilities for them")


def number_row(values: ArrayLike, what: str) -> FloatArray:
    """Numbers as a one-dimensional array; errors call them `what`.

    >>> number_row([1, 2.5], "values")
    array([1. , 2.5])
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{what} must be numbers, but some are not; give a list of floats") from None
    if array.ndim != 1:
        raise InputError(
            f"{what} must be one row of numbers, got {array.ndim} dimensions; flatten them first"
        )
    return array


def checked_confidence(confidence: float) -> float:
    """A confidence level strictly between 0 and 1, as a plain float.

    >>> checked_confidence(0.95)
    0.95
    """
    level = float(confidence)
    if not 0.0 < level < 1.0:
        raise InputError(
            f"confidence must be strictly between 0 and 1, got {confidence}; use for example 0.95"
        )
    return level


def checked_fdr(fdr: float) -> float:
    """A false-discovery rate strictly between 0 and 1, as a plain float.

    >>> checked_fdr(0.05)
    0.05
    """
    rate = float(fdr)
    if not 0.0 < rate < 1.0:
        raise InputError(f"fdr must be strictly between 0 and 1, got {fdr}; use for example 0.05")
    return rate


def checked_count(number: int, what: str) -> int:
    """A whole number of at least 1, of any size, as a plain int.

    >>> checked_count(10**40, "size") == 10**40
    True
    """
    try:
        count = operator.index(number)
    except TypeError:
        raise InputError(f"{what} must be a whole number, got {number!r}; give it as an int") from None
    if count < 1:
        raise InputError(f"{what} must be at least 1, got {count}; count from 1")
    return count


def checked_delta(delta: float) -> float:
    """A delta of differential privacy, in [0, 1).

    >>> checked_delta(1e-5)
    1e-05
    """
    chance = float(delta)
    if not 0.0 <= chance < 1.0:
        raise InputError(f"delta must be in [0, 1), got {delta}; use for example 1e-5")
    return chance


def checked_epsilon(epsilon: float) -> float:
    """An epsilon of differential privacy: a finite number of at least 0."""
    privacy_loss = float(epsilon)
    if not 0.0 <= privacy_loss < np.inf:
        raise InputError(f"epsilon must be a finite number of at least 0, got {epsilon}; use for example 8.0")
    return privacy_loss


def _one_side(scores: ArrayLike, what: str) -> FloatArray:
    array = number_row(scores, what)
    if not len(array):
        raise NotMeasurableError(
            f"membership compares what was trained on with what was not, but there are no {what}; give at least one"
        )
    return _finite(array, what, "are not finite numbers", "find out why before drawing conclusions")


def _finite(array: FloatArray, what: str, problem: str, advice: str) -> FloatArray:
    bad = np.flatnonzero(~np.isfinite(array))
    if len(bad):
        raise ModelOutputError(
            f"{len(bad):,} of the {len(array):,} {what} {problem} (the first is {array[bad[0]]}, at position {bad[0]}); {advice}"
        )
    return array
