"""The audit classifier: a linear one that tells users whose texts a shadow model was trained on from other users, by rank histograms."""

from __future__ import annotations

import warnings
from importlib.util import find_spec

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from coalmine.errors import InputError, MissingExtraError, NotMeasurableError
from coalmine.models.protocols import FloatArray


class AuditClassifier(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a linear classifier; nothing but NumPy is needed to score with it.

    Features are first put on one scale: `mean` is subtracted from each, and the rest is divided by `scale`.

    >>> found = AuditClassifier(mean=(0.5,), scale=(2.0,), coefficients=(3.0,), intercept=1.0, examples=8, members=4)
    >>> found.score([[0.5], [2.5]]).tolist()
    [1.0, 4.0]
    """

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    coefficients: tuple[float, ...]
    intercept: float
    # How many rows it was fitted to, each a user and a shadow model, and in how many the shadow was trained on the user.
    examples: int
    members: int
    # Whether the solver reached its tolerance.
    converged: bool = True

    @property
    def width(self) -> int:
        """The number of features of a user."""
        return len(self.coefficients)

    def score(self, features: ArrayLike) -> FloatArray:
        """The decision value of each row of (users, width) features, without a unit: above 0 where it decides "was trained on"."""
        rows = np.asarray(features, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise InputError(
                f"the audit classifier takes {self.width} features of each user, got an array of shape {rows.shape}; count ranks in the "
                "same bins as for the shadow models"
            )
        scaled = (rows - np.array(self.mean)) / np.array(self.scale)
        # Sums of products one by one: a matrix product rounds by how many rows there are.
        return np.asarray((scaled * np.array(self.coefficients)).sum(axis=1) + self.intercept)


def require_scikit_learn() -> None:
    """Raise a clear error if scikit-learn is not installed; called before shadow models are trained for hours."""
    if find_spec("sklearn") is None:
        raise MissingExtraError("fitting the audit classifier", "scikit-learn", "provenance")


def fit_classifier(features: FloatArray, trained_on: ArrayLike) -> AuditClassifier:
    """Fit scikit-learn's LinearSVC, with its default options, to the features of users under shadow models.

    The same numbers always give the same classifier: the problem that LinearSVC solves has one solution, and it is solved in its primal
    form, which draws no random numbers.

    Args:
        features: (examples, width), one row for each user and shadow model.
        trained_on: (examples,), whether that shadow was trained on that user.

    >>> found = fit_classifier(np.array([[0.0], [0.2], [0.8], [1.0]]), [False, False, True, True])
    >>> (found.score([[0.1], [0.9]]) > 0).tolist()
    [False, True]
    """
    require_scikit_learn()
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    labels = np.asarray(trained_on, dtype=bool)
    if labels.all() or not labels.any():
        raise NotMeasurableError(
            f"the audit classifier needs users that shadow models were trained on and users that they were not, and has {len(labels):,} of "
            "one kind only; give more reference users"
        )
    mean, scale = features.mean(axis=0), features.std(axis=0)
    # A bin that is equally full for all tells nothing; its deviation may still be a rounding error.
    scale[scale <= 10 * np.finfo(np.float64).eps * np.abs(mean)] = 1.0
    machine = LinearSVC(dual=False, random_state=0)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        machine.fit((features - mean) / scale, labels)
    return AuditClassifier(
        mean=tuple(map(float, mean)),
        scale=tuple(map(float, scale)),
        coefficients=tuple(map(float, machine.coef_[0])),
        intercept=float(machine.intercept_[0]),
        examples=len(labels),
        members=int(labels.sum()),
        converged=not any(issubclass(one.category, ConvergenceWarning) for one in raised),
    )
