"""Engines: the same results from each, resuming by content keys, failures as values, and kills that lose nothing."""

import contextlib
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coalmine.engines.engine import engine_named, open_engine
from coalmine.engines.ledger import Ledger
from coalmine.engines.processes import Processes
from coalmine.engines.units import Unit
from coalmine.errors import InputError
from engines.contract import EngineContract, PooledContract, wait_for
from engines.works import Squares, Surroundings, squares
from waiting import wait_until


class TestHere(EngineContract):
    @pytest.fixture
    def engine(self):
        with open_engine("here") as opened:
            yield opened


class TestProcesses(PooledContract):
    @pytest.fixture
    def engine(self):
        with open_engine("processes:2") as opened:
            yield opened


def test_workers_end_with_a_driver_that_is_killed_whatever_their_units_do(tmp_path):
    script = (
        "import sys\n"
        "from coalmine.engines.engine import open_engine\n"
        "from coalmine.engines.units import Unit\n"
        "from engines.works import Endless\n"
        "if __name__ == '__main__':\n"
        "    with open_engine('processes:2') as engine:\n"
        "        list(engine.map(Endless(sys.argv[1]), [Unit(0), Unit(1)]))\n"
    )
    (tmp_path / "drive.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}  # where its works are
    driver = subprocess.Popen([sys.executable, str(tmp_path / "drive.py"), str(tmp_path)], env=environment)
    try:
        workers = [int(wait_for(tmp_path / f"runs-{number}").read_text()) for number in (0, 1)]
    finally:
        driver.kill()
        driver.wait()
    wait_until(lambda: not any(is_running(worker) for worker in workers))


def test_workers_have_the_environment_of_the_moment_at_which_they_start(monkeypatch):
    for value in ("", "one", "other"):
        monkeypatch.setenv("COALMINE_TEST_WORD", value)
        with open_engine("processes:1") as engine:
            words, threads = engine.map(Surroundings(), [Unit("COALMINE_TEST_WORD"), Unit("OMP_NUM_THREADS")])
        assert (words.value()["value"].tobytes(), threads.value()["value"].tobytes()) == (
            value.encode(),
            b"1",
        )


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")
def test_what_workers_are_forked_from_has_one_thread():
    """No other one can hold a lock that nobody would release in a worker."""
    import transformers.modeling_utils  # noqa: F401 - it has imported what this process has

    with open_engine("processes:1") as engine:
        list(engine.map(Squares(), squares(1)))
        warm = engine.pool._processes[0].process._popen
        assert warm.method == "forkserver"
        parent = Path(f"/proc/{warm.pid}/stat").read_text().rpartition(")")[2].split()[1]
        assert len(list(Path(f"/proc/{parent}/task").iterdir())) == 1
        assert parent != str(os.getpid())


def is_running(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.parametrize(
    "name", ["", "nowhere", "processes:0", "processes:x", "processes:-1", "processes:", "here:2"]
)
def test_engines_that_there_are_not(name):
    with pytest.raises(InputError, match=r"engine"):
        engine_named(name)


def test_more_workers_than_memory_allows_are_rejected_before_any_starts():
    with open_engine("processes:2") as engine, pytest.raises(InputError, match="2 workers may need"):
        list(engine.map(Squares(memory_bytes=2**50), squares(2)))


def test_no_more_processes_are_started_than_there_are_units():
    with Processes(4) as engine:
        assert len(list(engine.map(Squares(), squares(2)))) == 2
        assert sorted(engine.pool._processes) == [0, 1]


@pytest.mark.parametrize(
    ("name", "minutes"), [("here", 5.0), ("processes:2", 0.0), ("processes:2", math.inf)]
)
def test_limits_of_time_that_cannot_be_kept_are_refused(name, minutes):
    with pytest.raises(InputError, match=r"unit_minutes|minutes of a unit"):
        engine_named(name, unit_minutes=minutes)


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
