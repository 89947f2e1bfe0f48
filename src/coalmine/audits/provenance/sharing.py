"""Users without the texts that several of them have, and without those who are in two groups."""

from __future__ import annotations

from collections.abc import Sequence

from coalmine.audits.provenance.naming import counted
from coalmine.audits.provenance.options import By
from coalmine.audits.provenance.overlaps import Groups, KnowsReference
from coalmine.audits.provenance.text_hashes import SHORTEST_TEXT, long_enough, name_form, told_by_case
from coalmine.audits.provenance.users import User


def without_shared(
    groups: Groups, fit: KnowsReference | None = None, *, by: By = "user"
) -> tuple[Groups, str]:
    """The groups without texts that several users have, without users who are in two groups, and a sentence about what was left out.

    Which side a user is on does not matter to what is left out, so suspects whose text was not used and non-members stay alike. Reference
    users stay as shadow models saw them. Other texts also lose those that are among the first texts of their own user.

    Args:
        groups: the users of each role; other texts can be those of suspects and of non-members.
        fit: knows the reference users where `groups` has none.
        by: documents have no names, so that only their texts are compared, also short ones.

    >>> from coalmine.audits.provenance.users import UserText
    >>> both, own = UserText("Please find attached the minutes."), UserText("I wrote this, and only I did so.")
    >>> left, said = without_shared(Groups(suspects=[User("ann", (both, own))], non_members=[User("bob", (both,))]))
    >>> len(left.suspects[0].texts), len(left.non_members), said
    (1, 0, '2 texts that several users have were left out, and 0 suspects and 1 non-member with no other text or in two groups.')
    """
    shortest = 1 if by == "document" else SHORTEST_TEXT
    roles: dict[str, Sequence[User]] = groups._asdict()
    cased = any(told_by_case(user.name for user in users) for users in roles.values())
    owner_of: dict[str, str] = {}
    shared, first = set[str](), set[str]()
    sides: dict[str, set[str]] = {}
    for role, users in roles.items():
        for user in users:
            owner = f"{role} {user.name}" if by == "document" else name_form(user.name, cased=cased)
            sides.setdefault(owner, set()).update({role} - {"others"})
            for _, form in long_enough(user.texts, shortest):
                if owner_of.setdefault(form, owner) != owner:
                    shared.add(form)
                if role != "others":
                    first.add(form)
    if fit is not None:
        known = {
            form: text
            for role in roles.values()
            for user in role
            for text, form in long_enough(user.texts, shortest)
        }
        counts = fit.overlap([User("", (text,)) for text in known.values()]).texts
        shared |= {form for form, count in zip(known, counts, strict=True) if count}

    def kept(role: str, users: Sequence[User]) -> list[User]:
        named = set() if fit is None or by == "document" else set(fit.overlap(users).users)
        found = []
        for place, user in enumerate(users):
            if place in named or (by != "document" and len(sides[name_form(user.name, cased=cased)]) > 1):
                continue
            out = {
                text
                for text, form in long_enough(user.texts, shortest)
                if form in shared or (role == "others" and form in first)
            }
            texts = tuple(text for text in user.texts if text not in out)
            if texts:
                found.append(User(user.name, texts))
        return found

    left = groups._replace(
        **{role: kept(role, roles[role]) for role in ("suspects", "others", "non_members")}
    )
    still = {user.name for user in (*left.suspects, *left.non_members)}
    left = left._replace(others=[user for user in left.others if user.name in still])
    before, after = _texts(groups), _texts(left)
    if before == after:
        return left, "No text belongs to several users, so nothing was left out."
    gone = [
        counted(len(old) - len(new), name)
        for old, new, name in (
            (groups.suspects, left.suspects, "suspect"),
            (groups.non_members, left.non_members, "non-member"),
        )
    ]
    if by == "person":
        return left, (
            f"{counted(before - after, 'text')} that several threads have, or of threads on both sides, were left out."
        )
    return left, (
        f"{counted(before - after, 'text')} that several users have were left out, and {' and '.join(gone)} with no other text or in two "
        "groups."
    )


def _texts(groups: Groups) -> int:
    return sum(
        len(user.texts) for users in (groups.suspects, groups.others, groups.non_members) for user in users
    )
