"""Documents and users: members of the training data against known non-members, by an audit of provenance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coalmine.audits.provenance.measure import audit_provenance
from coalmine.audits.provenance.options import By, ProvenanceOptions
from coalmine.audits.provenance.users import AuditedUsers, User
from coalmine.audits.provenance.views import view_of
from coalmine.audits.whole.samples import CorpusSample
from coalmine.audits.whole.step import Sized, StepRun, Subject, TooLong
from coalmine.errors import NotMeasurableError

# The fewest that show anything beyond chance; more than the most only narrow what is known.
FEWEST: dict[By, int] = {"document": 40, "user": 10}
MOST: dict[By, int] = {"document": 1_000, "user": 400}
# Statistics and the blind baseline take this long for each user or document, in seconds.
JUDGING = 0.01
# The figure about hidden units: so many texts of each group, each of which takes as long as this many; it is drawn only where it takes
# no more than this share of the time.
FIGURE_TEXTS, FIGURE_COSTS, FIGURE_SHARE = 100, 7, 0.1


def no_held_out(subject: Subject) -> str | None:
    """There must be something to compare with."""
    there = subject.gathered.held_out is not None
    return None if there else "no held-out text was given to compare with (--held-out)"


def no_users(subject: Subject) -> str | None:
    """It must be known whose texts these are, and others must have written the held-out text."""
    field, held_out = subject.inputs.fields.user, subject.gathered.held_out
    if field is None:
        return "it was not said which field names the user of a text (--field user=NAME)"
    if held_out is None:
        return "no held-out text by other users was given to compare with (--held-out)"
    if not subject.gathered.training.users:
        return f"no document of the training data names a user in the field {field!r}"
    if not held_out.users:
        return "the held-out text has no user who is not in the training data too; give text by other users"
    return None


def no_view(subject: Subject) -> str | None:
    """The model must say something about texts."""
    try:
        view_of(subject.model)
    except NotMeasurableError as problem:
        return str(problem)
    return None if subject.speeds.lines else "the model could not read any document of the training data"


def _groups(subject: Subject, by: By) -> tuple[Sequence[User], Sequence[User]]:
    """Both groups in a random order, so that the first ones are a sample."""

    def of(sample: CorpusSample | None) -> Sequence[User]:
        return () if sample is None else sample.users if by == "user" else sample.sample

    return of(subject.gathered.training), of(subject.gathered.held_out)


def plan(subject: Subject, by: By, seconds: float) -> Sized | TooLong:
    """As many of each group as fit."""
    members, others = _groups(subject, by)
    every = [*members, *others]
    characters = sum(len(text.text) for user in every for text in user.texts) / len(every)
    each = 2 * (subject.scoring(characters, compared=True) + JUDGING)
    there = min(MOST[by], max(len(members), len(others)))
    fewest = min(FEWEST[by], there)
    if fewest * each > seconds:
        return TooLong(fewest * each)
    number = min(there, max(fewest, int(seconds / each)))
    beside = "" if subject.reference is None else ", with the reference model beside"
    figure = FIGURE_COSTS * min(FIGURE_TEXTS, number) * each
    drawn = number == there and figure <= min(FIGURE_SHARE * seconds, seconds - number * each)
    what = f"{by}s"
    return Sized(
        {"number": number, "figure": drawn},
        number * each + figure * drawn,
        f"{min(number, len(members)):,} {what} of the training data against {min(number, len(others)):,} held-out ones{beside}",
        ""
        if number == there
        else f"{number:,} {what} of each group were compared and not {there:,}, to fit into the time",
    )


def run(subject: Subject, by: By, settings: dict[str, Any], running: StepRun) -> None:
    """Ask about both groups."""
    members, others = (group[: settings["number"]] for group in _groups(subject, by))
    texts, hashes = FIGURE_TEXTS if settings["figure"] else 0, subject.inputs.hashes
    audit_provenance(
        subject.model,
        AuditedUsers(members, non_members=others, members={user.name for user in members}),
        ProvenanceOptions(by=by, seed=subject.seed, ablation_texts=texts),
        reference_model=subject.reference,
        out=running.folder,
        engine=running.engine,
        progress=running.progress,
        data_sha256={"suspects": hashes["data"], "non_members": hashes["held_out"]},
    )
