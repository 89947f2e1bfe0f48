"""Running the steps within the time: each is planned when it begins, what has its results is not repeated, and what is stopped resumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from coalmine.audits.exposure.results import duration
from coalmine.audits.whole.results import Review, StepRecord
from coalmine.audits.whole.speeds import Clock
from coalmine.audits.whole.step import AuditStep, Sized, StepRun, Subject, TooLong
from coalmine.engines.engine import Engine
from coalmine.errors import InputError, MissingExtraError, ModelError, ModelOutputError, NotMeasurableError
from coalmine.models.protocols import Scorer
from coalmine.progress import Progress
from coalmine.visible import visible

# What is planned with, of all that is given: a step may take longer than the speeds say, and the report takes a while too.
PLANNED_SHARE = 0.8
# What is left of the time for the report, in seconds; and the least that a step may take, whatever is left.
REPORTING, LEAST = 10.0, 3.0
# A step that takes no more than this share of all time has what it takes, whatever the steps before it do.
CHEAP = 0.05
# What ends a step and not the audit: the others may still have an answer.
_NO_ANSWER = (NotMeasurableError, ModelError, ModelOutputError, MissingExtraError)
_UNLIMITED = 1e9


class OutOfTime(KeyboardInterrupt):
    """The time of an audit is up in the middle of a step. It stops the work as Ctrl-C does, which keeps what was done."""


class _InTime:
    """Shows the tasks of one step with its title and the time that is left, and ends it when there is none."""

    def __init__(self, shown: Progress, clock: Clock, title: str, end: float) -> None:
        self._shown, self._clock, self._title, self._end = shown, clock, title, end

    def start(self, task: str, total: int | None) -> None:
        """A task begins."""
        self._shown.start(f"{self._title} ({duration(self._left())} left): {task}", total)

    def advance(self, amount: int = 1, note: str = "") -> None:
        """More is done."""
        self._shown.advance(amount, note)
        self._left()

    def finish(self) -> None:
        """The task is over."""
        self._shown.finish()

    def _left(self) -> float:
        left = self._end - self._clock()
        if left <= 0:
            raise OutOfTime
        return left


@dataclass(kw_only=True)
class AuditRun:
    """An audit, while it runs.

    Attributes:
        review: what was planned and done so far; each change of it is saved before it is acted on.
        began: when the clock was where no time was spent; what an earlier run spent counts too.
        save: keeps the review. Nothing is saved before it is known that anything can be tested.
    """

    review: Review
    steps: Sequence[AuditStep]
    subject: Subject
    engine: Engine
    progress: Progress
    clock: Clock
    began: float
    save: Callable[[Review], object]

    def __post_init__(self) -> None:
        self._all = 60 * self.review.minutes
        self._possible = any(self.record(one).seconds is not None for one in self.steps if one.audits)

    def finished(self) -> Review:
        """The review once all steps are over.

        An InputError where nothing that asks the model applies, or where the time is too short for any of it.
        """
        for step in self.steps:
            if step.audits:
                self.check_possible()
            self.step(step)
        self.review = msgspec.structs.replace(self.review, finished=True)
        self.save(self.review)
        return self.review

    def record(self, step: AuditStep) -> StepRecord:
        """What is known of a step."""
        return next(one for one in self.review.steps if one.name == step.name)

    def check_possible(self) -> None:
        """Refuse an audit in which nothing that asks the model can be run."""
        if self._possible:
            return
        why = {one: one.obstacle(self.subject) for one in self.steps if one.audits}
        able = [one for one in why if why[one] is None]
        left = max(0.0, self._left())
        plans = {one: one.plan(self.subject, left) for one in able}
        self._possible = any(isinstance(plan, Sized) for plan in plans.values())
        if self._possible:
            return
        if able:
            first = min(able, key=lambda one: plans[one].seconds)
            seconds, spent = plans[first].seconds, self.clock() - self.began
            # A little more, because the next run measures a little differently.
            needed = max(1, round((1.25 * seconds + spent) / PLANNED_SHARE / 60 + 0.5))
            raise InputError(
                f"{self.review.minutes:g} minutes are too short for any step: the shortest, {first.title.lower()}, would take about "
                f"{duration(seconds)}, after {duration(spent)} for reading and measuring; give --minutes {needed}"
            )
        if not isinstance(self.subject.model, Scorer):
            raise NotMeasurableError(
                f"the model {visible(self.subject.model.name)} gives no probabilities, so what it remembers cannot be measured; what it "
                "writes by itself can be looked at with `coalmine extract --method prompt`"
            )
        reasons = "; ".join(dict.fromkeys(f"{one.title.lower()}: {why[one]}" for one in why))
        raise InputError(f"nothing can be tested with what was given ({reasons})")

    def step(self, step: AuditStep) -> None:
        """Plan a step, if it was not begun, and run it."""
        record = self.record(step)
        begun = record.status == "running" or record.seconds is not None
        if record.status == "done" or (record.seconds is not None and self._left() <= 0):
            return
        if not begun:
            record = self._planned(step, record)
            if record.status != "planned":
                self._put(record)
                return
        record = msgspec.structs.replace(record, status="running", why="")
        self._put(record)
        clock_began = self.clock()
        folder = self.subject.folder / step.name
        done = record if step.is_done(folder) else self._ran(step, record)
        took = (record.seconds or 0.0) + self.clock() - clock_began
        if done.status == "running":
            step.forget(folder)
            size, cut = (
                (record.size, record.cut) if step.asked is None else step.asked(folder, record.settings)
            )
            done = msgspec.structs.replace(done, status="done", size=size, cut=cut)
        self._put(msgspec.structs.replace(done, seconds=round(took, 1)))

    def _left(self) -> float:
        """The seconds that are left to plan with."""
        return self.began + PLANNED_SHARE * self._all - self.clock()

    def _end(self) -> float:
        return self.began + self._all - REPORTING

    def _planned(self, step: AuditStep, record: StepRecord) -> StepRecord:
        """A step with its share of what is left, or with the least that says anything where that fits; a cheap one has what it takes."""
        why = step.obstacle(self.subject)
        if why is not None:
            return msgspec.structs.replace(record, status="not_applicable", why=why)
        takes, wanted, kept = self._takes(step), *self._later(step)
        left = self._left() - kept
        if self._is_cheap(takes):
            seconds = min(takes, max(left, self._end() - self.clock()))
        else:
            seconds = share_of(step, {step: takes, **wanted}, left)
        # A little more, so that rounding does not cut down what fits.
        plan = step.plan(self.subject, max(1.001 * seconds, LEAST if self._possible else 0.0))
        if isinstance(plan, TooLong) and plan.seconds <= left:
            plan = step.plan(self.subject, plan.seconds)
        if isinstance(plan, TooLong):
            there = f"{duration(left)} are left" if left >= 1 else "no time is left"
            why = f"it would take about {duration(max(1.0, plan.seconds))}, and {there} for it"
            return msgspec.structs.replace(
                record, status="no_time", why=why, expected_seconds=round(plan.seconds, 1)
            )
        return msgspec.structs.replace(
            record,
            status="planned",
            size=plan.size,
            cut=plan.cut,
            settings=plan.settings,
            expected_seconds=round(plan.seconds, 1),
        )

    def _takes(self, step: AuditStep) -> float:
        """The seconds that a step takes where it is not cut down."""
        return step.plan(self.subject, _UNLIMITED).seconds

    def _is_cheap(self, seconds: float) -> bool:
        return seconds <= CHEAP * self._all

    def _later(self, step: AuditStep) -> tuple[dict[AuditStep, float], float]:
        """What each step takes that is to be run after this one, and what is kept for the cheap ones of them."""
        later = {
            one: self._takes(one)
            for one in self.steps[self.steps.index(step) + 1 :]
            if self.record(one).status == "planned" and one.obstacle(self.subject) is None
        }
        # Any step may take the least that one may.
        cheap = [seconds for seconds in later.values() if seconds > LEAST and self._is_cheap(seconds)]
        return {one: seconds for one, seconds in later.items() if not self._is_cheap(seconds)}, sum(cheap)

    def _ran(self, step: AuditStep, record: StepRecord) -> StepRecord:
        # A step that was begun by an earlier run that had no time left is still given a little.
        end = max(self._end() - self._later(step)[1], self.clock() + LEAST)
        shown = _InTime(self.progress, self.clock, step.title, end)
        running = StepRun(self.subject.folder / step.name, self.engine, shown)
        try:
            step.run(self.subject, record.settings, running)
        except OutOfTime:
            why = (
                f"the time was up before it was finished (planned: {duration(record.expected_seconds)}); run the same command with more "
                "--minutes to resume it"
            )
            return msgspec.structs.replace(record, status="no_time", why=why)
        except _NO_ANSWER as problem:
            return msgspec.structs.replace(record, status="not_applicable", why=problem.shown())
        return record

    def _put(self, record: StepRecord) -> None:
        steps = tuple(record if one.name == record.name else one for one in self.review.steps)
        self.review = msgspec.structs.replace(self.review, steps=steps)
        if self._possible:
            self.save(self.review)


def share_of(step: AuditStep, takes: dict[AuditStep, float], seconds: float) -> float:
    """What a step gets of some time, all of which is shared by the shares; those that take less get what they take.

    >>> class Part:
    ...     def __init__(self, share):
    ...         self.share = share
    >>> small, large, larger = map(Part, (2.0, 1.0, 2.0))
    >>> share_of(large, {small: 10.0, large: 500.0, larger: 600.0}, 100.0)
    30.0
    """
    left = dict(takes)
    while True:
        shares = sum(one.share for one in left)
        content = [one for one in left if left[one] <= seconds * one.share / shares]
        if step in content:
            return takes[step]
        if not content:
            return seconds * step.share / shares
        seconds -= sum(left.pop(one) for one in content)
