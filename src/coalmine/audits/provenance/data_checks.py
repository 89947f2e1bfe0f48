"""Checks of the data that stop a false claim: time ranges, repeated texts, unknown words, and what groups share and must not.

Names and texts are compared in one form, whatever their case, white space and Unicode.
"""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from coalmine.audits.provenance.options import By, ProvenanceOptions
from coalmine.audits.provenance.users import (
    AuditedUsers,
    Group,
    User,
    UserText,
    counted,
    day_of,
    listed,
    masked_names,
    seconds_since_1970,
)
from coalmine.engines.units import Arrays
from coalmine.errors import InputError
from coalmine.models.protocols import Model
from coalmine.statistics.differences import unpaired_difference
from coalmine.statistics.scores import FloatArray
from coalmine.visible import visible

if TYPE_CHECKING:
    from coalmine.audits.provenance.fit import Fit

Asks = Literal["texts", "user"]
# Groups that must not share texts, nor users, and which questions say nothing if they do. Other texts by a suspect are meant to be of the
# same user; a question that is asked with texts of suspects would be the first one again.
_APART: tuple[tuple[Group, Group, tuple[Asks, ...]], ...] = (
    ("suspects", "others", ("user",)),
    ("suspects", "non-members", ("texts",)),
    ("suspects", "reference", ("texts",)),
    ("others", "non-members", ("user",)),
    ("others", "reference", ("user",)),
    ("non-members", "reference", ("texts", "user")),
)
_IN_WORDS: dict[Group, str] = {
    "suspects": "suspects",
    "others": "other texts of suspects",
    "non-members": "non-members",
    "reference": "the users that shadow models were trained on",
}
# In bytes of UTF-8 after normalization: shorter texts ("thank you very much") are written by many users independently of each other.
SHORTEST_TEXT = 30
# Of the dates of a group: the texts outside of them are few, and one wrong date does not make the range long.
_CENTRAL = (0.01, 0.99)
# If less of the texts are within the time of the other group; it is near 0.98 for groups of the same time.
_FEW_WITHIN = 0.5
# A few texts that everybody forwards change no score; above this share of texts, groups are not apart, or repeated texts are no remark.
_MOST_SHARED = 0.01
# At this level, groups differ in how many words the model does not know.
_LEVEL = 0.01
# Characters that cannot be seen: soft hyphens, joiners, marks of direction and of byte order.
_INVISIBLE = dict.fromkeys(
    [0xAD, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2065), 0xFEFF]
)


class DataCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What was noticed about the data of a question, in a clause that names nobody.

    Groups that are not "apart" differ in more than the training, and texts that are "shared" say little about any of their users. What
    "spoils" a question leaves nothing to follow from its scores; "untested" is what could not be checked.
    """

    about: Literal["apart", "shared"]
    effect: Literal["spoils", "blurs", "none", "untested"]
    says: str


def check_data(
    users: AuditedUsers,
    asked: Mapping[str, Arrays | None] | None = None,
    options: ProvenanceOptions | None = None,
) -> dict[Asks, tuple[DataCheck, ...]]:
    """All that is noticed about the data of each question.

    `asked` has what was counted of each role, if the model has words that it does not know.
    """
    given = options or ProvenanceOptions()
    other_side = users.other_non_members or users.non_members
    found: dict[Asks, list[DataCheck]] = {
        "texts": time_checks(users.suspects, users.non_members, "texts of suspects", given.by),
        "user": time_checks(users.other_suspects, other_side, "other texts of suspects", given.by),
    }
    found["texts"] += [*_unknown_words(asked or {}, given.seed), *repeated_texts(users.groups(), given.by)]
    for spoiled, check in overlaps(users, given.by):
        for asks in spoiled:
            found[asks].append(check)
    return {asks: tuple(checks) for asks, checks in found.items()}


def time_checks(suspects: Sequence[User], others: Sequence[User], whose: str, by: By) -> list[DataCheck]:
    """Whether the texts of two groups are of different times.

    >>> ann, bob = (User(name, (UserText("hello", date=date),)) for name, date in (("ann", "2018-03-01"), ("bob", "2019")))
    >>> [check.effect for check in time_checks([ann], [bob], "texts of suspects", "user")]
    ['spoils']
    """
    if not suspects or not others:
        return []
    first, second = (
        np.array([one for date in dates if (one := seconds_since_1970(date or "")) is not None])
        for dates in ([text.date for user in side for text in user.texts] for side in (suspects, others))
    )
    if not len(first) or not len(second):
        says = (
            "texts have no dates, so it is not known whether suspects and non-members wrote at the same time"
        )
        if by == "person":
            says = "dates were not compared, because texts of one person may have been divided by them"
        return [DataCheck(about="apart", effect="untested", says=says)]
    within, other_within = _share_within(first, second), _share_within(second, first)
    disjoint = bool(first.max() < second.min() or second.max() < first.min())
    if not disjoint and min(within, other_within) >= _FEW_WITHIN:
        return []
    ranges = [
        f"from {day_of(float(dates.min()))} to {day_of(float(dates.max()))}" for dates in (first, second)
    ]
    says = (
        f"{whose} are {ranges[0]}, and those of non-members {ranges[1]}; {100 * within:.0f}% and {100 * other_within:.0f}% of them are "
        "within the time of the others"
    )
    return [DataCheck(about="apart", effect="spoils" if disjoint else "blurs", says=says)]


def _unknown_words(asked: Mapping[str, Arrays | None], seed: int) -> list[DataCheck]:
    """Whether suspects and non-members use words differently often that the model does not know: in percent, by user."""
    shares = []
    for columns in (asked.get("suspects"), asked.get("non_members")):
        if columns:
            every = columns["unknown"] + columns["tokens"]
            shares.append(100.0 * columns["unknown"][every > 0] / every[every > 0])
    if len(shares) < 2 or not all(map(len, shares)):
        return []
    p_value = unpaired_difference(shares[:1], shares[1:], most=100.0, seed=seed).p_value
    if p_value > _LEVEL:
        return []
    own, others = (f"{share.mean():.1f}% of those of" for share in shares)
    says = f"the model does not know {own} suspects and {others} non-members, on average over users (p = {p_value:.2g})"
    return [DataCheck(about="apart", effect="blurs", says=says)]


def repeated_texts(groups: Mapping[Group, Sequence[User]], by: By = "user") -> list[DataCheck]:
    """Whether several users have the same text, such as a forwarded mail; users of the same name are one, and short texts are left out.

    >>> both = UserText("Please find attached the minutes of the meeting.")
    >>> ann, bob = User("ann", (both, UserText("My own words, and nobody else's."))), User("bob", (both,))
    >>> repeated_texts({"suspects": [ann], "non-members": [bob]})[0].says
    '1 of 2 texts of at least 30 bytes are of several users, 2 of 2 in all; one of them of 2'
    """
    owners: dict[str, set[str]] = defaultdict(set)
    every = set()
    for group, users in groups.items():
        for user in users:
            # Lines of several files have the same names.
            name = f"{group} {user.name}" if by == "document" else user.name
            every.add(name)
            for form in _texts_of(user, by):
                owners[form].add(name)
    repeated = [some for some in owners.values() if len(some) > 1]
    if not repeated:
        return []
    says = (
        f"{len(repeated):,} of {len(owners):,} texts of at least {_shortest(by)} bytes are of several users, "
        f"{len(set().union(*repeated)):,} of {len(every):,} in all; one of them of {max(map(len, repeated)):,}"
    )
    effect: Literal["blurs", "none"] = "blurs" if len(repeated) >= _MOST_SHARED * len(owners) else "none"
    return [DataCheck(about="shared", effect=effect, says=says)]


def overlaps(users: AuditedUsers, by: By = "user") -> list[tuple[tuple[Asks, ...], DataCheck]]:
    """The pairs of groups that share users or texts and must not, and which questions are about them.

    >>> ann = [User("ann", (UserText("I wrote this, and only I did so."),))]
    >>> [check.says for _, check in overlaps(AuditedUsers(ann, non_members=ann))]
    ['1 of 1 users and 1 of 1 texts of suspects are also among non-members (user 1)']
    """
    groups = users.groups()
    masked = masked_names((user.name for user in users.suspects), by)
    found: list[tuple[tuple[Asks, ...], DataCheck]] = []
    for first, second, spoiled in _APART:
        if first not in groups or second not in groups:
            continue
        names = {normalized(user.name) for user in groups[second]}
        if by == "document" or (first, second) == ("suspects", "others"):
            names = set()  # lines have no names of their own; other texts are of the same users
        texts, own_texts = (
            set().union(*(_texts_of(user, by) for user in groups[group])) for group in (second, first)
        )
        named = [normalized(user.name) in names for user in groups[first]]
        whose = [
            f"non-member {place}" if first == "non-members" else masked[user.name]
            for place, (user, is_named) in enumerate(zip(groups[first], named, strict=True), 1)
            if is_named or not texts.isdisjoint(_texts_of(user, by))
        ]
        both = texts & own_texts
        shared = [f"{sum(named):,} of {len(named):,} users"] if any(named) else []
        shared += [f"{len(both):,} of {len(own_texts):,} texts"] if both else []
        if shared:
            says = f"{' and '.join(shared)} of {_IN_WORDS[first]} are also among {_IN_WORDS[second]} ({listed(whose)})"
            spoils = any(named) or len(both) > _MOST_SHARED * min(len(texts), len(own_texts))
            found.append(
                (spoiled, DataCheck(about="shared", effect="spoils" if spoils else "none", says=says))
            )
    return found


def without_shared(users: AuditedUsers, by: By = "user") -> tuple[AuditedUsers, str]:
    """Users without texts that several have, without those who are in two groups, and a sentence about what was left out.

    Which side a user is on does not matter to what is left out, so suspects whose text was not used and non-members stay alike. Reference
    users stay as shadow models saw them. Other texts also lose those that are among the first texts of their own user.

    >>> both, own = UserText("Please find attached the minutes."), UserText("I wrote this, and only I did so.")
    >>> left, said = without_shared(AuditedUsers([User("ann", (both, own))], non_members=[User("bob", (both,))]))
    >>> len(left.suspects[0].texts), len(left.non_members), said
    (1, 0, '2 texts that several users have, or of users in two groups, were left out')
    """
    roles = ("suspects", "others", "non_members", "reference")
    every = [(role, user) for role in roles for user in getattr(users, role)]

    def owner(role: str, user: User) -> str:
        return f"{role} {user.name}" if by == "document" else normalized(user.name)

    owners: dict[str, set[str]] = defaultdict(set)
    for role, user in every:
        for form in _texts_of(user, by):
            owners[form].add(owner(role, user))
    sides = Counter(owner(role, user) for role, user in every if role != "others")
    first = set().union(*(_texts_of(user, by) for role, user in every if role in ("suspects", "non_members")))
    left: dict[str, Any] = {role: [] for role in roles[:3]}
    for role, user in every:
        texts = tuple(
            text
            for text in user.texts
            if len(owners.get(_form(text), ())) < 2 and not (role == "others" and _form(text) in first)
        )
        if role in left and texts and sides[owner(role, user)] < 2:
            left[role].append(User(user.name, texts))
    still = {user.name for role in ("suspects", "non_members") for user in left[role]}
    left["others"] = [user for user in left["others"] if user.name in still]
    gone = sum(len(user.texts) for role, user in every if role in left)
    gone -= sum(len(user.texts) for some in left.values() for user in some)
    says = f"{counted(gone, 'text')} that several users have, or of users in two groups, were left out"
    return users._replace(**left), says


def refuse_reference_users(users: AuditedUsers) -> None:
    """Refuse suspects whom shadow models are trained on: such a model knows their texts too, so that the target never stands out.

    >>> refuse_reference_users(AuditedUsers([User("ann", (UserText("hello"),))], reference=[User("bob", (UserText("hello"),))]))
    """
    names = {normalized(user.name) for user in users.reference}
    shared = sum(normalized(user.name) in names for user in users.suspects)
    if shared:
        raise InputError(
            f"{shared:,} of the {len(users.suspects):,} suspects are reference users too, whom shadow models are trained on, so that "
            "nothing can be said about them; take them out of one of the two groups"
        )


def check_users(users: AuditedUsers, fit: Fit | None, by: By) -> None:
    """Refuse users that nothing can be asked about, or whose scores would say nothing."""
    names, other_side = ({user.name for user in side} for side in (users.suspects, users.non_members))
    strangers = sum(user.name not in names | other_side for user in users.others)
    threads = len(names & other_side) if by == "person" else 0
    problems: dict[str, object] = {
        "there are no suspects; name at least one user to ask about": not users.suspects,
        f"who is asked about by {by} has no other texts; leave them out, or ask about users": by != "user"
        and users.others,
        "texts of one person are compared with other texts of the same person that cannot have been used, and there are none; give them "
        "as non-members": by == "person" and not users.non_members,
        f"{threads:,} threads have texts on both sides; put each on one side, or leave them out (--set drop_shared=true)": threads,
        f"of those who have other texts, {strangers:,} are neither suspects nor non-members; give other texts by these only": strangers,
        "the reference users are not those of the shadow models; give the same corpus with --reference, with the same fields": (
            fit is not None and not fit.made_with(users.reference)
        ),
    }
    for message, is_wrong in problems.items():
        if is_wrong:
            raise InputError(message)
    if by != "document":  # lines have no names
        refuse_reference_users(users)


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
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).translate(_INVISIBLE)
    return " ".join(text.split()).casefold()


def _form(text: UserText) -> str:
    """A text in one form; that of a pair is of both sides."""
    return "\n".join(normalized(side) for side in (text.text, text.source) if side is not None)


def _texts_of(user: User, by: By) -> set[str]:
    forms = map(_form, user.texts)
    return {form for form in forms if len(form.encode("utf-8", "surrogatepass")) >= _shortest(by)}


def _shortest(by: By) -> int:
    return 1 if by == "document" else SHORTEST_TEXT


def _share_within(dates: FloatArray, of: FloatArray) -> float:
    low, high = np.quantile(of, _CENTRAL)
    return float(np.mean((dates >= low) & (dates <= high)))
