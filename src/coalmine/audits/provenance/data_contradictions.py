"""Whether what was checked about the data of an audit can be true together: the blind baseline, time ranges, overlaps and counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coalmine.audits.provenance.blind_baseline import MOST_USERS
from coalmine.audits.provenance.data_checks import users_needed
from coalmine.audits.provenance.overlaps import DIFFERENT_TEXTS
from coalmine.records.contradictions import (
    another_interval,
    at_most,
    count_problems,
    estimate_problems,
    in_range,
    same,
    share_problems,
    twice,
)
from coalmine.statistics.intervals import effective_interval

if TYPE_CHECKING:
    from coalmine.audits.provenance.blind_baseline import BlindBaseline
    from coalmine.audits.provenance.data_checks import (
        DataChecks,
        RepeatedTexts,
        TimeRange,
        TimeRanges,
        UnknownWords,
        UsersNeeded,
    )
    from coalmine.audits.provenance.overlaps import Overlap
    from coalmine.audits.provenance.results import Provenance, Question
    from coalmine.records import Estimate


def data_problems(document: Provenance) -> Iterator[str]:
    """What cannot be true about the data of an audit."""
    texts = document.question("texts")
    for blind, asked in (
        (document.blind_baseline, texts),
        (document.others_blind_baseline, document.question("user")),
    ):
        if blind is not None:
            yield from _blind_problems(blind, asked)
    checks: DataChecks = document.checks
    for times in (checks.time_ranges, checks.others_time_ranges):
        if times is not None:
            yield from _time_problems(times)
    if checks.repeated_texts is not None:
        yield from _repeated_problems(checks.repeated_texts)
    if checks.unknown_words is not None:
        yield from _unknown_problems(checks.unknown_words)
    yield from _overlap_problems(checks.overlaps)
    if checks.users_needed is not None:
        yield from _needed_problems(checks.users_needed, texts, document.settings.fdr)


def _blind_problems(blind: BlindBaseline, texts: Question | None) -> Iterator[str]:
    name = "the blind baseline"
    counts = [
        *count_problems(f"{name}: the number of suspects", blind.suspects),
        *count_problems(f"{name}: the number of non-members", blind.non_members),
        *count_problems(f"{name}: the number of orders", blind.orders),
        *share_problems(f"{name}: the p-value", blind.p_value),
        *share_problems(f"{name}: the smallest p-value", blind.smallest_p_value),
        *share_problems(f"{name}: the p-value of the scores", blind.scores_p_value),
    ]
    yield from counts
    yield from twice("group of features", [group.name for group in blind.groups])
    if counts:
        return
    if texts is not None and (blind.suspects, blind.non_members) != (
        len(texts.rows) if texts.own_texts is None else texts.own_texts,
        texts.non_members,
    ):
        yield f"{name} is about other users than the audit"
    trials = min(blind.suspects, blind.non_members, MOST_USERS)
    yield from _area_problems(name, blind.auc, trials)
    for group in blind.groups:
        whose = f"{name}: {group.name}"
        yield from share_problems(f"{whose}: the p-value", group.p_value)
        yield from _area_problems(whose, group.auc, trials)
        if group.p_value is not None and (blind.p_value is None or not at_most(blind.p_value, group.p_value)):
            yield f"{name} has a p-value above that of {group.name}, although it is the smallest"
    if (blind.p_value is None) != (blind.auc.value is None):
        yield f"{name} has a p-value without an AUC, or an AUC without a p-value"
    if blind.p_value is not None and not at_most(1 / max(1, blind.orders), blind.p_value):
        yield f"{name} has a p-value that {blind.orders:,} orders of the labels cannot give"


def _area_problems(name: str, auc: Estimate, trials: int) -> Iterator[str]:
    strange = list(estimate_problems(f"{name}: the AUC", auc, 0, 1))
    yield from strange
    if strange or auc.value is None or auc.confidence is None:
        return
    if trials < 1 or another_interval(auc, *effective_interval(auc.value, trials, auc.confidence)):
        yield f"{name} has an AUC with an interval that {trials:,} users on a side do not give"


def _time_problems(times: TimeRanges) -> Iterator[str]:
    for name, side, share in (
        ("suspects", times.suspects, times.suspects_within),
        ("non-members", times.non_members, times.non_members_within),
    ):
        yield from count_problems(f"the number of dated texts of {name}", side.dated, 1)
        yield from count_problems(f"the number of texts of {name} without a date", side.undated)
        yield from share_problems(f"the share of texts of {name} within the time of the others", share)
        if side.first > side.last:
            yield f"the texts of {name} begin after they end"
    # Days say nothing about the order of two times on one day.
    if times.disjoint and _overlap(times.suspects, times.non_members):
        yield "the time ranges of suspects and non-members overlap, and are said not to"
    if not times.disjoint and (
        times.suspects.last < times.non_members.first or times.non_members.last < times.suspects.first
    ):
        yield "the time ranges of suspects and non-members do not overlap, and are said to"
    if times.disjoint and times.share > 0:
        yield "texts are within the time of the other group, although the time ranges do not overlap"


def _overlap(one: TimeRange, other: TimeRange) -> bool:
    return one.first < other.last and other.first < one.last


def _repeated_problems(found: RepeatedTexts) -> Iterator[str]:
    name = "repeated texts"
    for what, part, whole in (
        ("texts of several users", found.repeated, found.texts),
        ("users with such a text", found.affected_users, found.users),
        ("users who have the same text", found.most_users, max(1, found.users)),
    ):
        yield from in_range(f"{name}: the number of {what}", part, 0, whole)
    if (found.repeated == 0) != (found.affected_users == 0) or (found.repeated > 0) != (found.most_users > 1):
        yield f"{name}: users share a text if and only if there is one that several of them have"


def _unknown_problems(found: UnknownWords) -> Iterator[str]:
    yield from twice("unknown words of", [one.group for one in found.groups])
    for one in found.groups:
        name = f"the unknown words of {one.group}"
        yield from count_problems(f"{name}: the number of users", one.users, 1)
        yield from in_range(f"{name}: their number", one.unknown, 0, one.tokens)
        yield from share_problems(f"{name}: their mean share", one.mean_share)
        if one.tokens > 0 and not same(one.share, one.unknown / one.tokens):
            yield f"{name} are not the share of all words that is given"
    if found.difference is not None:
        yield from share_problems("the p-value of the difference in unknown words", found.difference.p_value)


def _overlap_problems(overlaps: tuple[Overlap, ...]) -> Iterator[str]:
    yield from twice("overlap of", [f"{one.first} and {one.second}" for one in overlaps])
    for one in overlaps:
        name = f"the overlap of {one.first} and {one.second}"
        yield from in_range(f"{name}: the number of users", one.users, 0, one.first_users)
        yield from in_range(f"{name}: the place of a user", min(one.sharing, default=1), 1)
        for size in (one.first_texts, one.second_texts):
            if size is not None:
                yield from in_range(f"{name}: the number of texts", one.texts, 0, size)
        if (one.first, one.second) not in DIFFERENT_TEXTS or not (one.users or one.texts):
            yield f"{name} is not one of groups that must not share anything, or they share nothing"


def _needed_problems(found: UsersNeeded, texts: Question | None, fdr: float) -> Iterator[str]:
    name = "what so many non-members can show"
    if not 0 < fdr < 1 or texts is None or not texts.rows:
        return
    if (found.suspects, found.non_members) != (len(texts.rows), texts.non_members) or not same(
        found.fdr, fdr
    ):
        yield f"{name} is about other users, or another false-discovery rate, than the audit"
        return
    smallest = 1 / (found.non_members + 1)
    if not same(found.smallest_p_value, smallest):
        yield f"{name} has a smallest p-value that {found.non_members:,} non-members do not give"
        return
    expected = users_needed(found.suspects, found.non_members, fdr, smallest)
    if any(
        getattr(found, field) != getattr(expected, field)
        for field in ("together", "needed_for_one", "needed_for_all")
    ):
        yield f"{name} does not follow from their number"
