"""The blind baseline: whether suspects can be told from non-members without any model, by their words, lengths, dates or numbers of texts.

If they can, a difference between the scores of the two groups may be one of topic or of time and not of membership, and nothing follows
from it (Blind Baselines Beat Membership Inference Attacks for Foundation Models; Das, Zhang and Tramèr, 2024, arXiv:2406.16201).

The classifier is least squares with a quadratic penalty on labels of 1 and -1. Each user is scored by one that was fitted to the other
folds, and only users of the same fold are compared, so that a constant that differs between folds does not matter. Such scores are a fixed
matrix times the labels, so the whole cross-validation is repeated for thousands of orders of the labels by one matrix product. Folds are
drawn at random with the same shares of suspects; given the folds, all orders of the labels inside each are equally likely if the two
groups were drawn alike. So the p-value is exact for any features and any number of users, which that of a Mann-Whitney test on scores
from cross-validation is not: they depend on each other through the classifiers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from coalmine.audits.provenance.user_features import Features, GroupName, user_features
from coalmine.audits.provenance.users import User
from coalmine.errors import InputError
from coalmine.randomness import arrays
from coalmine.records import Estimate
from coalmine.statistics.roc import area_interval
from coalmine.statistics.scores import FloatArray, checked_confidence

METHOD = "blind baseline"
# On each side; a baseline that needs more users to see a difference would see one that hardly matters.
MOST_USERS = 500
FEWEST_USERS = 4
FOLDS = 5
# With fewer users on a side, two folds leave more orders of the labels in each.
FEWEST_FOR_FOLDS = 20
# Of the mean squared norm of the features, which are scaled to 1.
PENALTY = 1.0
# Labels that are scored at a time, so that memory stays bounded.
_ORDERS_AT_ONCE = 500


class GroupResult(msgspec.Struct, frozen=True, kw_only=True):
    """How well one group of features tells suspects from non-members."""

    name: GroupName | Literal["all"]
    # The area under the ROC curve; "not_measured" where users do not differ in these features, or have none.
    auc: Estimate
    # Of an area as high by chance, corrected for the number of groups.
    p_value: float | None


class BlindBaseline(msgspec.Struct, frozen=True, kw_only=True):
    """Whether suspects can be told from non-members without a model.

    `auc` is that of all features together. `p_value` is the smallest of all groups, and all are corrected for their number: at a level of
    1%, one in a hundred random splits fires, whatever the number of groups.
    """

    auc: Estimate
    p_value: float | None
    # Of words, length, dates and posts, in this order.
    groups: tuple[GroupResult, ...]
    suspects: int
    non_members: int
    # How many orders of the labels were tried, the true one included: 1 / orders is the smallest p-value.
    orders: int

    def separating(self, level: float = 0.01) -> tuple[str, ...]:
        """The groups of features that tell suspects from non-members at a level, the clearest first; ("all",) if only all together do."""
        found = [group for group in self.groups if group.p_value is not None and group.p_value <= level]
        found.sort(key=lambda group: (group.p_value or 0.0, -(group.auc.value or 0.0)))
        if found:
            return tuple(group.name for group in found)
        return ("all",) if self.p_value is not None and self.p_value <= level else ()


def blind_baseline(
    suspects: Sequence[User],
    non_members: Sequence[User],
    *,
    orders: int = 2_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> BlindBaseline:
    """Try to tell suspects from non-members by what can be known without a model.

    Of more than 500 users on a side, 500 are drawn. The result is the same for the same users in the same order and the same seed.

    Args:
        suspects: users who are asked about.
        non_members: users who are known not to be in the training data.
        orders: of the labels that are compared, the true one included; the smallest p-value is 1 / orders.
        confidence: of the interval of each area, over users.
        seed: of folds, orders, and the draw of users.

    >>> from coalmine.audits.provenance.users import UserText
    >>> old = [User(f"a{n}", (UserText("hello", date=f"{1990 + n}"),)) for n in range(10)]
    >>> new = [User(f"b{n}", (UserText("hello", date=f"{2010 + n}"),)) for n in range(10)]
    >>> blind_baseline(old, new).separating()
    ('dates',)
    """
    if orders < 2:
        raise InputError(f"orders of the labels must be at least 2, got {orders}; 2000 is usual")
    level = checked_confidence(confidence)
    counted = (len(suspects), len(non_members))
    if min(counted) < FEWEST_USERS:
        why = f"telling suspects from non-members takes at least {FEWEST_USERS} of each, and there are {counted[0]:,} and {counted[1]:,}"
        return _not_measured(why, (), *counted)
    sides = [
        _drawn(side, name, seed) for side, name in ((suspects, "suspects"), (non_members, "non-members"))
    ]
    labels = np.repeat([1.0, -1.0], [len(side) for side in sides])
    features = user_features([*sides[0], *sides[1]], (labels > 0).tolist())
    folds = _folds(labels, seed)
    tried = _orders(labels, folds, orders, seed)
    kernels = {one.name: _kernel(one.values) for one in features if one.values is not None}
    if not kernels:
        return _not_measured(
            "the users differ in nothing that can be seen without a model", features, *counted
        )
    together = np.mean(list(kernels.values()), axis=0)
    names = [*kernels, "all"]
    areas = np.stack([_areas(kernel, folds, tried) for kernel in (*kernels.values(), together)])
    p_values = dict(zip(names, _corrected(areas), strict=True))
    trials = min(len(side) for side in sides)
    found = {
        name: GroupResult(
            name=name,  # type: ignore[arg-type]
            auc=_estimate(float(area), trials, len(labels), level),
            p_value=p_values[name],
        )
        for name, area in zip(names, areas[:, 0], strict=True)
    }
    return BlindBaseline(
        auc=found["all"].auc,
        p_value=min(p_values.values()),
        groups=tuple(found.get(one.name) or _missing(one) for one in features),
        suspects=counted[0],
        non_members=counted[1],
        orders=orders,
    )


def _drawn(users: Sequence[User], side: str, seed: int) -> list[User]:
    if len(users) <= MOST_USERS:
        return list(users)
    chosen = arrays(seed, "blind baseline", side).choice(len(users), MOST_USERS, replace=False)
    return [users[place] for place in sorted(chosen.tolist())]


class _Folds(NamedTuple):
    """The users of each fold."""

    members: tuple[np.ndarray, ...]


def _folds(labels: FloatArray, seed: int) -> _Folds:
    """A random division with the same shares of suspects and of non-members in each fold, as nearly as can be."""
    chance = arrays(seed, "blind baseline", "folds", len(labels))
    fewest = int(min((labels > 0).sum(), (labels < 0).sum()))
    number = FOLDS if fewest >= FEWEST_FOR_FOLDS else 2
    sides = [chance.permutation(np.flatnonzero(side)) for side in (labels > 0, labels < 0)]
    return _Folds(
        tuple(np.sort(np.concatenate([side[fold::number] for side in sides])) for fold in range(number))
    )


def _orders(labels: FloatArray, folds: _Folds, number: int, seed: int) -> FloatArray:
    """The labels in each order, one per column: first the true one, then random ones inside each fold."""
    chance = arrays(seed, "blind baseline", "orders", len(labels), number)
    found = np.repeat(labels[:, None], number, axis=1)  # (users, orders)
    for members in folds.members:
        found[members, 1:] = chance.permuted(found[members, 1:], axis=0)
    return found


def _kernel(values: FloatArray) -> FloatArray:
    """The inner products of users' features around their mean, scaled so that a user's own is 1 on average."""
    products = values @ values.T
    means = products.mean(axis=0)
    # Around the mean of the features, without another array of them.
    products += means.mean() - means - means[:, None]
    return np.asarray(products / (np.trace(products) / len(products)))


def _areas(kernel: FloatArray, folds: _Folds, labels: FloatArray) -> FloatArray:
    """The area under the ROC curve from cross-validation for each order of the labels: the mean over folds, by their pairs."""
    total, pairs = np.zeros(labels.shape[1]), 0
    for members in folds.members:
        scoring = _scoring(kernel, members)
        suspects = int((labels[members, 0] > 0).sum())
        weight = suspects * (len(members) - suspects)
        for begin in range(0, labels.shape[1], _ORDERS_AT_ONCE):
            some = labels[:, begin : begin + _ORDERS_AT_ONCE]
            others = np.delete(some, members, axis=0)
            total[begin : begin + some.shape[1]] += weight * _fold_areas(scoring @ others, some[members] > 0)
        pairs += weight
    return total / pairs


def _scoring(kernel: FloatArray, members: np.ndarray) -> FloatArray:
    """The matrix that makes the scores of a fold's users from the labels of all others: least squares with an intercept."""
    others = np.delete(np.arange(len(kernel)), members)
    inner = kernel[np.ix_(others, others)]
    across = kernel[np.ix_(members, others)]
    # Features around the mean of the users that are fitted to; a constant in all scores of a fold would not matter.
    means = inner.mean(axis=0)
    inner = inner - means - means[:, None] + means.mean()
    across = across - across.mean(axis=1, keepdims=True) - means + means.mean()
    weights = np.linalg.solve(inner + PENALTY * np.eye(len(others)), across.T).T
    # Centering the labels too, on the side of the matrix.
    return np.asarray(weights - weights.mean(axis=1, keepdims=True))


