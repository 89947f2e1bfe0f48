"""Are these scores numbers that something can be concluded from?"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.errors import InputError, ModelOutputError, NotMeasurableError


def canary_array(scores: ArrayLike, canary_ids: Sequence[str] | None = None) -> NDArray[np.float64]:
    """The canaries' log-perplexities in bits as one row of finite numbers; an error names the canary at fault.

    >>> canary_array([20, 31.5])
    array([20. , 31.5])
    """
    array = _row(scores, "canary scores")
    if canary_ids is not None and len(canary_ids) != len(array):
        raise InputError(
            f"there are {len(array):,} canary scores but {len(canary_ids):,} canary ids; give one id for each score"
        )
    bad = np.flatnonzero(~np.isfinite(array))
    if len(bad):
        first = int(bad[0])
        name = (
            f"canary {canary_ids[first]!r}" if canary_ids is not None else f"the canary at position {first}"
        )
        raise ModelOutputError(
            f"the log-perplexity of {name} is {array[first]}, which is not a finite number of bits; "
            "check the model's log-probabilities for this text"
        )
    return array


def sample_array(scores: ArrayLike, what: str) -> NDArray[np.float64]:
    """A sample's log-perplexities in bits as one row of finite numbers, at least one; `what` is its name in errors.

    >>> sample_array([20, 31.5], "samples")
    array([20. , 31.5])
    """
    array = _row(scores, what)
    if not len(array):
        raise NotMeasurableError(
            f"exposure compares a canary with others, but there are no {what}; give at least one score"
        )
    bad = np.flatnonzero(~np.isfinite(array))
    if len(bad):
        raise ModelOutputError(
            f"{len(bad):,} of the {len(array):,} {what} have a log-perplexity that is not a finite number "
            f"(the first is {array[bad[0]]}, at position {bad[0]}); check the model's log-probabilities for them"
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
            f"confidence must lie strictly between 0 and 1, got {confidence}; use for example 0.95"
        )
    return level


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


def _row(scores: ArrayLike, what: str) -> NDArray[np.float64]:
    try:
        array = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"{what} must be numbers, but they cannot be read as such; give bits as floats"
        ) from None
    if array.ndim != 1:
        raise InputError(
            f"{what} must be one row of numbers, got {array.ndim} dimensions; flatten them first"
        )
    return array
