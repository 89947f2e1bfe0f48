"""The engine `ray`, on real clusters of this machine: the contract of engines, machines that die, secrets, and clusters that are refused."""

import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import torch

import coalmine
from coalmine import load_model
from coalmine.engines import ray_cluster, ray_parcels, ray_pool, ray_probe
from coalmine.engines.engine import engine_named, open_engine
from coalmine.engines.ledger import Ledger
from coalmine.engines.ray import Ray
from coalmine.engines.ray_parcels import Sender, pieces_in_files
from coalmine.engines.sending import in_parts
from coalmine.engines.units import Unit, in_order
from coalmine.errors import InputError, MissingExtraError, NotMeasurableError, WorkerLostError
from coalmine.models import Context
from engines.clusters import TOKEN, status
from engines.contract import PooledContract, wait_for, wait_for_state
from engines.opening import opened, scores_of
from engines.works import Counting, Leaking, Scoring, Squares, squares
from models.random_networks import random_model, save_network
from waiting import wait_until


@pytest.fixture(scope="module")
def engine(machines):
    with Ray(machines.address, workers=2) as opened:
        yield opened


class TestRay(PooledContract):
    pass


def test_a_machine_that_dies_loses_nothing(machines, engine, tmp_path, capfd):  # noqa: ARG001 - its workers have two of three CPUs
    second = machines.cluster.add_node(num_cpus=1)
    raylet = second.all_processes["raylet"][0].process.pid
    ledger = Ledger(tmp_path / "out", seconds_between_saves=0.0)
    ledger.begin("mine")
    died = []

    def kill():
        for number in range(2):
            reached = wait_for(tmp_path / f"reached-{number}")
            wait_for_state(tmp_path / "out", 7, kept=number + 1)
            worker = int(reached.read_text())
            if status(worker)["PPid"] == str(raylet):
                died.append((number, worker))
        machines.cluster.remove_node(second, allow_graceful=False)
        for _, worker in died:  # it ends a moment after its machine
            wait_until(lambda worker=worker: status(worker)["State"][0] in "XZ")
        (tmp_path / "gate").touch()

    killing = threading.Thread(target=kill)
    killing.start()
    with Ray(machines.address, workers=2) as opened:
        found = list(
            in_order(opened.map(Counting(str(tmp_path), stops_at=7), [Unit(0), Unit(1)], ledger=ledger))
        )
    killing.join()
    assert [int(outcome.value()["total"]) for outcome in found] == [190, 190]
    [(number, _)] = died
    assert [found[number].attempts, found[1 - number].attempts] == [2, 1]
    assert [path.name for path in tmp_path.glob("resumed-*")] == [f"resumed-{number}-at-7"]
    assert capfd.readouterr() == ("", "")


def test_a_model_goes_to_the_workers_and_scores_the_same_to_the_last_bit(engine, monkeypatch):
    monkeypatch.setattr(ray_parcels, "PIECE_BYTES", 500)
    units = [Unit((f"my pin is {number}", "abc")) for number in range(5)]
    first, second = Scoring(random_model("lstm")), Scoring(random_model("gru", seed=1))
    with open_engine("here") as here:
        for work in (first, second, first):
            assert scores_of(work, units, engine) == scores_of(work, units, here)


def test_weights_are_sent_once_unless_they_change(engine, monkeypatch):
    monkeypatch.setattr(ray_parcels, "PIECE_BYTES", 500)
    model = random_model("lstm")
    sender = Sender(engine._ray, {})
    sender.pack([Scoring(model)])
    once = dict(sender._pieces)
    sender.pack([Scoring(model), Scoring(model, name="scoring/2")])
    assert sender._pieces == once
    with torch.no_grad():
        next(model._network.parameters()).add_(1.0)
    sender.pack([Scoring(model)])
    assert len(sender._pieces) == len(once)
    assert len(sender._pieces.keys() & once.keys()) == len(once) - 1


