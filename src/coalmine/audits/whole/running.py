"""Steps of an audit, and running them within the time: each is planned when it begins, what has its results is not repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coalmine.audits.exposure.results import duration
from coalmine.audits.whole.records import Review, StepRecord
from coalmine.audits.whole.subject import Clock, Subject
from coalmine.engines.engine import Engine
from coalmine.engines.ledger import Ledger
from coalmine.errors import InputError, MissingExtraError, ModelError, ModelOutputError, NotMeasurableError
from coalmine.models.protocols import Scorer
from coalmine.progress import Progress
from coalmine.storage.directories import UNFINISHED_FILE
from coalmine.visible import visible

# What is planned with, of all that is given: a step may take longer than the speeds say, and the report takes a while too.
PLANNED_SHARE = 0.8
# What is left of the time for the report, in seconds; and the least that a step may take, whatever is left.
REPORTING, LEAST = 10.0, 3.0
# What ends a step and not the audit: the others may still have an answer.
_NO_ANSWER = (NotMeasurableError, ModelError, ModelOutputError, MissingExtraError)


class Sized(NamedTuple):
    """A step as it fits into the time that it was given.

    Attributes:
        settings: what was decided, by name; plain values that JSON can hold. `run` gets them back.
        seconds: what it will take, by the measured speeds.
        size: what is asked, in words, such as "800 sequences".
        cut: what was left out to fit, in a clause; empty where nothing was.
    """

    settings: dict[str, Any]
    seconds: float
    size: str
    cut: str = ""


class TooLong(NamedTuple):
    """A step of which not even the least that says anything fits; `seconds` is what that would take."""

    seconds: float


class StepRun(NamedTuple):
    """Where the work of a step runs, and where its results go."""

    folder: Path
    engine: Engine
    progress: Progress


@dataclass(frozen=True, kw_only=True)
class AuditStep:
    """One step of an audit.

    Attributes:
        name: its name, which is that of its folder.
        title: what it tests, in a few words.
        audits: the audits whose results it gives, by the names in the registry; none for one that asks no model.
        share: how much of the time it gets, compared with the others.
        files: its results: it is done where all of them are in its folder.
        obstacles: each says why it does not apply, in a clause that says what to do about it, or None.
        plan: what fits into so many seconds.
        run: asks the model with the settings of the plan, and writes the results; what was stopped resumes.
        asked: what its results say was asked, and what was left out to fit, where the plan did not know.
    """

    name: str
    title: str
    audits: tuple[str, ...]
    share: float
    files: tuple[str, ...]
    obstacles: tuple[Callable[[Subject], str | None], ...] = ()
    plan: Callable[[Subject, float], Sized | TooLong]
    run: Callable[[Subject, dict[str, Any], StepRun], None]
    asked: Callable[[Path, dict[str, Any]], tuple[str, str]] | None = None

    def obstacle(self, subject: Subject) -> str | None:
        """Why it does not apply; None where it does."""
        return next((why for one in self.obstacles if (why := one(subject)) is not None), None)

    def is_done(self, folder: Path) -> bool:
        """Whether its results are in its folder, and nothing of a run that was killed while it wrote them."""
        return (
            all((folder / name).is_file() for name in self.files) and not (folder / UNFINISHED_FILE).exists()
        )

    def forget(self, folder: Path) -> None:
        """Remove what a run left that was killed once its results were there: what would resume it is not needed any more."""
        for one in {(folder / name).parent for name in self.files}:
            Ledger(one).forget()


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
        """A step with its share of what is left, or with the least that says anything where that fits."""
        why = step.obstacle(self.subject)
        if why is not None:
            return msgspec.structs.replace(record, status="not_applicable", why=why)
        left = self._left()
        seconds = left * step.share / sum(one.share for one in [step, *self._later(step)])
        plan = step.plan(self.subject, max(seconds, LEAST if self._possible else 0.0))
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

    def _later(self, step: AuditStep) -> list[AuditStep]:
        """The steps that are to be planned after this one."""
        return [
            one
            for one in self.steps[self.steps.index(step) + 1 :]
            if self.record(one).status == "planned" and one.obstacle(self.subject) is None
        ]

    def _ran(self, step: AuditStep, record: StepRecord) -> StepRecord:
        # Where no time is left, a step may still take the least.
        end = max(self._end(), self.clock() + LEAST)
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
