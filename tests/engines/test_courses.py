"""Courses: steps that need the results of those before, run together; problems that a course survives, and those that end all."""

import numpy as np
import pytest

from coalmine.engines.courses import CourseStep, one_result, run_courses
from coalmine.engines.engine import open_engine
from coalmine.engines.ledger import Ledger
from coalmine.engines.units import Unit
from coalmine.errors import InputError, NotMeasurableError, WorkerLostError
from engines.works import Poisoned, Squares, squares


class Tasks:
    """The tasks that were shown, with their totals."""

    def __init__(self):
        self.shown = []

    def start(self, task, total):
        self.shown.append((task, total))

    def advance(self, amount=1, note=""):
        pass

    def finish(self):
        pass


def sum_of_squares_twice(number):
    """The sum of the squares below 10, that of the squares below as many tens, and both together."""
    first = yield from one_result(CourseStep(Squares(), squares(1), "first", 10))
    sums = {}

    def take(place, found):
        sums[place] = int(found["squares"].sum())

    assert (yield CourseStep(Squares(), squares(number), "second", 10 * number, take)) == []
    return int(first["squares"].sum()) + sum(sums.values())


def test_courses_of_different_lengths_go_through_their_steps_together():
    def ends_at_once():
        return "nothing to do"
        yield

    tasks = Tasks()
    with open_engine("here") as engine:
        courses = [sum_of_squares_twice(2), ends_at_once(), sum_of_squares_twice(3)]
        found = run_courses(engine, courses, progress=tasks)
    assert found == [285 + (np.arange(20) ** 2).sum(), "nothing to do", 285 + (np.arange(30) ** 2).sum()]
    assert tasks.shown == [("first (and 1 more)", 20), ("second (and 1 more)", 50)]


def test_a_course_may_go_on_without_units_that_fail(tmp_path):
    def poisoned():
        numbers, problems = [], {}
        work = Poisoned(str(tmp_path), refused=(1, 3))
        units = [Unit(n) for n in range(5)]
        step = CourseStep(work, units, "poisoned", take=lambda number, _: numbers.append(number))
        assert (
            yield step._replace(failed=lambda number, problem: problems.update({number: str(problem)}))
        ) == []
        return numbers, problems

    with open_engine("here") as engine:
        ((numbers, problems),) = run_courses(engine, [poisoned()])
    assert numbers == [0, 2, 4]
    assert problems == {1: "unit 1 has no honest number", 3: "unit 3 has no honest number"}


@pytest.mark.parametrize("name", ["here", "processes:2"])
def test_a_course_survives_the_problem_of_its_first_unit_that_fails_whatever_the_engine(name, tmp_path):
    def poisoned():
        try:
            yield CourseStep(
                Poisoned(str(tmp_path), refused=(3, 4, 5)), [Unit(n) for n in range(40)], "poisoned"
            )
        except NotMeasurableError as problem:
            again = yield CourseStep(Squares(), squares(1), "again")
            return str(problem), len(again)

    with open_engine(name) as engine:
        found = run_courses(engine, [poisoned(), sum_of_squares_twice(1)])
    assert found == [("unit 3 has no honest number", 1), 570]


def test_a_problem_that_no_course_survives_ends_all(tmp_path):
    ended = []

    def refused():
        try:
            yield CourseStep(
                Poisoned(str(tmp_path), refused=(0,)), [Unit(0)], "refused", survives=(WorkerLostError,)
            )
        finally:
            ended.append("refused")

    def unprepared():
        try:
            yield CourseStep(Poisoned(str(tmp_path), unprepared=True), [Unit(0)], "unprepared")
        finally:
            ended.append("unprepared")

    with open_engine("here") as engine:
        with pytest.raises(NotMeasurableError):
            run_courses(engine, [refused()])
        with pytest.raises(InputError, match="cannot be read"):
            run_courses(engine, [unprepared()])
    assert ended == ["refused", "unprepared"]


def test_what_is_known_is_kept_if_a_worker_is_lost_each_time(tmp_path):
    def deadly():
        try:
            yield CourseStep(Poisoned(str(tmp_path), deadly=(1,)), [Unit(n) for n in range(3)], "deadly")
        except WorkerLostError:
            return "lost"

    ledger = Ledger(tmp_path / "out")
    ledger.begin("mine")
    with open_engine("processes:1") as engine:
        assert run_courses(engine, [deadly()], ledger=ledger) == ["lost"]
    ledger.forget()
    again = Ledger(tmp_path / "out")
    again.begin("mine")
    assert again.has_results
    again.forget()
    assert not list((tmp_path / "out").iterdir())
