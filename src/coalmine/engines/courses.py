"""Courses: work of several steps, each of which needs the results of the one before; many courses share one engine.

A course is a generator. It yields a `CourseStep`, units of one work, and goes on once their results are there. The steps that all courses
wait for are run together, as one wave, so that many courses with one unit each keep all workers busy.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from coalmine.engines.engine import Engine, Job
from coalmine.engines.ledger import Ledger
from coalmine.engines.units import Arrays, Outcome, Unit, Work
from coalmine.errors import CoalmineError, NoNumberError, NotMeasurableError, NoTokenError, WorkerLostError
from coalmine.progress import Progress, Silent

Result = TypeVar("Result")
# Problems of a unit that say nothing about other units.
SURVIVED: tuple[type[CoalmineError], ...] = (
    NotMeasurableError,
    NoNumberError,
    NoTokenError,
    WorkerLostError,
)


class CourseStep(NamedTuple):
    """Units that a course waits for.

    Attributes:
        task: what is done, for the progress.
        total: how much progress all units make together; None if it is not known.
        take: receives the number of a unit and its result, as each arrives, in any order; results are then not collected.
        survives: problems of a unit that are raised in the course, once the others that run have ended: that of the unit with the lowest
            number, whatever the engine. Any other problem ends all courses at once.
        failed: receives the number of a unit and its problem instead, if it is one of these; the course goes on without its result.
    """

    work: Work
    units: Sequence[Unit]
    task: str
    total: int | None = None
    take: Callable[[int, Arrays], None] | None = None
    survives: tuple[type[CoalmineError], ...] = SURVIVED
    failed: Callable[[int, CoalmineError], None] | None = None


# What a step gives its course: the results of its units in their order, unless the step takes them itself.
Course = Generator[CourseStep, list[Arrays], Result]


def one_result(step: CourseStep) -> Course[Arrays]:
    """The result of a step with a single unit."""
    (found,) = yield step
    return found


def run_courses(
    engine: Engine,
    courses: Sequence[Course[Result]],
    *,
    ledger: Ledger | None = None,
    progress: Progress | None = None,
) -> list[Result]:
    """Run all courses to their ends; their results, in the order of the courses. An error that a course does not handle is raised.

    >>> def twice(number):
    ...     return 2 * number
    ...     yield
    >>> from coalmine.engines.here import Here
    >>> with Here() as engine:
    ...     run_courses(engine, [twice(2), twice(3)])
    [4, 6]
    """
    shown = progress or Silent()
    results: dict[int, Result] = {}
    going = [_Going(place, course) for place, course in enumerate(courses)]
    try:
        while going:
            following = []
            for one in going:
                try:
                    one.resume()
                    following.append(one)
                except StopIteration as end:
                    results[one.place] = end.value
            going = following
            if going:
                _run_wave(engine, going, ledger, shown)
    finally:
        for course in courses:
            course.close()
    return [results[place] for place in range(len(courses))]


class _Going:
    """A course that is not at its end."""

    def __init__(self, place: int, course: Course[Any]) -> None:
        self.place, self._course = place, course
        self._step: CourseStep | None = None
        self._found: dict[int, Arrays] = {}
        self._problem: tuple[int, CoalmineError] | None = None

    @property
    def step(self) -> CourseStep:
        """What it waits for."""
        if self._step is None:
            raise RuntimeError("a course was run before it was started; please report this")
        return self._step

    def resume(self) -> None:
        """Go on to the next step; raises StopIteration at the end."""
        if self._step is None:
            self._step = next(self._course)
        elif self._problem is not None:
            self._step = self._course.throw(self._problem[1])
        else:
            self._step = self._course.send([self._found[number] for number in sorted(self._found)])
        self._found, self._problem = {}, None

    def units(self) -> Iterator[Unit]:
        """The units of the step; none after one has failed."""
        for unit in self.step.units:
            if self._problem is not None:
                return
            yield unit

    def add(self, outcome: Outcome) -> None:
        """Note what became of a unit."""
        problem = outcome.problem
        if problem is not None:
            if not isinstance(problem, self.step.survives):
                raise problem
            if self.step.failed is not None:
                self.step.failed(outcome.number, problem)
            elif self._problem is None or outcome.number < self._problem[0]:
                self._problem = outcome.number, problem
        elif self.step.take is not None:
            self.step.take(outcome.number, outcome.value())
        else:
            self._found[outcome.number] = outcome.value()


def _run_wave(engine: Engine, going: Sequence[_Going], ledger: Ledger | None, progress: Progress) -> None:
    """Run the steps that courses wait for, all together."""
    totals = [one.step.total for one in going]
    known = [total for total in totals if total is not None]
    tasks = list(dict.fromkeys(one.step.task for one in going))
    more = f" (and {len(going) - 1} more)" if len(going) > 1 else ""
    progress.start(tasks[0] + more, sum(known) if len(known) == len(totals) else None)
    jobs = [Job(one.step.work, one.units()) for one in going]
    for place, outcome in engine.map_each(jobs, ledger=ledger, progress=progress):
        if ledger is not None and isinstance(outcome.problem, WorkerLostError):
            ledger.hold()
        going[place].add(outcome)
    progress.finish()
