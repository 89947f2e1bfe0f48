"""Engines: the same results from each, resuming by content keys, failures as values, and kills that lose nothing."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from coalmine.engines.engine import Job, engine_named, open_engine
from coalmine.engines.ledger import Ledger
from coalmine.engines.units import Unit, in_order
from coalmine.errors import InputError, NotMeasurableError, WorkerLostError
from engines.works import Counting, Poisoned, Squares, squares

ENGINES = ["here", "processes:2"]


class Shown:
    """Sums up the progress."""

    def __init__(self):
        self.amount = 0

    def start(self, task, total):
        pass

    def advance(self, amount=1, note=""):  # noqa: ARG002
        self.amount += amount

    def finish(self):
        pass


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_gives_each_unit_once_with_its_number_and_progress(name):
    shown = Shown()
    with open_engine(name) as engine:
        found = list(in_order(engine.map(Squares(scale=3), squares(7), progress=shown)))
    assert [outcome.number for outcome in found] == list(range(7))
    assert np.array_equal(np.concatenate([o.value()["squares"] for o in found]), 3 * np.arange(70) ** 2)
    assert shown.amount == 70
    assert {outcome.attempts for outcome in found} == {1}


@pytest.mark.parametrize("name", ENGINES)
def test_several_works_at_once_and_one_after_the_other(name):
    with open_engine(name) as engine:
        found = list(engine.map_each([Job(Squares(1), squares(3)), Job(Squares(2), squares(2))]))
        again = list(engine.map(Squares(5), squares(2)))
    sums = {(job, o.number): int(o.value()["squares"].sum()) for job, o in found}
    first, second = (int((np.arange(s, s + 10) ** 2).sum()) for s in (0, 10))
    assert (sums[0, 0], sums[1, 0], sums[1, 1]) == (first, 2 * first, 2 * second)
    assert len(sums) == 5
    assert sorted(o.number for o in again) == [0, 1]


@pytest.mark.parametrize("first", ENGINES)
@pytest.mark.parametrize("second", ENGINES)
def test_what_one_engine_finished_no_engine_runs_again(tmp_path, first, second):
    runs = tmp_path / "runs"
    runs.mkdir()
    ledger = Ledger(tmp_path / "out")
    ledger.begin("mine")
    with open_engine(first) as engine:
        for _, _outcome in zip(
            range(3), engine.map(Squares(1, str(runs)), squares(3), ledger=ledger), strict=False
        ):
            pass
    before = {path.name for path in runs.glob("unit-*")}
    again = Ledger(tmp_path / "out")
    again.begin("mine")
    with open_engine(second) as engine:
        found = list(in_order(engine.map(Squares(1, str(runs)), squares(5), ledger=again)))
    assert [o.attempts for o in found] == [0, 0, 0, 1, 1]
    assert np.array_equal(np.concatenate([o.value()["squares"] for o in found]), np.arange(50) ** 2)
    assert len({path.name for path in runs.glob("unit-*")} - before) == 2
    again.forget()
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("name", ENGINES)
def test_a_unit_that_fails_is_a_value_and_stops_no_other(tmp_path, name):
    with open_engine(name) as engine:
        found = list(in_order(engine.map(Poisoned(str(tmp_path), refused=(1,)), [Unit(n) for n in range(4)])))
    assert [outcome.problem is None for outcome in found] == [True, False, True, True]
    with pytest.raises(NotMeasurableError, match="unit 1 has no honest number"):
        found[1].value()


@pytest.mark.parametrize("name", ENGINES)
def test_a_work_that_cannot_be_prepared_is_an_error_at_once(tmp_path, name):
    with open_engine(name) as engine, pytest.raises(InputError, match="cannot be read here"):
        list(engine.map(Poisoned(str(tmp_path), unprepared=True), [Unit(n) for n in range(4)]))


def test_a_worker_that_is_killed_is_replaced_and_its_unit_is_run_again(tmp_path):
    with open_engine("processes:2") as engine:
        found = list(
            in_order(engine.map(Poisoned(str(tmp_path), deadly_once=(2,)), [Unit(n) for n in range(6)]))
        )
    assert [int(outcome.value()["number"]) for outcome in found] == list(range(6))
    assert found[2].attempts == 2


def test_a_unit_that_kills_its_worker_each_time_fails_and_the_others_do_not(tmp_path):
    with open_engine("processes:2") as engine:
        found = list(in_order(engine.map(Poisoned(str(tmp_path), deadly=(2,)), [Unit(n) for n in range(6)])))
    assert [outcome.problem is None for outcome in found] == [True, True, False, True, True, True]
    assert found[2].attempts == 3
    with pytest.raises(WorkerLostError, match="SIGKILL"):
        found[2].value()


@pytest.mark.parametrize("name", ENGINES)
def test_ctrl_c_keeps_what_running_units_have_and_the_same_call_resumes(tmp_path, name):
    whole = {0: 190, 1: 190}
    ledger = Ledger(tmp_path / "out")
    ledger.begin("mine")

    def interrupt():
        while not (tmp_path / "reached-0").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    waiting = threading.Thread(target=interrupt)
    waiting.start()
    with open_engine(name) as engine, pytest.raises(KeyboardInterrupt):
        list(engine.map(Counting(str(tmp_path), stops_at=7), [Unit(0), Unit(1)], ledger=ledger))
    waiting.join()
    again = Ledger(tmp_path / "out")
    again.begin("mine")
    with open_engine("here") as engine:
        found = list(engine.map(Counting(str(tmp_path)), [Unit(0), Unit(1)], ledger=again))
    assert {o.number: int(o.value()["total"]) for o in found} == whole
    assert (tmp_path / "resumed-0-at-7").exists()
    again.forget()
    assert not list((tmp_path / "out").iterdir())


def test_a_worker_killed_in_the_middle_of_a_unit_resumes_from_what_it_kept(tmp_path):
    ledger = Ledger(tmp_path / "out", seconds_between_saves=0.0)
    ledger.begin("mine")
    with open_engine("processes:1") as engine:

        def kill():
            while not (tmp_path / "reached-0").exists():
                time.sleep(0.01)
            time.sleep(0.1)
            engine.pool._processes[0].process.kill()

        killing = threading.Thread(target=kill)
        killing.start()
        found = list(engine.map(Counting(str(tmp_path), stops_at=7), [Unit(0)], ledger=ledger))
        killing.join()
    assert int(found[0].value()["total"]) == 190
    assert found[0].attempts == 2
    assert (tmp_path / "resumed-0-at-7").exists()


@pytest.mark.parametrize("name", ["", "nowhere", "processes:0", "processes:x", "processes:-1", "here:2"])
def test_engines_that_there_are_not(name):
    with pytest.raises(InputError, match=r"engine"):
        engine_named(name)


def test_more_workers_than_memory_allows_are_rejected_before_any_starts():
    with open_engine("processes:2") as engine, pytest.raises(InputError, match="2 workers may need"):
        list(engine.map(Squares(memory_bytes=2**50), squares(2)))


def test_keys_depend_on_the_work_its_version_its_facts_and_the_inputs(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.begin("mine")
    with open_engine("here") as engine:
        list(engine.map(Squares(1), squares(1), ledger=ledger))
        again = Ledger(tmp_path)
        again.begin("mine")
        attempts = [
            next(engine.map(work, [unit], ledger=again)).attempts
            for work, unit in [
                (Squares(1), squares(1)[0]),
                (Squares(2), squares(1)[0]),
                (Squares(1, name="squares/2"), squares(1)[0]),
                (Squares(1), Unit((0, 11))),
            ]
        ]
    assert attempts == [0, 1, 1, 1]
    assert not list(Path(tmp_path).glob("*.npz"))
