"""The progress of an audit: which step runs and how much time is left; and the end of a step whose time is up."""

from __future__ import annotations

from coalmine.audits.exposure.results import duration
from coalmine.progress import Progress
from coalmine.review.costs import Clock


class OutOfTime(KeyboardInterrupt):
    """The time of an audit is up in the middle of a step. It stops the work as Ctrl-C does, which keeps what was done."""


class StepProgress:
    """Shows the tasks of one step with its place among the steps and the time that is left, and ends it when there is none."""

    def __init__(self, shown: Progress, clock: Clock, *, place: str, end: float) -> None:
        self._shown, self._clock, self._place, self._end = shown, clock, place, end

    def start(self, task: str, total: int | None) -> None:
        """A task begins."""
        left = self._end - self._clock()
        self._check(left)
        self._shown.start(f"{self._place} ({duration(left)} left): {task}", total)

    def advance(self, amount: int = 1, note: str = "") -> None:
        """More is done."""
        self._shown.advance(amount, note)
        self._check(self._end - self._clock())

    def finish(self) -> None:
        """The task is over."""
        self._shown.finish()

    def _check(self, left: float) -> None:
        if left <= 0:
            raise OutOfTime
