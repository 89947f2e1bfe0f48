"""Checks of the data that stop a false claim: time ranges, repeated texts, unknown words, overlaps between groups, and too few users.

Every check takes users, or counts, and gives a small record; none of them asks a model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from coalmine.audits.provenance.dates import day_of, seconds_since_1970
from coalmine.audits.provenance.text_hashes import SHORTEST_TEXT, GroupHashes, OwnedTexts, long_enough
from coalmine.audits.provenance.users import By, User
from coalmine.errors import InputError
from coalmine.statistics.differences import Difference, unpaired_difference
from coalmine.statistics.scores import FloatArray

if TYPE_CHECKING:
    from coalmine.corpus.index.queries import CorpusIndex

Group = Literal["suspects", "others", "non-members", "reference"]
# Of the dates of a group: the texts outside of them are few, and one wrong date does not make the range long.
CENTRAL = (0.01, 0.99)
# Copies of one text that are looked at.
MOST_COPIES = 1_000
# Groups that must not share users, and those that must not share texts: other texts by a suspect are meant to be of the same user.
DIFFERENT_USERS: tuple[tuple[Group, Group], ...] = (
    ("suspects", "non-members"),
    ("suspects", "reference"),
    ("others", "non-members"),
    ("others", "reference"),
    ("non-members", "reference"),
)
DIFFERENT_TEXTS: tuple[tuple[Group, Group], ...] = (("suspects", "others"), *DIFFERENT_USERS)


class TimeRange(msgspec.Struct, frozen=True, kw_only=True):
    """When the texts of a group were written: the first and the last day (ISO 8601, UTC), and how many texts have a date."""

    first: str
    last: str
    dated: int
    undated: int


class TimeRanges(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the texts of suspects and of non-members are of the same time.

    A share is that of the dated texts of one group within the time of the other, from the 1st to the 99th percentile of its dates. Both
    are near 0.98 for groups of the same time.
    """

    suspects: TimeRange
    non_members: TimeRange
    suspects_within: float
    non_members_within: float
    # Whether one group ends before the other begins.
    disjoint: bool

    @property
    def share(self) -> float:
        """The smaller of the two shares: 0 where the ranges do not overlap."""
        return min(self.suspects_within, self.non_members_within)


class RepeatedTexts(msgspec.Struct, frozen=True, kw_only=True):
    """How many texts occur under several users, such as quotations, forwarded mail or templates; texts of fewer bytes are left out."""

    shortest: int
    # Different texts, those of them that several users have, and users with such a text.
    texts: int
    repeated: int
    users: int
    affected_users: int
    # How many users have the text that most of them have.
    most_users: int
    # Also inside longer texts of other users, which takes an index of the corpus; None without one.
    quoted: int | None = None

    @property
    def share(self) -> float | None:
        """The share of texts that several users have; None where no text is long enough."""
        return self.repeated / self.texts if self.texts else None


class UnknownShare(msgspec.Struct, frozen=True, kw_only=True):
    """The share of words of a group that the target does not know: over all words, and the mean over users."""

    group: Group
    users: int
    unknown: int
    tokens: int
    share: float
    mean_share: float


class UnknownWords(msgspec.Struct, frozen=True, kw_only=True):
    """Unknown words of suspects and of non-members; `difference` is in percentage points, over users."""

    groups: tuple[UnknownShare, ...]
    # None with fewer than two groups.
    difference: Difference | None

    def differ(self, level: float = 0.01) -> bool:
        """Whether suspects and non-members differ in it by more than chance explains, at a level."""
        return self.difference is not None and self.difference.p_value <= level


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """Users and texts that two groups share; how many of those of the first group, and how many it has."""

    first: Group
    second: Group
    # None where users are documents, which have no names of their own, or may be the same.
    users: int | None
    first_users: int
    texts: int
    first_texts: int


