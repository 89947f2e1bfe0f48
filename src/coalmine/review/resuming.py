"""An audit that is there already: whether it is the same one, and what is planned again where there is more time or more to go by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from coalmine.audits.steps.results import NOT_TESTED, REVIEWS, Review
from coalmine.errors import InputError
from coalmine.review.planning import PLANNED_SHARE, plan_steps
from coalmine.review.step import ReviewStep
from coalmine.review.subject import Subject

# What may be given later, and what messages call it and everything else.
_ADDED = {"held_out": "held-out text", "canaries": "canaries"}


def earlier_review(folder: Path, new: Review, steps: Sequence[ReviewStep]) -> Review | None:
    """The review in a directory, which must be of the same model and data; None where there is none.

    Held-out text, canaries and a user field may be added to those of an earlier run.
    """
    path = folder / REVIEWS.file
    if not path.is_file():
        for step in steps:
            if (folder / step.name).exists() and not step.comes_first:
                raise InputError(
                    f"{folder} has results of something else ({step.name}), and no {REVIEWS.file} of an audit; choose another directory"
                )
        return None
    found = REVIEWS.load(path)
    other = _difference(found, new)
    if other is not None:
        raise InputError(
            f"{folder} holds an audit of something else ({other} differs); choose another directory, or remove it"
        )
    return found


def _difference(found: Review, new: Review) -> str | None:
    if found.model != new.model:
        return "the model"
    if found.reference != new.reference:
        return "the reference model"
    if found.data_sha256.get("data") != new.data_sha256.get("data"):
        return "the training data"
    for role, what in _ADDED.items():
        if role in found.data_sha256 and found.data_sha256[role] != new.data_sha256.get(role):
            return f"the {what}"
    if found.settings.get("seed") != new.settings.get("seed"):
        return "the seed"
    fields, asked = found.settings.get("fields", {}), new.settings.get("fields", {})
    if any(asked.get(role) != name for role, name in fields.items()):
        return "a field"
    return None


def continued(found: Review, new: Review, subject: Subject, steps: Sequence[ReviewStep]) -> Review:
    """The earlier review, with a plan for what was not tested, where there is more time now or more was given."""
    more = new.data_sha256 != found.data_sha256 or new.settings != found.settings
    longer = new.minutes > found.minutes
    again = [
        step
        for step in steps
        if (record := found.step(step.name)) is None
        or (record.status == "not_applicable" and more)
        or (record.status == "no_time" and (longer or more))
    ]
    minutes = max(found.minutes, new.minutes)
    if not again:
        return msgspec.structs.replace(found, minutes=minutes)
    spent = found.prepared_seconds + sum(
        one.expected_seconds if one.seconds is None else one.seconds
        for one in found.steps
        if one.status not in NOT_TESTED
    )
    planned = {
        one.name: one for one in plan_steps(again, subject, max(0.0, PLANNED_SHARE * 60 * minutes - spent))
    }
    records = [planned.get(step.name) or found.step(step.name) for step in steps]
    return msgspec.structs.replace(
        found,
        minutes=minutes,
        data_sha256=new.data_sha256,
        settings=new.settings,
        warnings=subject.gathered.warnings,
        steps=tuple(one for one in records if one is not None),
        finished=False,
    )
