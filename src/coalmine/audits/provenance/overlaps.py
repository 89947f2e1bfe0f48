"""What groups of users share and must not: users and texts, by their hashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec
import numpy as np

from coalmine.audits.provenance.text_hashes import (
    SHORTEST_TEXT,
    GroupHashes,
    long_enough,
    name_form,
    told_by_case,
)
from coalmine.audits.provenance.users import User
from coalmine.errors import InputError
from coalmine.records.estimate import Count

Group = Literal["suspects", "others", "non-members", "reference"]
# Groups that must not share users, and those that must not share texts: other texts by a suspect are meant to be of the same user.
DIFFERENT_USERS: tuple[tuple[Group, Group], ...] = (
    ("suspects", "non-members"),
    ("suspects", "reference"),
    ("others", "non-members"),
    ("others", "reference"),
    ("non-members", "reference"),
)
DIFFERENT_TEXTS: tuple[tuple[Group, Group], ...] = (("suspects", "others"), *DIFFERENT_USERS)


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


class Groups(NamedTuple):
    """The users of an audit, by their role; empty where there are none."""

    suspects: Sequence[User] = ()
    others: Sequence[User] = ()
    non_members: Sequence[User] = ()
    reference: Sequence[User] = ()
    # Other texts of non-members, which those of suspects are compared with.
    other_non_members: Sequence[User] = ()

    def named(self) -> dict[Group, Sequence[User]]:
        """The groups that there are, by name."""
        named: dict[Group, Sequence[User]] = {
            "suspects": self.suspects,
            "others": self.others,
            "non-members": [*self.non_members, *self.other_non_members],
            "reference": self.reference,
        }
        return {name: users for name, users in named.items() if users}


class _AmongUsers(Protocol):
    """The places of users who are reference users by name, and how many texts of each user are texts of reference users."""

    @property
    def users(self) -> Sequence[int]: ...
    @property
    def texts(self) -> Sequence[int]: ...


class KnowsReference(Protocol):
    """Something that knows the reference users of shadow models, such as a fit that was read from a file."""

    def overlap(self, users: Sequence[User]) -> _AmongUsers:
        """Which of some users, and of their texts, are among the reference users and their texts."""


def overlaps(
    groups: Groups, fit: KnowsReference | None = None, *, named: bool = True, shortest: int = SHORTEST_TEXT
) -> tuple[Overlap, ...]:
    """The pairs of groups that share users or texts and must not.

    Args:
        groups: the users of each role.
        fit: knows the reference users where `groups` has none.
        named: whether users have names; without, only texts are compared.
        shortest: texts below this many bytes of UTF-8 are left out.

    >>> from coalmine.audits.provenance.users import UserText
    >>> ann = [User("ann", (UserText("I wrote this, and only I did so."),))]
    >>> [(one.first, one.second, one.users, one.texts) for one in overlaps(Groups(suspects=ann, reference=ann))]
    [('suspects', 'reference', 1, 1)]
    """
    there = groups.named()
    # Case is looked at only where it is needed to tell the users of a group from each other.
    cased = any(told_by_case(user.name for user in users) for users in there.values())
    hashes = {name: GroupHashes.of(users, shortest=shortest, cased=cased) for name, users in there.items()}
    found: list[Overlap] = []
    for first, second in DIFFERENT_TEXTS:
        if first not in hashes:
            continue
        compared = named and (first, second) in DIFFERENT_USERS
        if second in hashes:
            common = GroupHashes(
                *(
                    np.intersect1d(one, other, assume_unique=True)
                    for one, other in zip(hashes[first], hashes[second], strict=True)
                )
            )
            users, texts = len(common.users), len(common.texts)
            sharing = common.among(there[first], shortest=shortest, cased=cased, named=compared)
        elif second == "reference" and fit is not None:
            users, texts, sharing = _among_reference(there[first], fit, shortest, named=compared)
        else:
            continue
        if texts or (compared and users):
            if first == "others":
                places = {user.name: place for place, user in enumerate(groups.suspects)}
                sharing = [
                    places[there[first][place].name]
                    for place in sharing
                    if there[first][place].name in places
                ]
            found.append(
                Overlap(
                    first=first,
                    second=second,
                    users=users if compared else None,
                    first_users=len(hashes[first].users),
                    texts=texts,
                    first_texts=len(hashes[first].texts),
                    second_texts=len(hashes[second].texts) if second in hashes else None,
                    sharing=tuple(place + 1 for place in sharing),
                )
            )
    return tuple(found)


def refuse_reference_users(suspects: Sequence[User], reference: Sequence[User] | KnowsReference) -> None:
    """Refuse suspects whom shadow models are trained on: such a model knows their texts too, so that the target never stands out.

    >>> from coalmine.audits.provenance.users import UserText
    >>> refuse_reference_users([User("ann", (UserText("hello"),))], [User("bob", (UserText("hello"),))])
    """
    if isinstance(reference, Sequence):
        cased = any(told_by_case(user.name for user in users) for users in (suspects, reference))
        names = {name_form(user.name, cased=cased) for user in reference}
        shared = sum(name_form(user.name, cased=cased) in names for user in suspects)
    else:
        shared = len(reference.overlap(suspects).users)
    if shared:
        raise InputError(
            f"{shared:,} of the {len(suspects):,} suspects are reference users too, whom shadow models are trained on, so that nothing can "
            "be said about them; take them out of one of the two groups"
        )


def _among_reference(
    users: Sequence[User], fit: KnowsReference, shortest: int, *, named: bool
) -> tuple[int, int, list[int]]:
    """How many users are among the reference users that a fit knows, how many different texts are, and who has one of either."""
    own = [
        User(user.name, tuple({form: text for text, form in long_enough(user.texts, shortest)}.values()))
        for user in users
    ]
    found = fit.overlap(own)
    # All texts as one user's, so that one that several users have counts once.
    texts = {form: text for user in own for text, form in long_enough(user.texts, shortest)}
    together = fit.overlap([User("", tuple(texts.values()))])
    by_text = {place for place, count in enumerate(found.texts) if count}
    return len(found.users), sum(together.texts), sorted(by_text | (set(found.users) if named else set()))
