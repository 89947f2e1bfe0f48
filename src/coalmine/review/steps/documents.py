"""Membership of documents: whether the model tells documents of its training data from held-out ones."""

from __future__ import annotations

from typing import Any

from coalmine.audits.provenance.results import PROVENANCES
from coalmine.review.step import ReviewStep, Sized, TooLong
from coalmine.review.steps.comparing import as_many_as_fit, compare, obstacle_of
from coalmine.review.subject import StepRun, Subject

# Fewer non-members show nothing beyond chance, and more only narrow what is known.
FEWEST, MOST = 40, 1_000


class DocumentsStep(ReviewStep):
    """Documents of the training data against held-out ones, with the blind baseline."""

    name = "documents"
    title = "Membership of training documents"
    audits = ("provenance",)
    share = 2.0
    files = (PROVENANCES.file,)

    def obstacle(self, subject: Subject) -> str | None:
        """No held-out text, or a model that cannot be asked."""
        if subject.gathered.held_out is None:
            return "no held-out text was given to compare with (--held-out)"
        return obstacle_of(subject)

    def plan(self, subject: Subject, seconds: float) -> Sized | TooLong:
        """As many documents as fit."""
        held_out = subject.gathered.held_out
        if held_out is None:
            return TooLong(seconds)
        members = subject.gathered.training.sample
        return as_many_as_fit(
            subject, members, held_out.sample, seconds, fewest=FEWEST, most=MOST, what="documents"
        )

    def run(self, subject: Subject, settings: dict[str, Any], running: StepRun) -> None:
        """Ask about both groups."""
        held_out = subject.gathered.held_out
        if held_out is not None:
            members = subject.gathered.training.sample
            compare(subject, members, held_out.sample, "document", settings, running)
