"""Checks of the data that stop a false claim: time ranges, repeated texts, unknown words, and what groups share and must not.

Names and texts are compared by hashes of one form, whatever their case, white space and Unicode, so that the reference users of a fit,
which keeps nothing but hashes, are compared in the same way as users whose texts are at hand.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from coalmine.audits.provenance.options import By
from coalmine.audits.provenance.users import (
    AuditedUsers,
    Group,
    User,
    UserText,
    counted,
    day_of,
    seconds_since_1970,
)
from coalmine.errors import InputError
from coalmine.models.protocols import Model
from coalmine.records.estimate import Count, Share
from coalmine.statistics.differences import Difference, unpaired_difference
from coalmine.statistics.scores import FloatArray
from coalmine.visible import visible

GroupName = TypeVar("GroupName", bound=str)

if TYPE_CHECKING:
    from coalmine.audits.provenance.fit import Fit
    from coalmine.corpus.index.queries import CorpusIndex

# Groups that must not share texts, nor users: but other texts by a suspect are meant to be of the same user.
_APART: tuple[tuple[Group, Group], ...] = (
    ("suspects", "others"),
    ("suspects", "non-members"),
    ("suspects", "reference"),
    ("others", "non-members"),
    ("others", "reference"),
    ("non-members", "reference"),
)
# In bytes of UTF-8 after normalization: shorter texts ("thank you very much") are written by many users independently of each other.
SHORTEST_TEXT = 30
# Of the dates of a group: the texts outside of them are few, and one wrong date does not make the range long.
_CENTRAL = (0.01, 0.99)
# A few texts that everybody forwards change no score; above this share of texts, the groups are not apart.
_MOST_SHARED = 0.01
# Copies of one text that an index is asked for.
_MOST_COPIES = 1_000
# Hexadecimal digits: enough that two of a billion texts are never taken for the same.
_DIGITS = 24
# Characters that cannot be seen: soft hyphens, joiners, marks of direction and of byte order.
_INVISIBLE = dict.fromkeys(
    [0xAD, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2065), 0xFEFF]
)


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


class RepeatedTexts(msgspec.Struct, frozen=True, kw_only=True):
    """How many texts occur under several users, such as quotations, forwarded mail or templates; texts of fewer bytes are left out."""

    shortest: int
    # Different texts, those of them that several users have, and users with such a text.
    texts: Count
    repeated: Count
    users: Count
    affected_users: Count
    # How many users have the text that most of them have.
    most_users: Count
    # Texts inside a text of another user of a corpus that there is an index of; None without one.
    quoted: int | None = None

    @property
    def share(self) -> float | None:
        """The share of texts that several users have; None where no text is long enough."""
        return self.repeated / self.texts if self.texts else None


class UnknownShare(msgspec.Struct, frozen=True, kw_only=True):
    """The share of words of a group that the target does not know: over all words, and the mean over users."""

    group: Group
    users: Count
    unknown: Count
    tokens: Count
    share: Share
    mean_share: Share


class UnknownWords(msgspec.Struct, frozen=True, kw_only=True):
    """Unknown words of suspects and of non-members; `difference` is in percentage points, over users, and None for a single group."""

    groups: tuple[UnknownShare, ...]
    difference: Difference | None

    def differ(self, level: float = 0.01) -> bool:
        """Whether suspects and non-members differ in it by more than chance explains, at a level."""
        return self.difference is not None and self.difference.p_value <= level


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """Users and texts that two groups share; how many of those of the first group, and how many it has."""

    first: Group
    second: Group
    # None where users are documents, which have no names of their own, or may be the same.
    users: Count | None
    first_users: Count
    texts: Count
    first_texts: Count
    # None where it is not known.
    second_texts: Count | None = None
    # Who of the first group is, or has a text that is, in the second too: places from 1 on in the order of the corpus, and of the suspects
    # where these are other texts of theirs.
    sharing: tuple[int, ...] = ()

    @property
    def text_share(self) -> float:
        """The share of texts of the group that has more of its texts in common with the other."""
        sizes = [size for size in (self.first_texts, self.second_texts) if size]
        return self.texts / min(sizes) if sizes else 0.0

    @property
    def spoils(self) -> bool:
        """Whether the groups are not apart: users are shared, or too many texts."""
        return bool(self.users or self.text_share > _MOST_SHARED)


class DataChecks(msgspec.Struct, frozen=True, kw_only=True):
    """All checks of the data of an audit; None for what could not be checked, because it was not given."""

    time_ranges: TimeRanges | None = None
    # Of other texts of suspects, and of non-members.
    others_time_ranges: TimeRanges | None = None
    repeated_texts: RepeatedTexts | None = None
    unknown_words: UnknownWords | None = None
    # Only those that share something.
    overlaps: tuple[Overlap, ...] = ()


class HashedUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user without name and text: hashes of both, so that it can be found out whether they occur elsewhere."""

    name: str
    texts: tuple[str, ...]


