"""Checks of the data that stop a false claim: time ranges, repeated texts, unknown words, overlaps between groups, and too few users.

Every check takes users, or counts, and gives a small record; none of them asks a model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import get_args

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from coalmine.audits.provenance.dates import day_of, seconds_since_1970
from coalmine.audits.provenance.overlaps import (
    DIFFERENT_TEXTS,
    DIFFERENT_USERS,
    Group,
    Groups,
    KnowsReference,
    Overlap,
    overlaps,
)
from coalmine.audits.provenance.repetition import IndexedCorpus, RepeatedTexts, repeated_texts
from coalmine.audits.provenance.text_hashes import SHORTEST_TEXT
from coalmine.audits.provenance.users import By, User
from coalmine.errors import InputError
from coalmine.records.estimate import Count, Share
from coalmine.statistics.differences import Difference, unpaired_difference
from coalmine.statistics.provenance.conformal import non_members_needed, smallest_p_value
from coalmine.statistics.scores import FloatArray

__all__ = [
    "DIFFERENT_TEXTS",
    "DIFFERENT_USERS",
    "DataChecks",
    "Group",
    "Groups",
    "IndexedCorpus",
    "KnowsReference",
    "Overlap",
    "RepeatedTexts",
    "TimeRange",
    "TimeRanges",
    "UnknownShare",
    "UnknownWords",
    "UsersNeeded",
    "check_data",
    "overlaps",
    "repeated_texts",
    "time_ranges",
    "unknown_words",
    "users_needed",
]

# Of the dates of a group: the texts outside of them are few, and one wrong date does not make the range long.
CENTRAL = (0.01, 0.99)


class TimeRange(msgspec.Struct, frozen=True, kw_only=True):
    """When the texts of a group were written: the first and the last day (ISO 8601, UTC), and how many texts have a date."""

    first: str
    last: str
    dated: Count
    undated: Count


class TimeRanges(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the texts of suspects and of non-members are of the same time.

    A share is that of the dated texts of one group within the time of the other, from the 1st to the 99th percentile of its dates. Both
    are near 0.98 for groups of the same time.
    """

    suspects: TimeRange
    non_members: TimeRange
    suspects_within: Share
    non_members_within: Share
    # Whether one group ends before the other begins.
    disjoint: bool

    @property
    def share(self) -> float:
        """The smaller of the two shares: 0 where the ranges do not overlap."""
        return min(self.suspects_within, self.non_members_within)


class UnknownShare(msgspec.Struct, frozen=True, kw_only=True):
    """The share of words of a group that the target does not know: over all words, and the mean over users."""

    group: Group
    users: Count
    unknown: Count
    tokens: Count
    share: Share
    mean_share: Share


class UnknownWords(msgspec.Struct, frozen=True, kw_only=True):
    """Unknown words of suspects and of non-members; `difference` is in percentage points, over users."""

    groups: tuple[UnknownShare, ...]
    # None with fewer than two groups.
    difference: Difference | None

    def differ(self, level: float = 0.01) -> bool:
        """Whether suspects and non-members differ in it by more than chance explains, at a level."""
        return self.difference is not None and self.difference.p_value <= level


class UsersNeeded(msgspec.Struct, frozen=True, kw_only=True):
    """What a number of non-members can show at a false-discovery rate."""

    suspects: Count
    non_members: Count
    fdr: Share
    smallest_p_value: Share
    # So many suspects must have the smallest p-value for any of them to be found; above `suspects`, nobody can be.
    together: Count
    # So many non-members are needed to find a single suspect among this many, and to find anyone at all if all stand out.
    needed_for_one: Count
    needed_for_all: Count

    @property
    def too_few(self) -> bool:
        """Whether nobody can be found, however clear the scores are."""
        return self.together > self.suspects


class DataChecks(msgspec.Struct, frozen=True, kw_only=True):
    """All checks of the data of an audit; None for what could not be checked, because it was not given."""

    time_ranges: TimeRanges | None = None
    # Of other texts of suspects, and of non-members.
    others_time_ranges: TimeRanges | None = None
    repeated_texts: RepeatedTexts | None = None
    unknown_words: UnknownWords | None = None
    # Only those that share something.
    overlaps: tuple[Overlap, ...] = ()
    users_needed: UsersNeeded | None = None