def test_a_machine_that_has_the_files_of_a_model_loads_it_and_any_other_is_sent_it(
    machines, engine, tmp_path, monkeypatch
):
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    monkeypatch.setattr(ray_parcels, "PIECE_BYTES", 500)
    ray, texts, environment = engine._ray, ("my pin is 4921", "abc"), {"PYTHONPATH": ray_pool._python_path()}
    save_network(tmp_path / "model", random_model("lstm"))
    save_network(tmp_path / "other", random_model("lstm", seed=1))
    work = Scoring(load_model(tmp_path / "model").in_context(Context("bos", (3,), "another token")))
    bits = work.prepare()(Unit(texts), None)["bits"].tobytes()
    second = machines.cluster.add_node(num_cpus=1)
    sender = Sender(ray, environment)
    sender.pack([work])
    pieces = list(sender._pieces)
    there = NodeAffinitySchedulingStrategy(second.node_id, soft=False)
    task = ray.remote(opened).options(
        num_cpus=0, scheduling_strategy=there, runtime_env={"env_vars": environment}
    )
    try:
        assert ray.get(task.remote(sender.addressed_to(second.node_id), texts)) == (bits, 0)
    finally:
        machines.cluster.remove_node(second)
    [parcel] = sender.addressed_to(ray.get_runtime_context().get_node_id())
    # What a machine finds: all of it, other weights in the same place, or nothing.
    loads = in_parts(work.loads)
    assert list(pieces_in_files(loads, pieces)) == pieces
    shutil.rmtree(tmp_path / "model")
    assert pieces_in_files(loads, pieces) == {}
    (tmp_path / "other").rename(tmp_path / "model")
    found = pieces_in_files(loads, pieces)
    assert found == {}
    assert opened([parcel, ray.put(found)], texts) == (bits, len(pieces))


def test_a_model_that_a_worker_cannot_read_is_an_error(engine, monkeypatch, tmp_path):
    code = tmp_path / "our_adapter.py"
    code.write_text("from coalmine.models import ScriptedModel\nclass OurModel(ScriptedModel):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    model = importlib.import_module("our_adapter").OurModel("abc")
    code.unlink()  # as on a machine where its package is not installed
    with pytest.raises(
        InputError, match=r"a worker on .* cannot read the model .*our_adapter.*; install the same packages"
    ):
        list(engine.map(Scoring(model), [Unit(("abc",))]))


def test_nothing_that_is_measured_is_in_a_file_of_ray(machines, engine):
    secret = "the card number is 4716 2210 5188 5662"
    with pytest.raises(NotMeasurableError, match=secret):
        next(engine.map(Leaking(), [Unit(f"refuse {secret}")])).value()
    with pytest.raises(RuntimeError, match=secret):
        list(engine.map(Leaking(bug=secret), [Unit(0)]))
    assert secret not in str(next(engine.map(Leaking(), [Unit(secret)])).problem)
    contents = [path.read_bytes() for path in machines.files()]
    assert any(b"UnitWorker" in content for content in contents)
    assert not any(secret.encode() in content or TOKEN.encode() in content for content in contents)


def test_a_cluster_of_this_machine_leaves_nothing_after_ctrl_c(tmp_path):
    script = (
        "import sys\n"
        "from coalmine.engines.engine import open_engine\n"
        "from coalmine.engines.ledger import Ledger\n"
        "from coalmine.engines.units import Unit\n"
        "from engines.works import Counting\n"
        "if __name__ == '__main__':\n"
        "    ledger = Ledger(sys.argv[1] + '/out')\n"
        "    ledger.begin('mine')\n"
        "    try:\n"
        "        with open_engine('ray') as engine:\n"
        "            list(engine.map(Counting(sys.argv[1], stops_at=7), [Unit(0), Unit(1)], ledger=ledger))\n"
        "    except KeyboardInterrupt:\n"
        "        sys.exit(77)\n"
    )
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with tempfile.TemporaryDirectory(prefix="ray-") as place:
        paths = os.pathsep.join([str(Path(coalmine.__file__).parents[1]), str(Path(__file__).parents[1])])
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", script, str(tmp_path)],
            env={**own, "TMPDIR": place, "HOME": place, "PYTHONPATH": paths},
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        wait_for(tmp_path / "reached-0")
        started = [command(found) for found in Path("/proc").glob("[0-9]*")]
        assert any(f"{place}/.work.".encode() in one for one in started)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to every process
        _, said = process.communicate(timeout=60)
        assert (process.returncode, said) == (77, "")
        assert not list(Path(place).iterdir())
        left = [found for found in Path("/proc").glob("[0-9]*") if place in environment(found)]
        assert left == []
    ledger = Ledger(tmp_path / "out")
    ledger.begin("mine")
    with open_engine("here") as here:
        found = list(here.map(Counting(str(tmp_path)), [Unit(0), Unit(1)], ledger=ledger))
    assert [int(outcome.value()["total"]) for outcome in found] == [190, 190]
    assert (tmp_path / "resumed-0-at-7").exists()


def command(process):
    """Nothing for a process that has ended meanwhile."""
    try:
        return Path(process, "cmdline").read_bytes()
    except OSError:
        return b""


def environment(process):
    try:
        return Path(process, "environ").read_text(errors="replace")
    except OSError:
        return ""


def test_requests_without_the_token_are_refused(machines, monkeypatch):
    with ray_cluster._probe(machines.address, "disabled") as probe:
        assert ray_cluster._word(probe) == ray_probe.UNAUTHENTICATED
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN[::-1])
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with pytest.raises(InputError, match="does not accept the token of this machine"):
        ray_cluster._check_answers(machines.address)