class UsersNeeded(msgspec.Struct, frozen=True, kw_only=True):
    """What a number of non-members can show at a false-discovery rate."""

    suspects: int
    non_members: int
    fdr: float
    smallest_p_value: float
    # So many suspects must have the smallest p-value for any of them to be found; above `suspects`, nobody can be.
    together: int
    # So many non-members are needed to find a single suspect among this many, and to find anyone at all if all stand out.
    needed_for_one: int
    needed_for_all: int

    @property
    def too_few(self) -> bool:
        """Whether nobody can be found, however clear the scores are."""
        return self.together > self.suspects


class DataChecks(msgspec.Struct, frozen=True, kw_only=True):
    """All checks of the data of an audit; None for what could not be checked, because it was not given."""

    time_ranges: TimeRanges | None = None
    repeated_texts: RepeatedTexts | None = None
    unknown_words: UnknownWords | None = None
    # Only those that share something.
    overlaps: tuple[Overlap, ...] = ()
    users_needed: UsersNeeded | None = None


def check_data(
    groups: Mapping[Group, Sequence[User]],
    *,
    by: By = "user",
    reference: GroupHashes | None = None,
    unknown: Mapping[Group, tuple[Sequence[int], Sequence[int]]] | None = None,
    index: CorpusIndex | None = None,
    fdr: float | None = None,
    smallest_p_value: float | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> DataChecks:
    """All checks that can be made of what is given.

    Args:
        groups: the users of each group; suspects or others, and whatever else there is.
        by: documents have no names, so that only their texts are compared, also short ones.
        reference: the hashes of reference users that are not in `groups`, from the file of a fit.
        unknown: as `counts` of `unknown_words`.
        index: of the one corpus file that all users of `groups` were read from.
        fdr: the false-discovery rate that is asked for, with the `smallest_p_value` that there can be.
        smallest_p_value: None without non-members.
        confidence: of the interval of the difference in unknown words.
        seed: of the exchanges behind it.
    """
    asked = groups.get("suspects") or groups.get("others") or ()
    non_members = groups.get("non-members") or ()
    shortest = SHORTEST_TEXT if by == "user" else 1
    salt = ""
    if reference is not None:
        shortest, salt = reference.shortest, reference.salt
    hashes = {name: GroupHashes.of(users, shortest=shortest, salt=salt) for name, users in groups.items() if users}
    if reference is not None:
        hashes["reference"] = reference
    needed = None
    if asked and fdr is not None and smallest_p_value is not None:
        needed = users_needed(len(asked), len(non_members), fdr, smallest_p_value)
    everyone = [user for users in groups.values() for user in users]
    if by == "document":  # the lines of several files have the same names
        everyone = [user._replace(name=f"{name} {user.name}") for name, users in groups.items() for user in users]
    return DataChecks(
        time_ranges=time_ranges(asked, non_members),
        repeated_texts=repeated_texts(everyone, shortest=shortest, index=index) if everyone else None,
        unknown_words=None if unknown is None else unknown_words(unknown, confidence=confidence, seed=seed),
        overlaps=overlaps(hashes, named=by == "user"),
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
            first=day_of(float(dates.min())), last=day_of(float(dates.max())), dated=len(dates), undated=undated
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


def repeated_texts(
    users: Sequence[User], *, shortest: int = SHORTEST_TEXT, index: CorpusIndex | None = None
) -> RepeatedTexts:
    """Which texts occur under several users, after normalization of white space; users of the same name are one.

    Args:
        users: of all groups.
        shortest: texts below this many bytes of UTF-8 are left out.
        index: of the corpus file that all of these users were read from; it also finds texts inside longer ones.

    >>> from coalmine.audits.provenance.users import UserText
    >>> both = UserText("Please find attached the minutes of the meeting.")
    >>> found = repeated_texts([User("ann", (both, UserText("My own words, and nobody else's."))), User("bob", (both,))])
    >>> found.repeated, found.texts, found.affected_users
    (1, 2, 2)
    """
    found = OwnedTexts.of(users, shortest=shortest)
    shared = found.shared()
    copies = np.unique(found.texts[shared], return_counts=True)[1]
    return RepeatedTexts(
        shortest=shortest,
        texts=len(np.unique(found.texts)),
        repeated=len(copies),
        users=len({user.name for user in users}),
        affected_users=len(np.unique(found.owners[shared])),
        most_users=int(copies.max()) if len(copies) else 1,
        quoted=None if index is None else _quoted(users, index, shortest),
    )


def unknown_words(
    counts: Mapping[Group, tuple[Sequence[int], Sequence[int]]], *, confidence: float = 0.95, seed: int = 0
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
        some, every = np.asarray(unknown, dtype=np.int64), np.asarray(total, dtype=np.int64)
        if some.shape != every.shape or (some < 0).any() or (some > every).any():
            raise InputError(f"the {group} need a number of unknown words and one of all words per user, which is not smaller; count both again")
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


def overlaps(groups: Mapping[Group, GroupHashes], *, named: bool = True) -> tuple[Overlap, ...]:
    """The pairs of groups that share users or texts and must not.

    Args:
        groups: hashes of the users of each group, all with the same salt; those of the reference users can come from a file.
        named: whether users have names; without, only texts are compared.

    >>> from coalmine.audits.provenance.users import UserText
    >>> ann = [User("ann", (UserText("I wrote this, and only I."),))]
    >>> group = GroupHashes.of(ann, shortest=1)
    >>> [(one.first, one.second, one.users, one.texts) for one in overlaps({"suspects": group, "reference": group})]
    [('suspects', 'reference', 1, 1)]
    """
    if len({(group.salt, group.shortest) for group in groups.values()}) > 1:
        raise InputError("hashes of groups can be compared only if they have the same salt and leave out texts of the same lengths")
    found: list[Overlap] = []
    for first, second in DIFFERENT_TEXTS:
        if first not in groups or second not in groups:
            continue
        one, other = groups[first], groups[second]
        users = None
        if named and (first, second) in DIFFERENT_USERS:
            users = len(np.intersect1d(one.user_hashes(), other.user_hashes(), assume_unique=True))
        texts = len(np.intersect1d(one.text_hashes(), other.text_hashes(), assume_unique=True))
        if users or texts:
            found.append(
                Overlap(
                    first=first,
                    second=second,
                    users=users,
                    first_users=len(one.user_hashes()),
                    texts=texts,
                    first_texts=len(one.text_hashes()),
                )
            )
    return tuple(found)


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
    # A tolerance for rounding, so that 0.05 / 20 is not above 1 / 400.
    return UsersNeeded(
        suspects=suspects,
        non_members=non_members,
        fdr=fdr,
        smallest_p_value=smallest_p_value,
        together=max(1, math.ceil(suspects * smallest_p_value / fdr * (1 - 1e-12))),
        needed_for_one=max(1, math.ceil(suspects / fdr * (1 - 1e-12)) - 1),
        needed_for_all=max(1, math.ceil(1 / fdr * (1 - 1e-12)) - 1),
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


def _quoted(users: Sequence[User], index: CorpusIndex, shortest: int) -> int:
    """How many texts occur in the text of another user of the corpus that an index is of, also as a part of it."""
    owners = {text.number: user.name for user in users for text in user.texts}
    if any(number < 1 for number in owners):
        raise InputError("an index can be asked about texts that were read from its corpus; these have no line or row there")
    found = 0
    for user in users:
        texts = list(dict.fromkeys(text.text for text, _ in long_enough(user.texts, shortest)))
        if not texts:
            continue
        for text, count in zip(texts, index.counts(texts).tolist(), strict=True):
            if count > 1:
                places = index.locate(text, limit=MOST_COPIES)
                found += any(owners.get(place.document, user.name) != user.name for place in places)
    return found
