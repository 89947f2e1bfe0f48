"""What is refused before any model is asked: users that nothing can follow about, and a model compared with itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from coalmine.audits.provenance.options import By
from coalmine.audits.provenance.overlaps import refuse_reference_users
from coalmine.audits.provenance.users import User
from coalmine.errors import InputError
from coalmine.models.protocols import Model
from coalmine.visible import visible

if TYPE_CHECKING:
    from coalmine.audits.provenance.fit import Fit

NO_SUSPECTS = "there are no suspects; name at least one user to ask about"


class _Audited(Protocol):
    """The users of an audit, by their role."""

    @property
    def suspects(self) -> Sequence[User]: ...
    @property
    def others(self) -> Sequence[User]: ...
    @property
    def non_members(self) -> Sequence[User]: ...
    @property
    def reference(self) -> Sequence[User]: ...
    @property
    def members(self) -> Collection[str] | None: ...


def check_users(users: _Audited, fit: Fit | None, by: By) -> None:
    """Refuse users that nothing can be asked about, or whose scores would say nothing."""
    if not users.suspects:
        raise InputError(NO_SUSPECTS)
    for role in ("suspects", "others", "non_members", "reference"):
        named = [user.name for user in getattr(users, role)]
        if len(set(named)) < len(named):
            raise InputError(
                f"two users of the {role.replace('_', '-')} have the same name; join their texts, or give them other names"
            )
    if by != "user" and users.others:
        raise InputError(
            f"other texts were given, and who is asked about by {by} has no other texts; leave them out, or ask about users"
        )
    if by == "person":
        _check_person(users)
    names = {user.name for user in users.suspects}
    known = names | {user.name for user in users.non_members}
    strangers = [user.name for user in users.others if user.name not in known]
    if strangers:
        raise InputError(
            f"of those who have other texts, {len(strangers):,} are neither suspects nor non-members; give other texts by these only"
        )
    if users.others and not any(user.name in names for user in users.others):
        raise InputError("none of the other texts is by a suspect; give other texts by suspects too")
    if users.members is not None and not set(users.members) & names:
        raise InputError("none of the users who are said to be members is a suspect; check the names")
    if fit is not None:
        _check_fit(users, fit, by)


def _check_person(users: _Audited) -> None:
    """Refuse one side only, a part of the texts said to be used, and threads that are on both sides."""
    if not users.non_members:
        raise InputError(
            "texts of one person are compared with other texts of the same person that cannot have been used, and there are none; give "
            "them as non-members"
        )
    if users.members is not None:
        raise InputError("there is one answer about all texts of a person; leave out who is a member")
    both = {user.name for user in users.suspects} & {user.name for user in users.non_members}
    if both:
        raise InputError(
            f"{len(both):,} threads have texts on both sides; put each on one side, or leave them out with drop_shared (--drop-shared)"
        )


def _check_fit(users: _Audited, fit: Fit, by: By) -> None:
    """Refuse reference users that are not those of the fit, and suspects that shadow models were trained on."""
    if users.reference and not fit.made_with(users.reference):
        raise InputError(
            "the reference users are not those that the fit was made with, whose texts its shadow models were trained on; give the same "
            "corpus, with the same fields and artificial users, or fit again"
        )
    if by != "document":  # which have no names
        refuse_reference_users(users.suspects, fit)


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