@dataclass(frozen=True)
class IndexedCorpus:
    """An index of the corpus that one group of users was read from."""

    index: CorpusIndex
    group: Group

    @classmethod
    def of(cls, index: CorpusIndex, data_sha256: Mapping[str, str]) -> IndexedCorpus:
        """By the hashes of the corpora of each role; an InputError if the index is of none of them."""
        for role, sha256 in data_sha256.items():
            if sha256 == index.manifest.corpus.sha256:
                return cls(index, role.replace("_", "-"))  # type: ignore[arg-type]  # the name of a group
        raise InputError(
            f"the index {index.path} is of another corpus than those of the audit; make one of the suspects with `coalmine data index`"
        )


def check_data(
    users: AuditedUsers,
    fit: Fit | None = None,
    unknown: Mapping[Group, tuple[ArrayLike, ArrayLike]] | None = None,
    *,
    by: By = "user",
    indexed: IndexedCorpus | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> DataChecks:
    """All checks that can be made of what is given.

    Args:
        users: those of each role.
        fit: knows the reference users where `users` has none.
        unknown: as `counts` of `unknown_words`.
        by: documents have no names, so that only their texts are compared, also short ones.
        indexed: an index of the corpus that one of the groups was read from.
        confidence: of the interval of the difference in unknown words.
        seed: of the exchanges behind it.
    """
    return DataChecks(
        time_ranges=time_ranges(users.suspects, users.non_members),
        others_time_ranges=time_ranges(users.other_suspects, users.other_non_members or users.non_members),
        repeated_texts=repeated_texts(users.groups(), by=by, indexed=indexed),
        unknown_words=None if unknown is None else unknown_words(unknown, confidence=confidence, seed=seed),
        overlaps=overlaps(users, fit, by=by),
    )


def time_ranges(suspects: Sequence[User], non_members: Sequence[User]) -> TimeRanges | None:
    """Whether the texts of two groups are of the same time; None where either has no dates.

    >>> found = time_ranges(
    ...     [User("ann", (UserText("hello", date="2018-03-01"), UserText("bye", date="2018-04-01")))],
    ...     [User("bob", (UserText("hello", date="2019-01-01"),))],
    ... )
    >>> found.disjoint, found.share, found.suspects.last
    (True, 0.0, '2018-04-01')
    """
    texts = [[text for user in users for text in user.texts] for users in (suspects, non_members)]
    seconds = [[seconds_since_1970(text.date) for text in side if text.date is not None] for side in texts]
    first, second = (np.array([one for one in side if one is not None]) for side in seconds)
    if not len(first) or not len(second):
        return None
    ranges = [
        TimeRange(
            first=day_of(float(dates.min())),
            last=day_of(float(dates.max())),
            dated=len(dates),
            undated=len(side) - len(dates),
        )
        for dates, side in zip((first, second), texts, strict=True)
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

    `counts` has, for each group, how many words of each user are unknown, and how many words each has in all, unknown ones included.

    >>> found = unknown_words({"suspects": ([1, 0, 2, 1], [100, 90, 110, 100]), "non-members": ([30, 25, 33, 31], [100, 90, 110, 100])})
    >>> found.groups[0].share, found.difference.p_value < 0.05
    (0.01, True)
    """
    groups: list[UnknownShare] = []
    shares: dict[Group, FloatArray] = {}
    for group, (unknown, total) in counts.items():
        some, every = np.asarray(unknown, dtype=np.int64), np.asarray(total, dtype=np.int64)
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


def repeated_texts(
    groups: Mapping[Group, Sequence[User]], *, by: By = "user", indexed: IndexedCorpus | None = None
) -> RepeatedTexts:
    """Which texts occur under several users; users of the same name are one. An index finds texts inside those of others too.

    >>> both = UserText("Please find attached the minutes of the meeting.")
    >>> ann, bob = User("ann", (both, UserText("My own words, and nobody else's."))), User("bob", (both,))
    >>> found = repeated_texts({"suspects": [ann], "non-members": [bob]})
    >>> found.repeated, found.texts, found.affected_users
    (1, 2, 2)
    """

    def owner(group: Group, user: User) -> str:
        return (
            f"{group} {user.name}" if by == "document" else user.name
        )  # lines of several files have the same names

    named = [(owner(group, user), user) for group, users in groups.items() for user in users]
    owners: dict[str, set[str]] = defaultdict(set)
    for name, user in named:
        for text in _hashed_texts(user, by=by):
            owners[text].add(name)
    repeated = [some for some in owners.values() if len(some) > 1]
    quoted = None
    if indexed is not None:
        group = indexed.group
        numbers = {text.number: owner(group, user) for user in groups.get(group, ()) for text in user.texts}
        quoted = sum(_quoted(name, user, indexed.index, numbers, by) for name, user in named)
    return RepeatedTexts(
        shortest=_shortest(by),
        texts=len(owners),
        repeated=len(repeated),
        users=len({name for name, _ in named}),
        affected_users=len(set().union(*repeated)),
        most_users=max(map(len, repeated), default=1),
        quoted=quoted,
    )


def overlaps(users: AuditedUsers, fit: Fit | None = None, *, by: By = "user") -> tuple[Overlap, ...]:
    """The pairs of groups that share users or texts and must not; a fit knows reference users that are not at hand.

    >>> ann = [User("ann", (UserText("I wrote this, and only I did so."),))]
    >>> [(one.first, one.second, one.users, one.texts) for one in overlaps(AuditedUsers(ann, reference=ann))]
    [('suspects', 'reference', 1, 1)]
    """
    hashed = _hashed_groups(users.groups(), fit, by)
    suspects = {user.name: place for place, user in enumerate(hashed.get("suspects", ()))}
    found: list[Overlap] = []
    for first, second in _APART:
        if first not in hashed or second not in hashed:
            continue
        named = by != "document" and (first, second) != _APART[0]
        names, own_names = ({user.name for user in hashed[group]} for group in (second, first))
        texts, own_texts = (
            {text for user in hashed[group] for text in user.texts} for group in (second, first)
        )
        sharing = [
            suspects[user.name] if first == "others" else place
            for place, user in enumerate(hashed[first])
            if (named and user.name in names) or not texts.isdisjoint(user.texts)
        ]
        if sharing:
            found.append(
                Overlap(
                    first=first,
                    second=second,
                    users=len(names & own_names) if named else None,
                    first_users=len(own_names),
                    texts=len(texts & own_texts),
                    first_texts=len(own_texts),
                    second_texts=len(texts) if second in users.groups() else None,
                    sharing=tuple(place + 1 for place in sharing),
                )
            )
    return tuple(found)


def without_shared(
    users: AuditedUsers, fit: Fit | None = None, *, by: By = "user"
) -> tuple[AuditedUsers, str]:
    """Users without texts that several have, without those who are in two groups, and a sentence about what was left out.

    Which side a user is on does not matter to what is left out, so suspects whose text was not used and non-members stay alike. Reference
    users stay as shadow models saw them. Other texts also lose those that are among the first texts of their own user.

    >>> both, own = UserText("Please find attached the minutes."), UserText("I wrote this, and only I did so.")
    >>> left, said = without_shared(AuditedUsers([User("ann", (both, own))], non_members=[User("bob", (both,))]))
    >>> len(left.suspects[0].texts), len(left.non_members), said
    (1, 0, '2 texts that several users have were left out, and 0 suspects and 1 non-member with no other text or in two groups.')
    """
    roles = ("suspects", "others", "non_members")
    named = {role: getattr(users, role) for role in (*roles, "reference")}
    hashed = _hashed_groups({role: some for role, some in named.items() if some}, fit, by)
    owners: dict[str, set[str]] = defaultdict(set)
    sides: dict[str, set[str]] = defaultdict(set)
    first: set[str] = set()
    for role, some in hashed.items():
        for user in some:
            owner = f"{role} {user.name}" if by == "document" else user.name
            sides[owner].update({role} - {"others"})
            for text in user.texts:
                owners[text].add(owner)
            first.update(user.texts if role in ("suspects", "non_members") else ())
    salt = "" if fit is None or users.reference else fit.record.reference_sha256

    def kept(role: str) -> list[User]:
        found = []
        for user, own in zip(named[role], hashed.get(role, ()), strict=True):
            if by == "document" or len(sides[own.name]) < 2:
                out = {
                    text
                    for text in own.texts
                    if len(owners[text]) > 1 or (role == "others" and text in first)
                }
                texts = tuple(text for text in user.texts if not out or text_hash(text, salt) not in out)
                found += [User(user.name, texts)] if texts else []
        return found

    suspects, non_members = kept("suspects"), kept("non_members")
    still = {user.name for user in (*suspects, *non_members)}
    others = [user for user in kept("others") if user.name in still]
    left = users._replace(suspects=suspects, others=others, non_members=non_members)
    before, after = (
        sum(len(user.texts) for role in roles for user in getattr(one, role)) for one in (users, left)
    )
    if before == after:
        return left, "No text belongs to several users, so nothing was left out."
    texts = counted(before - after, "text")
    if by == "person":
        return left, f"{texts} that several threads have, or of threads on both sides, were left out."
    gone = " and ".join(
        counted(len(getattr(users, role)) - len(getattr(left, role)), name)
        for role, name in (("suspects", "suspect"), ("non_members", "non-member"))
    )
    return (
        left,
        f"{texts} that several users have were left out, and {gone} with no other text or in two groups.",
    )


def refuse_reference_users(users: AuditedUsers, fit: Fit | None = None) -> None:
    """Refuse suspects whom shadow models are trained on: such a model knows their texts too, so that the target never stands out.

    >>> refuse_reference_users(AuditedUsers([User("ann", (UserText("hello"),))], reference=[User("bob", (UserText("hello"),))]))
    """
    hashed = _hashed_groups(users.groups(), fit, "user")
    names = {user.name for user in hashed.get("reference", ())}
    shared = sum(user.name in names for user in hashed["suspects"])
    if shared:
        raise InputError(
            f"{shared:,} of the {len(users.suspects):,} suspects are reference users too, whom shadow models are trained on, so that "
            "nothing can be said about them; take them out of one of the two groups"
        )


def check_users(users: AuditedUsers, fit: Fit | None, by: By) -> None:
    """Refuse users that nothing can be asked about, or whose scores would say nothing."""

    def refuse(wrong: object, message: str) -> None:
        if wrong:
            raise InputError(message)

    names = {user.name for user in users.suspects}
    other_side = {user.name for user in users.non_members}
    strangers = sum(user.name not in names | other_side for user in users.others)
    refuse(not users.suspects, "there are no suspects; name at least one user to ask about")
    for role in ("suspects", "others", "non_members", "reference"):
        some = getattr(users, role)
        refuse(
            len({user.name for user in some}) < len(some),
            f"two users of the {role.replace('_', '-')} have the same name; join their texts, or give them other names",
        )
    refuse(
        by != "user" and users.others,
        f"who is asked about by {by} has no other texts; leave them out, or ask about users",
    )
    if by == "person":
        refuse(
            not users.non_members,
            "texts of one person are compared with other texts of the same person that cannot have been used, and there are none; give "
            "them as non-members",
        )
        refuse(
            users.members is not None,
            "there is one answer about all texts of a person; leave out who is a member",
        )
        refuse(
            names & other_side,
            f"{len(names & other_side):,} threads have texts on both sides; put each on one side, or leave them out with drop_shared "
            "(--drop-shared)",
        )
    refuse(
        strangers,
        f"of those who have other texts, {strangers:,} are neither suspects nor non-members; give other texts by these only",
    )
    refuse(
        users.members is not None and not set(users.members) & names,
        "none of the users who are said to be members is a suspect; check the names",
    )
    if fit is not None:
        refuse(
            users.reference and not fit.made_with(users.reference),
            "the reference users are not those that the fit was made with, whose texts its shadow models were trained on; give the same "
            "corpus, with the same fields and artificial users, or fit again",
        )
        if by != "document":  # which have no names
            refuse_reference_users(users, fit)


def check_reference_model(model: Model, reference: Model | None) -> None:
    """Refuse a reference model with the target's own weights: all ratios would be 1, and nobody could be found."""
    if reference is None:
        return
    weights = [one.describe().get("weights_sha256") for one in (model, reference)]
    if reference is model or (weights[0] is not None and weights[0] == weights[1]):
        raise InputError(
            f"the reference model {visible(reference.name)} has the same weights as the target, so that comparing them says nothing; name "
            "a model that did not see the suspects' texts"
        )


def normalized(text: str) -> str:
    r"""A text in one form, however it was broken into lines, capitalized, or written in Unicode, and without what cannot be seen.

    >>> normalized("Good  day,\n Ann\u200b ")
    'good day, ann'
    """
    return _one_form(text).casefold()


def told_by_case(names: Iterable[str]) -> bool:
    """Whether some of these names differ in case alone, so that case means something.

    >>> told_by_case(["aQ", "Aq"]), told_by_case(["ann", "Bob"])
    (True, False)
    """
    forms = {_one_form(name) for name in names}
    return len({form.casefold() for form in forms}) < len(forms)


def name_hash(name: str, salt: str, *, cased: bool) -> str:
    """A salted hash of a name, with or without its case."""
    return _hash(salt, "user", _one_form(name) if cased else normalized(name))


def text_hash(text: UserText, salt: str) -> str:
    """A salted hash of a text; that of a pair is of both sides."""
    sides = (text.text,) if text.source is None else (text.text, text.source)
    return _hash(salt, "text", *map(normalized, sides))


def hashed_users(
    users: Sequence[User], salt: str = "", *, cased: bool, by: By = "document"
) -> tuple[HashedUser, ...]:
    """Users as a fit records them, without texts that are too short to be compared; `cased` is whether names differ if their case does."""
    return tuple(
        HashedUser(name=name_hash(user.name, salt, cased=cased), texts=_hashed_texts(user, salt, by=by))
        for user in users
    )


def _hashed_groups(
    groups: Mapping[GroupName, Sequence[User]], fit: Fit | None, by: By
) -> dict[GroupName | str, tuple[HashedUser, ...]]:
    """The hashes of all groups, with reference users from the fit where they are not at hand."""
    if fit is None or "reference" in groups:
        # Case is looked at only where it is needed to tell the users of a group from each other.
        cased = any(told_by_case(user.name for user in users) for users in groups.values())
        return {name: hashed_users(users, cased=cased, by=by) for name, users in groups.items()}
    record = fit.record
    hashed: dict[GroupName | str, tuple[HashedUser, ...]] = {
        name: hashed_users(users, record.reference_sha256, cased=record.names_cased, by=by)
        for name, users in groups.items()
    }
    return hashed | {"reference": record.reference}


def _hashed_texts(user: User, salt: str = "", *, by: By) -> tuple[str, ...]:
    return tuple(text_hash(text, salt) for text in user.texts if _is_long(text, by))


def _is_long(text: UserText, by: By) -> bool:
    return len(normalized(text.text).encode("utf-8", "surrogatepass")) >= _shortest(by)


def _shortest(by: By) -> int:
    return 1 if by == "document" else SHORTEST_TEXT


def _quoted(name: str, user: User, index: CorpusIndex, owners: Mapping[int, str], by: By) -> int:
    """How many texts of a user occur in the text of another one in the corpus of an index."""
    texts = list(dict.fromkeys(text.text for text in user.texts if _is_long(text, by)))
    counts = index.counts(texts).tolist() if texts else []
    return sum(
        any(owners.get(place.document, name) != name for place in index.locate(text, limit=_MOST_COPIES))
        for text, count in zip(texts, counts, strict=True)
        if count
    )


def _one_form(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).translate(_INVISIBLE)
    return " ".join(text.split())


def _hash(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()[:_DIGITS]


def _share_within(dates: FloatArray, of: FloatArray) -> float:
    low, high = np.quantile(of, _CENTRAL)
    return float(np.mean((dates >= low) & (dates <= high)))
