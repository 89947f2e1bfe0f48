"""`Detection`: how well users are told apart where the truth is known, with intervals over users.

Posts of one user are found or missed together, so that the number of posts says nothing about how far to trust a rate: a user
counts once, however much the user wrote.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.errors import InputError
from coalmine.records import Estimate
from coalmine.records.estimate import Count
from coalmine.statistics.intervals import clopper_pearson
from coalmine.statistics.roc import area_under_roc
from coalmine.statistics.scores import checked_confidence, number_row

_DRAWN = "users were drawn independently of each other, and members in the same way as non-members"
_ALONE = "each decision depends on that user's score and on nothing else about these users"
_THIS_MODEL = "the interval is about other users of this model, not about other trainings"
_THIS_MIX = "members are as frequent among other users as among these"


class Detection(msgspec.Struct, frozen=True, kw_only=True):
    """How well members are told from non-members: proportions from 0 to 1, each with its interval; `measure_detection` makes it.

    >>> found = measure_detection([2.0, 1.0, -1.0, -3.0], [True, True, False, False], [True, False, True, False])
    >>> found.members, found.accuracy.value, found.auc.value, found.precision.value, found.recall.value
    (2, 0.5, 0.75, 0.5, 0.5)
    """

    members: Count
    non_members: Count
    # Of all users, how many were decided correctly.
    accuracy: Estimate
    # The area under the ROC curve: how often a member's score is above a non-member's.
    auc: Estimate
    # Of the users who were said to be members, how many are.
    precision: Estimate
    # Of the members, how many were said to be.
    recall: Estimate


def measure_detection(
    scores: ArrayLike, decisions: ArrayLike | None, members: ArrayLike, confidence: float = 0.95
) -> Detection:
    """Accuracy, AUC, precision and recall, from the score, the decision and the truth about each user, one of each per user.

    Scores have any unit and are higher for what was trained on. Proportions have Clopper-Pearson's interval, with users as trials.
    What nothing was counted for is "not_measured": recall without a member, precision if no user was said to be a member, AUC if
    one of the two sides is empty, and all but AUC where nothing was decided (`decisions` is None).

    >>> found = measure_detection([2.0, 1.0, -1.0], [True, True, False], [True, True, False])
    >>> print(found.recall.statement)
    recall is 1.000 (95% interval 0.158 to 1.000): 2 of 2 members were found
    """
    row, truth = number_row(scores, "scores"), _flags(members, "members")
    decided = np.zeros(len(row), dtype=np.bool_) if decisions is None else _flags(decisions, "decisions")
    if not 0 < len(row) == len(decided) == len(truth):
        raise InputError(
            f"every user needs a score, a decision and the truth, got {len(row)}, {len(decided)} and {len(truth)}; give one of each, "
            "for at least one user"
        )
    level = checked_confidence(confidence)
    there, area = int(truth.sum()), _area(row[truth], row[~truth], level)
    found = int(np.sum(decided & truth))
    right, named = int(np.sum(decided == truth)), int(decided.sum())
    measured = Detection(
        members=there,
        non_members=len(row) - there,
        accuracy=_rate("accuracy", right, len(row), "users", "were decided correctly", level),
        auc=area,
        precision=_rate("precision", found, named, "users said to be members", "are members", level),
        recall=_rate("recall", found, there, "members", "were found", level),
    )
    return undecided(measured) if decisions is None else measured


def undecided(found: Detection) -> Detection:
    """The same, where nothing was decided about any user: the area is all that is measured."""
    rates = {
        name: Estimate.not_measured(name, f"{name} cannot be measured: nothing was decided about any user")
        for name in ("accuracy", "precision", "recall")
    }
    return msgspec.structs.replace(found, **rates)


def _rate(method: str, count: int, users: int, whom: str, what: str, level: float) -> Estimate:
    if not users:
        return Estimate.not_measured(method, f"{method} cannot be measured: there are no {whom}")
    low, high = clopper_pearson(count, users, level)
    mix = () if method == "recall" else (_THIS_MIX,)
    return Estimate(
        method=method,
        status="measured",
        value=count / users,
        low=low,
        high=high,
        confidence=level,
        n=users,
        statement=(
            f"{method} is {count / users:.3f} ({100 * level:g}% interval {low:.3f} to {high:.3f}): {count:,} of {users:,} {whom} {what}"
        ),
        assumptions=(_DRAWN, _ALONE, _THIS_MODEL, *mix),
    )


def _area(in_scores: ArrayLike, out_scores: ArrayLike, level: float) -> Estimate:
    sides = {"members": len(np.asarray(in_scores)), "non-members": len(np.asarray(out_scores))}
    for side, users in sides.items():
        if not users:
            return Estimate.not_measured(
                "area under the ROC curve", f"AUC cannot be measured: there are no {side}"
            )
    found = area_under_roc(in_scores, out_scores, level)
    if found.value is None:
        return found
    return msgspec.structs.replace(
        found,
        statement=(
            f"AUC is {found.value:.3f} ({100 * level:g}% interval {found.low:.3f} to {found.high:.3f}), where 0.5 is chance: "
            f"{sides['members']:,} members and {sides['non-members']:,} non-members"
        ),
        assumptions=(_DRAWN, _THIS_MODEL),
    )


def _flags(values: ArrayLike, what: str) -> NDArray[np.bool_]:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype != np.bool_):
        raise InputError(
            f"{what} must be one row of True and False, got {array.dtype} of shape {array.shape}"
        )
    return array.astype(np.bool_)
