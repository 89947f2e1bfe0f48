"""What every engine must do, as tests: a module of tests inherits them with a fixture `engine` of its own, which is open."""

import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from coalmine.engines import scheduling
from coalmine.engines.engine import Job, open_engine
from coalmine.engines.ledger import Ledger
from coalmine.engines.units import Unit, in_order
from coalmine.errors import InputError, NotMeasurableError, WorkerLostError
from engines.works import Counting, Endless, Poisoned, Raising, Squares, Stubborn, Unsendable, squares
from waiting import wait_until

OTHERS = ["here", "processes:2"]


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


class EngineContract:
    """For every engine."""

    def test_gives_each_unit_once_with_its_number_and_progress(self, engine):
        shown = Shown()
        found = list(in_order(engine.map(Squares(scale=3), squares(7), progress=shown)))
        assert [outcome.number for outcome in found] == list(range(7))
        assert np.array_equal(np.concatenate([o.value()["squares"] for o in found]), 3 * np.arange(70) ** 2)
        assert shown.amount == 70
        assert {outcome.attempts for outcome in found} == {1}

    def test_several_works_at_once_and_one_after_the_other(self, engine):
        found = list(engine.map_each([Job(Squares(1), squares(3)), Job(Squares(2), squares(2))]))
        again = list(engine.map(Squares(5), squares(2)))
        sums = {(job, o.number): int(o.value()["squares"].sum()) for job, o in found}
        first, second = (int((np.arange(s, s + 10) ** 2).sum()) for s in (0, 10))
        assert (sums[0, 0], sums[1, 0], sums[1, 1]) == (first, 2 * first, 2 * second)
        assert len(sums) == 5
        assert sorted(o.number for o in again) == [0, 1]

    @pytest.mark.parametrize("other", OTHERS)
    def test_does_not_run_again_what_another_engine_finished_and_the_other_way_round(
        self, tmp_path, engine, other
    ):
        with open_engine(other) as opened:
            for name, first, second in [("from", opened, engine), ("to", engine, opened)]:
                self._finish_with_another(tmp_path / name, first, second)

    def _finish_with_another(self, folder, first, second):
        runs = folder / "runs"
        runs.mkdir(parents=True)
        ledger = Ledger(folder / "out")
        ledger.begin("mine")
        list(first.map(Squares(1, str(runs)), squares(3), ledger=ledger))
        before = {path.name for path in runs.glob("unit-*")}
        again = Ledger(folder / "out")
        again.begin("mine")
        found = list(in_order(second.map(Squares(1, str(runs)), squares(5), ledger=again)))
        assert [o.attempts for o in found] == [0, 0, 0, 1, 1]
        assert np.array_equal(np.concatenate([o.value()["squares"] for o in found]), np.arange(50) ** 2)
        assert len({path.name for path in runs.glob("unit-*")} - before) == 2
        again.forget()
        assert not list((folder / "out").iterdir())

    def test_a_unit_that_fails_is_a_value_and_stops_no_other(self, tmp_path, engine):
        units = [Unit(n) for n in range(4)]
        found = list(in_order(engine.map(Poisoned(str(tmp_path), refused=(1,)), units)))
        assert [outcome.problem is None for outcome in found] == [True, False, True, True]
        with pytest.raises(NotMeasurableError, match="unit 1 has no honest number"):
            found[1].value()

    def test_what_the_code_of_a_model_raises_is_the_problem_of_its_unit_without_the_message(self, engine):
        names = ["ValueError", "none", "ConnectionError", "EOFError", "BrokenPipeError", "SystemExit", "none"]
        found = list(in_order(engine.map(Raising(), map(Unit, names))))
        assert [outcome.problem is None for outcome in found] == [name == "none" for name in names]
        for name, outcome in zip(names, found, strict=True):
            if name != "none":
                assert isinstance(outcome.problem, NotMeasurableError)
                assert f"raised {name} (line" in str(outcome.problem)
                assert "5662" not in str(outcome.problem)
                assert outcome.attempts == 1

    def test_too_little_memory_is_the_problem_of_its_unit(self, engine):
        short, other = in_order(engine.map(Raising(), [Unit("MemoryError"), Unit("none")]))
        assert isinstance(short.problem, WorkerLostError)
        assert "more memory than there is" in str(short.problem)
        assert other.problem is None

    def test_a_work_that_cannot_be_prepared_is_an_error_at_once(self, tmp_path, engine):
        with pytest.raises(InputError, match="cannot be read here"):
            list(engine.map(Poisoned(str(tmp_path), unprepared=True), [Unit(n) for n in range(4)]))

    @pytest.mark.parametrize("other", OTHERS)
    def test_ctrl_c_keeps_what_running_units_have_and_another_engine_resumes(self, tmp_path, engine, other):
        with open_engine(other) as opened:
            for name, first, second in [("from", opened, engine), ("to", engine, opened)]:
                self._interrupt_and_resume(tmp_path / name, first, second)

    def _interrupt_and_resume(self, folder, first, second):
        folder.mkdir()
        ledger = Ledger(folder / "out")
        ledger.begin("mine")

        def interrupt():
            wait_for(folder / "reached-0")
            os.kill(os.getpid(), signal.SIGINT)

        waiting = threading.Thread(target=interrupt)
        waiting.start()
        with pytest.raises(KeyboardInterrupt):
            list(first.map(Counting(str(folder), stops_at=7), [Unit(0), Unit(1)], ledger=ledger))
        waiting.join()
        again = Ledger(folder / "out")
        again.begin("mine")
        found = list(second.map(Counting(str(folder)), [Unit(0), Unit(1)], ledger=again))
        assert {o.number: int(o.value()["total"]) for o in found} == {0: 190, 1: 190}
        assert (folder / "resumed-0-at-7").exists()
        again.forget()
        assert not list((folder / "out").iterdir())


