"""Whether the rates of a detection can be true together: counts add up, and intervals and sentences follow from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coalmine.records.contradictions import (
    another_interval,
    count_problems,
    estimate_problems,
    hits_of,
    same,
)
from coalmine.statistics.intervals import clopper_pearson, effective_interval

if TYPE_CHECKING:
    from coalmine.records import Estimate
    from coalmine.statistics.provenance.detection import Detection


def detection_problems(
    name: str, detection: Detection | None, users: int, found: int | None, confidence: float
) -> Iterator[str]:
    """What cannot be true about how well `users` users were told apart, of whom `found` were said to be members."""
    if detection is None:
        return
    members, others = detection.members, detection.non_members
    counts = [*count_problems(f"{name}: the number of members", members)]
    counts += count_problems(f"{name}: the number of users who are not members", others)
    if counts:
        yield from counts
        return
    if members + others != users:
        yield f"{name} has the truth about {members + others:,} users, and scores of {users:,}"
        return
    yield from _area_problems(name, detection, confidence)
    rates = {"accuracy": (detection.accuracy, users), "precision": (detection.precision, found or 0)}
    rates["recall"] = (detection.recall, members)
    strange = [
        problem
        for what, (rate, of) in rates.items()
        for problem in _rate_problems(f"{name}: the {what}", rate, of, confidence)
    ]
    yield from strange
    if not strange and found is not None:
        yield from _sum_problems(name, detection, found)


def _rate_problems(name: str, rate: Estimate, of: int, confidence: float) -> Iterator[str]:
    strange = list(estimate_problems(name, rate, 0, 1))
    yield from strange
    if rate.value is None or strange:
        return
    hits = hits_of(rate.value, rate.n)
    if rate.n != of or hits is None:
        yield f"{name} is {rate.value:g} of {rate.n:,}, which is not a share of {of:,} users"
        return
    if rate.confidence is None or not same(rate.confidence, confidence):
        yield f"{name} has another confidence than the results, {confidence:g}"
    elif another_interval(rate, *clopper_pearson(hits, of, confidence)):
        yield f"{name} has an interval that {hits:,} of {of:,} users do not give"


def _sum_problems(name: str, detection: Detection, found: int) -> Iterator[str]:
    """Members who were found are the same in all rates."""
    hits = hits_of(detection.recall.value or 0.0, detection.members) or 0
    named = hits_of(detection.precision.value or 0.0, found) or 0
    if hits != named:
        yield f"{name} has {hits:,} members who were found by its recall, and {named:,} by its precision"
    right = hits + detection.non_members - (found - hits)
    users = detection.members + detection.non_members
    if detection.accuracy.value is not None and hits_of(detection.accuracy.value, users) != right:
        yield f"{name} has an accuracy that its recall and precision contradict"


def _area_problems(name: str, detection: Detection, confidence: float) -> Iterator[str]:
    auc, members, others = detection.auc, detection.members, detection.non_members
    whose = f"{name}: the AUC"
    strange = list(estimate_problems(whose, auc, 0, 1))
    yield from strange
    if auc.value is None or strange:
        return
    if not (members and others) or auc.n != members + others:
        yield f"{whose} is of {auc.n:,} users, and there are {members:,} members and {others:,} others"
        return
    # Each pair of a member and another counts as 0, a half or 1.
    if hits_of(auc.value, 2 * members * others) is None:
        yield f"{whose} is {auc.value:g}, which {members:,} members and {others:,} others do not give"
    if auc.confidence is None or not same(auc.confidence, confidence):
        yield f"{whose} has another confidence than the results, {confidence:g}"
    elif another_interval(auc, *effective_interval(auc.value, min(members, others), confidence)):
        yield f"{whose} has an interval that {members:,} members and {others:,} others do not give"
