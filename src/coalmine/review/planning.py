"""The plan of an audit: every step gets a share of the time, and what one does not need is passed on to those that need more."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from coalmine.audits.exposure.results import duration
from coalmine.audits.steps.results import StepRecord
from coalmine.errors import InputError, NotMeasurableError
from coalmine.models.protocols import Scorer
from coalmine.review.step import ReviewStep, Sized, TooLong
from coalmine.review.steps.canaries import ExposureStep, ExtractionStep, MembershipStep
from coalmine.review.steps.documents import DocumentsStep
from coalmine.review.steps.recitation import RecitationStep
from coalmine.review.steps.scan import ScanStep
from coalmine.review.steps.secrets import SecretsStep
from coalmine.review.steps.users import UsersStep
from coalmine.review.subject import Subject
from coalmine.visible import visible

# All steps, in the order in which they run.
STEPS: tuple[ReviewStep, ...] = (
    ScanStep(),
    SecretsStep(),
    RecitationStep(),
    DocumentsStep(),
    UsersStep(),
    ExposureStep(),
    ExtractionStep(),
    MembershipStep(),
)
# What is planned with, of all that is given: a step may take longer than its costs say, and the report takes a while too.
PLANNED_SHARE = 0.8


def make_plan(
    steps: Sequence[ReviewStep], subject: Subject, minutes: float, spent: float = 0.0
) -> tuple[StepRecord, ...]:
    """What each step is asked, of an audit that may take so many minutes, of which some seconds are spent.

    An InputError where no step applies, or where the time is too short for any that does.
    """
    found = plan_steps(steps, subject, max(0.0, PLANNED_SHARE * 60 * minutes - spent))
    if any(one.status == "planned" for one in found):
        return found
    short = [one for one in found if one.status == "no_time"]
    if short:
        raise InputError(_too_short(short, minutes, spent))
    if not isinstance(subject.model, Scorer):
        raise NotMeasurableError(
            f"the model {visible(subject.model.name)} gives no probabilities, so what it remembers cannot be measured; what it "
            "writes by itself can be looked at with `coalmine extract --method prompt`"
        )
    why = "; ".join(dict.fromkeys(f"{one.title.lower()}: {one.why}" for one in found))
    raise InputError(f"nothing can be tested with what was given ({why})")


def plan_steps(steps: Sequence[ReviewStep], subject: Subject, seconds: float) -> tuple[StepRecord, ...]:
    """What each step is asked, or why it is not, where all of them have so many seconds."""
    obstacles = {step.name: step.obstacle(subject) for step in steps}
    found = _shared([step for step in steps if obstacles[step.name] is None], subject, seconds)
    left = seconds - sum(one.seconds for one in found.values() if isinstance(one, Sized))
    return tuple(
        _record(step, found[step.name], left)
        if step.name in found
        else _left_out(step, obstacles[step.name] or "")
        for step in steps
    )


def planned_again(step: ReviewStep, subject: Subject, seconds: float) -> StepRecord:
    """The record of a step for which so many seconds are left."""
    return _record(step, step.plan(subject, seconds), seconds)


def _shared(steps: Sequence[ReviewStep], subject: Subject, seconds: float) -> dict[str, Sized | TooLong]:
    """A plan for each step: first within its share of the time, or the least that says anything, then with what is left.

    Where there is not enough for the least of all, the first steps, which are the most important, have it.
    """
    found: dict[str, Sized | TooLong] = {}
    left, shares = seconds, sum(step.share for step in steps)
    for step in steps:
        one = step.plan(subject, left * step.share / shares)
        if isinstance(one, TooLong) and one.seconds <= left:
            one = step.plan(subject, one.seconds)
        found[step.name] = one
        shares -= step.share
        left -= one.seconds if isinstance(one, Sized) else 0.0
    # Those without anything first, then those with less than they could use.
    for step in sorted(steps, key=lambda step: isinstance(found[step.name], Sized)):
        one = found[step.name]
        if isinstance(one, TooLong) or one.cut:
            own = one.seconds if isinstance(one, Sized) else 0.0
            again = step.plan(subject, left + own)
            if isinstance(again, Sized):
                left -= again.seconds - own
                found[step.name] = again
    return found


def _record(step: ReviewStep, plan: Sized | TooLong, left: float) -> StepRecord:
    if isinstance(plan, TooLong):
        there = f"{duration(left)} are left" if left >= 1 else "no time is left"
        why = f"it would take about {duration(max(1.0, plan.seconds))}, and {there} for it"
        record = _left_out(step, why)
        return msgspec.structs.replace(record, status="no_time", expected_seconds=round(plan.seconds, 1))
    return StepRecord(
        name=step.name,
        title=step.title,
        audits=step.audits,
        status="planned",
        size=plan.size,
        why=plan.cut,
        settings=plan.settings,
        expected_seconds=round(plan.seconds, 1),
    )


def _left_out(step: ReviewStep, why: str) -> StepRecord:
    return StepRecord(name=step.name, title=step.title, audits=step.audits, status="not_applicable", why=why)


def _too_short(short: Sequence[StepRecord], minutes: float, spent: float) -> str:
    shortest = min(short, key=lambda one: one.expected_seconds)
    seconds = shortest.expected_seconds
    # With this much, the step gets what it takes; a little more, because the next run measures a little differently.
    needed = max(1, round((1.25 * seconds + spent) / PLANNED_SHARE / 60 + 0.5))
    return (
        f"{minutes:g} minutes are too short for any step: the shortest, {shortest.title.lower()}, would take about {duration(seconds)}, "
        f"after {duration(spent)} for reading and measuring; give --minutes {needed}"
    )
