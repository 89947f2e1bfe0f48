"""What the steps about documents and about users share: members against known non-members, by an audit of provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coalmine.audits.provenance.measuring import AuditedUsers, audit_provenance
from coalmine.audits.provenance.options import By, ProvenanceOptions
from coalmine.audits.provenance.users import User
from coalmine.audits.provenance.views import view_of
from coalmine.errors import NotMeasurableError
from coalmine.review.step import Sized, TooLong
from coalmine.review.subject import StepRun, Subject

# Statistics and the blind baseline take this long for each user or document, in seconds.
JUDGING = 0.01
# The figure about hidden units: so many texts of each group, each of which takes as long as this many; it is drawn only where it takes
# no more than this share of the time.
FIGURE_TEXTS, FIGURE_COSTS, FIGURE_SHARE = 100, 7, 0.1


def obstacle_of(subject: Subject) -> str | None:
    """Why the model cannot be asked about texts, if so."""
    try:
        view_of(subject.model)
    except NotMeasurableError as problem:
        return str(problem)
    return None if subject.costs.reading else "the model could not read any document of the training data"


def as_many_as_fit(
    subject: Subject,
    members: Sequence[User],
    others: Sequence[User],
    seconds: float,
    *,
    fewest: int,
    most: int,
    what: str,
) -> Sized | TooLong:
    """As many of each group as fit; both are in a random order, so that the first ones are a sample."""
    every = [*members, *others]
    characters = sum(len(text.text) for user in every for text in user.texts) / len(every)
    each = 2 * (characters * (subject.models_take("reading") or 0.0) + JUDGING)
    there = min(most, max(len(members), len(others)))
    if min(fewest, there) * each > seconds:
        return TooLong(min(fewest, there) * each)
    number = min(there, int(seconds / each))
    beside = "" if subject.reference is None else ", with the reference model beside"
    figure = FIGURE_COSTS * min(FIGURE_TEXTS, number) * each
    drawn = number == there and figure <= FIGURE_SHARE * seconds and number * each + figure <= seconds
    return Sized(
        {"number": number, "figure": drawn},
        number * each + figure * drawn,
        f"{min(number, len(members)):,} {what} of the training data against {min(number, len(others)):,} held-out ones{beside}",
        ""
        if number == there
        else f"{number:,} {what} of each group were compared and not {there:,}, to fit into the time",
    )


def compare(
    subject: Subject,
    members: Sequence[User],
    others: Sequence[User],
    by: By,
    settings: Mapping[str, Any],
    running: StepRun,
) -> None:
    """Ask about so many of each group, and write provenance.json."""
    number, texts = settings["number"], FIGURE_TEXTS if settings.get("figure", True) else 0
    suspects = members[:number]
    hashes: dict[str, Any] = {"suspects": subject.hashes["data"], "non_members": subject.hashes["held_out"]}
    audit_provenance(
        subject.model,
        AuditedUsers(suspects, non_members=others[:number], members={user.name for user in suspects}),
        ProvenanceOptions(by=by, seed=subject.seed, ablation_texts=texts),
        reference_model=subject.reference,
        out=running.folder,
        engine=running.engine,
        progress=running.progress,
        data_sha256=hashes,
    )