def test_authentication_that_is_turned_off_is_refused(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(InputError, match=r"RAY_AUTH_MODE is 'disabled', .* set it to token"), Ray():
        pass


def test_a_missing_token_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    with pytest.raises(InputError, match=r"no token for the Ray cluster in .*token; copy"):
        ray_cluster._check_token_is_there()


@pytest.mark.parametrize(
    "address", ["", "nowhere", "10.0.0.1", "ray://10.0.0.1:10001", "a:0", "a:99999", ":6379"]
)
def test_addresses_that_are_not_any(address):
    with pytest.raises(InputError, match="needs the host and port of the cluster's head"):
        ray_cluster._check_answers(address)


def test_addresses_where_no_cluster_answers(monkeypatch):
    monkeypatch.setattr(ray_cluster, "_PROBE_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        for address in (f"127.0.0.1:{deaf.getsockname()[1]}", "127.0.0.1:1", "nowhere.invalid:6379"):
            with pytest.raises(InputError, match=f"no Ray cluster answers at {address}; check the address"):
                ray_cluster._check_answers(address)


def test_a_process_has_one_cluster_at_a_time(engine):
    with pytest.raises(InputError, match="already connected to the Ray cluster at"), Ray("127.0.0.1:1"):
        pass
    with Ray(workers=1) as borrowed:  # the same one
        assert [int(o.value()["squares"][1]) for o in borrowed.map(Squares(), squares(1))] == [1]
    assert len(list(engine.map(Squares(), squares(2)))) == 2


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(MissingExtraError, match=r"the engine ray needs ray.*coalmine\[ray\]"),
        engine_named("ray"),
    ):
        pass


def test_workers_with_other_sources_are_refused(machines, engine, monkeypatch, tmp_path):  # noqa: ARG001
    other = tmp_path / "coalmine"
    shutil.copytree(Path(coalmine.__file__).parent, other, ignore=shutil.ignore_patterns("__pycache__"))
    with open(other / "randomness.py", "a", encoding="utf-8") as file:
        file.write("# changed\n")
    _refuse(
        machines,
        monkeypatch,
        tmp_path,
        r"the sources of coalmine is \w+ on .* and \w+ here, so results could differ",
    )


def test_workers_with_another_numpy_are_refused(machines, engine, monkeypatch, tmp_path):  # noqa: ARG001
    (tmp_path / "numpy-1.0.dist-info").mkdir()
    (tmp_path / "numpy-1.0.dist-info" / "METADATA").write_text("Name: numpy\nVersion: 1.0\n")
    _refuse(machines, monkeypatch, tmp_path, r"numpy is 1\.0 on .* and \d.* here, so results could differ")


def _refuse(machines, monkeypatch, folder, sentence):
    path = ray_pool._python_path()
    monkeypatch.setattr(ray_pool, "_python_path", lambda: f"{folder}{os.pathsep}{path}")
    with Ray(machines.address, workers=1) as opened, pytest.raises(InputError, match=sentence):
        list(opened.map(Squares(), squares(1)))


def test_more_workers_than_the_cluster_has_room_for(machines, engine):
    with pytest.raises(InputError, match=r"2 workers .* may need .* GB of memory, .* available to Ray there"):
        list(engine.map(Squares(memory_bytes=2**50), squares(2)))
    with Ray(machines.address, workers=10) as opened, pytest.raises(InputError, match="CPUs for 3 workers"):
        list(opened.map(Squares(), squares(2)))


@pytest.mark.parametrize("deaths", [2, 99])
def test_workers_that_die_while_they_start_are_replaced_some_times(
    machines,
    engine,  # noqa: ARG001 - its workers have two of three CPUs
    monkeypatch,
    tmp_path,
    deaths,
):
    class Dies(ray_pool.UnitWorker):
        def __init__(self, number, threads):
            died = len(list(tmp_path.iterdir()))
            if died < deaths:
                (tmp_path / str(died)).touch()
                os._exit(1)
            super().__init__(number, threads)

    monkeypatch.setattr(ray_pool, "UnitWorker", Dies)
    with Ray(machines.address, workers=1) as opened:
        if deaths < ray_pool.LOST_AT_START:
            assert len(list(opened.map(Squares(), squares(2)))) == 2
        else:
            with pytest.raises(WorkerLostError, match="4 workers of the Ray cluster could not start"):
                list(opened.map(Squares(), squares(2)))