class PooledContract(EngineContract):
    """For engines with workers in other processes."""

    def test_a_worker_that_is_killed_is_replaced_and_its_unit_is_run_again(self, tmp_path, engine):
        units = [Unit(n) for n in range(6)]
        found = list(in_order(engine.map(Poisoned(str(tmp_path), deadly_once=(2,)), units)))
        assert [int(outcome.value()["number"]) for outcome in found] == list(range(6))
        assert found[2].attempts == 2

    def test_a_unit_that_kills_its_worker_each_time_fails_and_the_others_do_not(self, tmp_path, engine):
        units = [Unit(n) for n in range(6)]
        found = list(in_order(engine.map(Poisoned(str(tmp_path), deadly=(2,)), units)))
        assert [outcome.problem is None for outcome in found] == [True, True, False, True, True, True]
        assert found[2].attempts == 3
        with pytest.raises(WorkerLostError, match=r"SIGKILL|died"):
            found[2].value()

    def test_a_unit_that_interrupts_itself_does_not_vanish(self, engine):
        found = list(in_order(engine.map(Raising(), [Unit("KeyboardInterrupt"), Unit("none")])))
        assert [outcome.number for outcome in found] == [0, 1]
        assert isinstance(found[0].problem, NotMeasurableError)

    def test_a_worker_killed_in_the_middle_of_a_unit_resumes_from_what_it_kept(self, tmp_path, engine):
        ledger = Ledger(tmp_path / "out", seconds_between_saves=0.0)
        ledger.begin("mine")

        def kill():
            reached = wait_for(tmp_path / "reached-0")
            wait_for_state(tmp_path / "out", 7)
            os.kill(int(reached.read_text()), signal.SIGKILL)

        killing = threading.Thread(target=kill)
        killing.start()
        found = list(engine.map(Counting(str(tmp_path), stops_at=7), [Unit(0)], ledger=ledger))
        killing.join()
        assert int(found[0].value()["total"]) == 190
        assert found[0].attempts == 2
        assert (tmp_path / "resumed-0-at-7").exists()

    def test_a_work_that_cannot_be_sent_is_refused_in_a_sentence(self, engine):
        with pytest.raises(InputError, match="cannot be sent to other processes"):
            list(engine.map(Unsendable(threading.Lock()), [Unit(0)]))

    def test_a_unit_that_never_ends_is_ended_after_the_limit(self, tmp_path, engine, monkeypatch):
        begun, clock = tmp_path / "runs-0", time.monotonic
        jumping = SimpleNamespace(monotonic=lambda: clock() + (7200 if begun.exists() else 0))
        monkeypatch.setattr(scheduling, "time", jumping)
        monkeypatch.setattr(engine, "unit_minutes", 60.0)
        (ended,) = engine.map(Endless(str(tmp_path)), [Unit(0)])
        assert ended.attempts == 1
        with pytest.raises(WorkerLostError, match="took longer than 60 minutes; raise unit_minutes"):
            ended.value()
        found = list(in_order(engine.map(Squares(), squares(4))))
        assert np.array_equal(np.concatenate([o.value()["squares"] for o in found]), np.arange(40) ** 2)

    def test_a_unit_that_does_not_stop_is_not_taken_for_one_of_the_next_run(
        self, tmp_path, engine, monkeypatch
    ):
        monkeypatch.setattr(scheduling, "STOP_SECONDS", 0.1)
        going = engine.map(Stubborn(str(tmp_path)), [Unit("late"), Unit("at once")])
        assert next(going).unit.inputs == "at once"
        going.close()
        Path(tmp_path, "gate").touch()
        found = list(in_order(engine.map(Squares(), squares(4))))
        assert np.array_equal(np.concatenate([o.value()["squares"] for o in found]), np.arange(40) ** 2)


def wait_for(path):
    """The path, once a file is there."""
    wait_until(path.exists, lambda: f"no {path.name}")
    return path


def wait_for_state(directory, at, *, kept=1):
    """Wait until so many states of this step are kept in a ledger."""
    wait_until(lambda: sum(_step(path) == at for path in directory.glob("unfinished-*.npz")) >= kept)


def _step(path):
    with np.load(path) as state:
        return int(state["at"])
