"""Provenance of users: whether the model shows whose text it was trained on."""

from __future__ import annotations

from typing import Any

from coalmine.audits.provenance.results import PROVENANCES
from coalmine.review.step import ReviewStep, Sized, TooLong
from coalmine.review.steps.comparing import as_many_as_fit, compare, obstacle_of
from coalmine.review.subject import StepRun, Subject

FEWEST, MOST = 10, 400


class UsersStep(ReviewStep):
    """Users of the training data against held-out users."""

    name = "users"
    title = "Provenance of users"
    audits = ("provenance",)
    share = 2.0
    files = (PROVENANCES.file,)

    def obstacle(self, subject: Subject) -> str | None:
        """No users, none to compare with, or a model that cannot be asked."""
        if subject.fields.user is None:
            return "it was not said which field names the user of a text (--user-field)"
        if subject.gathered.held_out is None:
            return "no held-out text by other users was given to compare with (--held-out)"
        if not subject.gathered.training.users:
            return f"no document of the training data names a user in the field {subject.fields.user!r}"
        if not subject.gathered.held_out.users:
            return (
                "the held-out text has no user who is not in the training data too; give text by other users"
            )
        return obstacle_of(subject)

    def plan(self, subject: Subject, seconds: float) -> Sized | TooLong:
        """As many users as fit."""
        held_out = subject.gathered.held_out
        if held_out is None:
            return TooLong(seconds)
        members = subject.gathered.training.users
        return as_many_as_fit(
            subject, members, held_out.users, seconds, fewest=FEWEST, most=MOST, what="users"
        )

    def run(self, subject: Subject, settings: dict[str, Any], running: StepRun) -> None:
        """Ask about both groups."""
        held_out = subject.gathered.held_out
        if held_out is not None:
            members = subject.gathered.training.users
            compare(subject, members, held_out.users, "user", settings, running)