def check_data(
    groups: Groups,
    fit: KnowsReference | None = None,
    unknown: Mapping[Group, tuple[ArrayLike, ArrayLike]] | None = None,
    *,
    fdr: float,
    by: By = "user",
    indexed: IndexedCorpus | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> DataChecks:
    """All checks that can be made of what is given.

    Args:
        groups: the users of each role.
        fit: knows the reference users where `groups` has none.
        unknown: as `counts` of `unknown_words`.
        fdr: the false-discovery rate that is asked for.
        by: documents have no names, so that only their texts are compared, also short ones.
        indexed: an index of the corpus that one of the groups was read from.
        confidence: of the interval of the difference in unknown words.
        seed: of the exchanges behind it.
    """
    asked = groups.suspects or groups.others
    shortest = 1 if by == "document" else SHORTEST_TEXT
    needed = None
    if asked and groups.non_members and by != "person":
        non_members = len(groups.non_members)
        needed = users_needed(len(asked), non_members, fdr, smallest_p_value(non_members))
    there = groups.named()
    if by == "document":  # the lines of several files have the same names
        there = {
            name: [user._replace(name=f"{name} {user.name}") for user in users]
            for name, users in there.items()
        }
    repeated = repeated_texts(there, shortest=shortest, indexed=indexed) if there else None
    return DataChecks(
        time_ranges=time_ranges(asked, groups.non_members),
        others_time_ranges=time_ranges(groups.others, groups.other_non_members or groups.non_members)
        if groups.suspects
        else None,
        repeated_texts=repeated,
        unknown_words=None if unknown is None else unknown_words(unknown, confidence=confidence, seed=seed),
        overlaps=overlaps(groups, fit, named=by != "document", shortest=shortest),
        users_needed=needed,
    )


def time_ranges(suspects: Sequence[User], non_members: Sequence[User]) -> TimeRanges | None:
    """Whether the texts of two groups are of the same time; None where either has no dates.

    >>> from coalmine.audits.provenance.users import UserText
    >>> found = time_ranges(
    ...     [User("ann", (UserText("hello", date="2018-03-01"), UserText("bye", date="2018-04-01")))],
    ...     [User("bob", (UserText("hello", date="2019-01-01"),))],
    ... )
    >>> found.disjoint, found.share, found.suspects.last
    (True, 0.0, '2018-04-01')
    """
    sides = [_seconds(users) for users in (suspects, non_members)]
    if not all(len(dates) for dates, _ in sides):
        return None
    (first, _), (second, _) = sides
    ranges = [
        TimeRange(
            first=day_of(float(dates.min())),
            last=day_of(float(dates.max())),
            dated=len(dates),
            undated=undated,
        )
        for dates, undated in sides
    ]
    return TimeRanges(
        suspects=ranges[0],
        non_members=ranges[1],
        suspects_within=_share_within(first, second),
        non_members_within=_share_within(second, first),
        disjoint=bool(first.max() < second.min() or second.max() < first.min()),
    )


def unknown_words(
    counts: Mapping[Group, tuple[ArrayLike, ArrayLike]], *, confidence: float = 0.95, seed: int = 0
) -> UnknownWords:
    """The share of unknown words of each group, and whether suspects and non-members differ in it.

    Args:
        counts: for each group, how many words of each user are unknown, and how many words each has in all, unknown ones included.
        confidence: of the interval of the difference, over users.
        seed: of the exchanges between groups, if there are too many to try all.

    >>> found = unknown_words({"suspects": ([1, 0, 2, 1], [100, 90, 110, 100]), "non-members": ([30, 25, 33, 31], [100, 90, 110, 100])})
    >>> found.groups[0].share, found.difference.p_value < 0.05
    (0.01, True)
    """
    groups: list[UnknownShare] = []
    shares: dict[Group, FloatArray] = {}
    for group, (unknown, total) in counts.items():
        if group not in get_args(Group):
            raise InputError(f"unknown words are counted for {', '.join(get_args(Group))}, got {group!r}")
        some, every = np.asarray(unknown, dtype=np.int64), np.asarray(total, dtype=np.int64)
        if some.shape != every.shape or (some < 0).any() or (some > every).any():
            raise InputError(
                f"the {group} need a number of unknown words and one of all words per user, which is not smaller; count both again"
            )
        some, every = some[every > 0], every[every > 0]
        if not len(every):
            continue
        shares[group] = some / every
        groups.append(
            UnknownShare(
                group=group,
                users=len(every),
                unknown=int(some.sum()),
                tokens=int(every.sum()),
                share=float(some.sum() / every.sum()),
                mean_share=float(shares[group].mean()),
            )
        )
    difference = None
    if "suspects" in shares and "non-members" in shares:
        sides = [100.0 * shares["suspects"]], [100.0 * shares["non-members"]]
        difference = unpaired_difference(
            *sides, most=100.0, confidence=confidence, seed=seed, unit="percentage points"
        )
    return UnknownWords(groups=tuple(groups), difference=difference)


def users_needed(suspects: int, non_members: int, fdr: float, smallest_p_value: float) -> UsersNeeded:
    """What so many non-members can show about so many suspects by Benjamini-Hochberg, where k of s suspects are found if p <= k fdr / s.

    `smallest_p_value` is 1 / (non-members + 1) for conformal p-values.

    >>> found = users_needed(suspects=100, non_members=99, fdr=0.05, smallest_p_value=0.01)
    >>> found.together, found.needed_for_one, found.needed_for_all, found.too_few
    (20, 1999, 19, False)
    """
    if suspects < 1 or non_members < 0 or not 0 < fdr < 1 or not 0 < smallest_p_value <= 1:
        raise InputError(
            f"this takes at least 1 suspect, a rate between 0 and 1 and a p-value up to 1, got {suspects}, {fdr} and {smallest_p_value}"
        )
    return UsersNeeded(
        suspects=suspects,
        non_members=non_members,
        fdr=fdr,
        smallest_p_value=smallest_p_value,
        # A tolerance for rounding, so that 0.05 / 20 is not above 1 / 400.
        together=max(1, math.ceil(suspects * smallest_p_value / fdr * (1 - 1e-12))),
        needed_for_one=non_members_needed(suspects, fdr),
        needed_for_all=non_members_needed(suspects, fdr, shown=suspects),
    )


def _seconds(users: Sequence[User]) -> tuple[FloatArray, int]:
    """The dates of all texts of a group, and how many texts have none."""
    texts = sum(len(user.texts) for user in users)
    found = (seconds_since_1970(text.date) for user in users for text in user.texts if text.date is not None)
    dates = np.fromiter((seconds for seconds in found if seconds is not None), dtype=np.float64)
    return dates, texts - len(dates)


def _share_within(dates: FloatArray, of: FloatArray) -> float:
    low, high = np.quantile(of, CENTRAL)
    return float(np.mean((dates >= low) & (dates <= high)))
