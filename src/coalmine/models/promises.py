"""What the checks of an adapter are made of: the error for a broken promise, and comparisons within the declared resolution."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.errors import CoalmineError
from coalmine.models.protocols import FloatArray, Model, Scorer, TokenSequence
from coalmine.models.resolution import allowed_bits

# What the order of a sum changes in double precision, for a model that declares a resolution of 0.
LEAST_BITS = 1e-9


class ConformanceError(CoalmineError):
    """An adapter broke a promise of the model boundary.

    >>> from coalmine.models import ScriptedModel, check_model
    >>> check_model(ScriptedModel("ab"), ["aa", "bb"])
    Traceback (most recent call last):
    coalmine.models.promises.ConformanceError: give at least two texts of different lengths: with equal ones, padding cannot be tested
    """


def bits_alone(model: Scorer, sequence: TokenSequence) -> FloatArray:
    """The log2 probabilities of one sequence, scored alone."""
    return model.score([sequence])[0].log2_probabilities


def close(model: Model, first: np.ndarray, second: np.ndarray, how: str) -> None:
    """Require that numbers agree within the resolution that the model declares; `how` names them in the message."""
    one, other = (np.asarray(numbers, dtype=np.float64) for numbers in (first, second))
    difference, allowed = np.abs(one - other), most_difference(model, np.maximum(np.abs(one), np.abs(other)))
    wrong = np.flatnonzero(~(difference <= allowed))
    if len(wrong):
        worst = wrong[np.argmax((difference / allowed).ravel()[wrong])]
        require(
            False,
            f"scores {how} must agree to {allowed.ravel()[worst]:.2g} bits, which is the resolution that the model declares, and differ "
            f"by {difference.ravel()[worst]:.2g}",
        )


def most_difference(model: Model, bits: ArrayLike) -> NDArray[np.float64]:
    """How far numbers of this size may differ in bits: as the model declares, but at least as much as sums in double precision do."""
    return allowed_bits(max(model.resolution_bits, LEAST_BITS), bits)


def require(kept: bool, promise: str) -> None:
    """Raise the error of a promise that is not kept."""
    if not kept:
        raise ConformanceError(promise)
