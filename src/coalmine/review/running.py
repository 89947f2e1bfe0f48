"""Running the steps of a plan, one after the other: what has its results is not repeated, and what is stopped resumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from coalmine.audits.exposure.results import duration
from coalmine.audits.steps.results import Review, StepRecord
from coalmine.engines.engine import Engine
from coalmine.errors import MissingExtraError, ModelError, ModelOutputError, NotMeasurableError
from coalmine.progress import Progress
from coalmine.review.costs import Clock
from coalmine.review.planning import PLANNED_SHARE, planned_again
from coalmine.review.progress import OutOfTime, StepProgress
from coalmine.review.step import ReviewStep
from coalmine.review.subject import StepRun, Subject

# What is left of the time for the report, in seconds; and the least that a step may take, whatever is left.
REPORTING, LEAST = 10.0, 3.0
# Later steps that take more, but no more than this share of all time, keep it: a step that takes longer than was planned does not get it.
CHEAP = 0.05
Save = Callable[[Review], None]
# What ends a step and not the audit: the others may still have an answer.
_NO_ANSWER = (NotMeasurableError, ModelError, ModelOutputError, MissingExtraError)


def run_steps(
    review: Review,
    steps: Sequence[ReviewStep],
    subject: Subject,
    *,
    engine: Engine,
    progress: Progress,
    clock: Clock,
    began: float,
    save: Save,
) -> Review:
    """The review once these steps of it are over; each change of it is saved before it is acted on.

    `began` is when the clock was where no time was spent; what an earlier run spent counts too.
    """
    run = _Running(review, subject, engine, progress, clock, began, save)
    for step in steps:
        run.step(step, step.title)
    for step in steps:
        run.step_after_all(step)
    return run.review


class _Running:
    """An audit, while it runs."""

    def __init__(
        self,
        review: Review,
        subject: Subject,
        engine: Engine,
        progress: Progress,
        clock: Clock,
        began: float,
        save: Save,
    ) -> None:
        self.review, self._subject, self._engine, self._progress = review, subject, engine, progress
        self._clock, self._save = clock, save
        self._end = began + 60 * review.minutes - REPORTING
        self._planned_end = began + PLANNED_SHARE * 60 * review.minutes

    def step(self, step: ReviewStep, place: str) -> None:
        record = self.review.step(step.name)
        if record is None or record.status not in {"planned", "running"}:
            return
        if record.status == "planned":
            record = self._in_time(step, record)
            if record.status != "planned":
                self._put(record)
                return
            record = msgspec.structs.replace(record, status="running")
            self._put(record)
        began = self._clock()
        done = record if step.is_done(self._subject) else self._run(step, record, place)
        took = (record.seconds or 0.0) + self._clock() - began
        status = "done" if done.status == "running" else done.status
        if status == "done":
            step.forget(self._subject)
            asked = step.asked(self._subject, record.settings)
            if asked is not None:
                done = msgspec.structs.replace(done, size=asked.size, why=asked.cut)
        self._put(msgspec.structs.replace(done, status=status, seconds=round(took, 1)))

    def step_after_all(self, step: ReviewStep) -> None:
        """Run a step that did not fit, if the others left enough time for it."""
        record = self.review.step(step.name)
        if record is None or record.status != "no_time" or record.seconds is not None:
            return
        again = planned_again(step, self._subject, max(0.0, self._planned_end - self._clock()))
        if again.status == "planned":
            self._put(again)
            self.step(step, step.title)

    def _in_time(self, step: ReviewStep, record: StepRecord) -> StepRecord:
        """The plan of a step, cut down further where the steps before took longer than was planned, and less where they took less."""
        if step.is_done(self._subject):
            return record
        left = max(0.0, self._end - self._clock())
        if record.expected_seconds > max(left, LEAST):
            return planned_again(step, self._subject, left)
        spare = self._planned_end - self._clock() - sum(self._later(step))
        if record.why and spare > record.expected_seconds:
            more = planned_again(step, self._subject, spare)
            return more if more.status == "planned" else record
        return record

    def _later(self, step: ReviewStep) -> list[float]:
        """The seconds of each planned step that comes after this one."""
        names = [one.name for one in self.review.steps]
        later = self.review.steps[names.index(step.name) + 1 :]
        return [one.expected_seconds for one in later if one.status == "planned"]

    def _run(self, step: ReviewStep, record: StepRecord, place: str) -> StepRecord:
        # A step that was begun by an earlier run that had no time left is still given a little.
        kept = sum(one for one in self._later(step) if LEAST < one <= CHEAP * 60 * self.review.minutes)
        end = max(self._end - kept, self._clock() + LEAST)
        shown = StepProgress(self._progress, self._clock, place=place, end=end)
        running = StepRun(self._subject.folder / step.name, self._engine, shown)
        try:
            step.run(self._subject, record.settings, running)
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
        self._save(self.review)