def _fold_areas(scores: FloatArray, is_suspect: np.ndarray) -> FloatArray:
    """The area under the ROC curve of each column; ties count half."""
    from scipy.stats import rankdata

    # Sums of the same numbers in another order differ by rounding, and are ties.
    ranks = rankdata(np.round(scores, 9), axis=0)
    suspects = is_suspect.sum(axis=0)
    beaten = (ranks * is_suspect).sum(axis=0) - suspects * (suspects + 1) / 2
    return np.asarray(beaten / (suspects * (len(scores) - suspects)))


def _corrected(areas: FloatArray) -> list[float]:
    """The p-value of each group for the first order, corrected for the number of groups by the highest area of each order.

    As in Resampling-Based Multiple Testing (Westfall and Young, 1993): areas are standardized over all orders, and the same orders give the
    distribution of the highest one, with all dependence between groups.
    """
    spread = areas.std(axis=1, keepdims=True)
    # Areas that never change say nothing, whatever rounding does to them.
    standard = np.where(
        spread > 1e-9, (areas - areas.mean(axis=1, keepdims=True)) / np.maximum(spread, 1e-9), 0.0
    )
    highest = standard.max(axis=0)
    return [float(np.mean(highest >= own - 1e-9)) for own in standard[:, 0]]


def _estimate(area: float, trials: int, n: int, level: float) -> Estimate:
    low, high = area_interval(area, trials, level)
    return Estimate(
        method=METHOD,
        status="measured",
        value=area,
        low=low,
        high=high,
        confidence=level,
        n=n,
        statement=(
            f"without any model, AUC is {area:.3f} ({100 * level:g}% interval {low:.3f} to {high:.3f}), where 0.5 is chance: {n:,} users"
        ),
        assumptions=("users are independent of each other",),
        warnings=(
            "the interval leaves out that the classifiers of the folds depend on each other; the p-value does not",
        ),
    )


def _missing(features: Features) -> GroupResult:
    return GroupResult(name=features.name, auc=Estimate.not_measured(METHOD, features.missing), p_value=None)


def _not_measured(why: str, features: Sequence[Features], suspects: int, non_members: int) -> BlindBaseline:
    return BlindBaseline(
        auc=Estimate.not_measured(METHOD, why),
        p_value=None,
        groups=tuple(_missing(one) for one in features),
        suspects=suspects,
        non_members=non_members,
        orders=0,
    )
