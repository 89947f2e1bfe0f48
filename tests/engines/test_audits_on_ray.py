"""Audits and trainings on a real Ray cluster: the same bytes if an actor, a machine or the command itself is killed."""

import functools
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from coalmine import CanarySet, Format, expose, load_model, recite, train, train_family
from coalmine.audits.recitation import answers as recitation_answers
from coalmine.corpus import build_index, write_embedded_corpus
from coalmine.engines import ray_cluster, ray_parcels
from coalmine.engines.ray import Ray
from engines.clusters import TOKEN, status
from engines.deadly_watch import DeadlyWatch
from engines.watched_model import WatchedModel
from waiting import wait_until

# Of the first machine.
CORES = 1
QUESTIONS = {"contexts": (5, 20), "suffix": 10, "lengths": (40,), "per_bucket": 30}


def canaries(template):
    return CanarySet.of(template, [Format(template).at(place) for place in (7, 250, 511)])


CANARIES, OF_MANY = canaries("so {re:[aeiou]{4}}"), canaries("so {re:[a-e]{5}}")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audits")
    write_embedded_corpus(folder / "corpus.txt", 20_000)
    train(folder / "corpus.txt", out=folder / "model", epochs=1, hidden=32)
    build_index(folder / "corpus.txt", folder / "index", tokenizer=folder / "model")
    OF_MANY.save(folder / "canaries")
    return folder


def recited(made, model, out, engine=None):
    recite(model, made / "index", **QUESTIONS, out=out, engine=engine)
    return {path.name: path.read_bytes() for path in out.iterdir()}


def exposed(_, model, out, engine=None):
    found = expose(model, CANARIES, method="exact", batch=128, engine=engine, resume=out)
    found.save(out)
    return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.fixture(scope="module", autouse=True)
def cluster_that_is_looked_at_once():
    """Whether it wants our token is asked by two processes; `test_ray.py` tests what they answer."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ray_cluster, "_check_answers", functools.cache(ray_cluster._check_answers))
        yield


@functools.cache
def undisturbed(run, made):
    """What a run in this process leaves."""
    with tempfile.TemporaryDirectory() as folder:
        return run(made, WatchedModel(load_model(made / "model"), made), Path(folder))


@pytest.fixture
def small_units(monkeypatch):
    monkeypatch.setattr(recitation_answers, "AT_A_TIME", 16)
    monkeypatch.setattr(ray_parcels, "PIECE_BYTES", 500)  # weights go as those of large models do


@pytest.mark.usefixtures("small_units")
@pytest.mark.parametrize("run", [recited, exposed])
def test_an_actor_that_is_killed_loses_nothing(run, made, machines, tmp_path):
    watched = WatchedModel(load_model(made / "model"), tmp_path, deadly=True)
    with Ray(machines.address, workers=1) as engine:
        assert run(made, watched, tmp_path / "out", engine) == undisturbed(run, made)
    assert (tmp_path / "died").exists()


@pytest.mark.usefixtures("small_units")
@pytest.mark.parametrize("run", [recited, exposed])
def test_one_of_two_machines_that_dies_loses_nothing(run, made, machines, tmp_path):
    second = machines.cluster.add_node(num_cpus=1)
    raylet = str(second.all_processes["raylet"][0].process.pid)
    there = []

    def kill():
        wait_until(lambda: len(list(tmp_path.glob("reached-*"))) == 2)
        workers = [int(path.name.partition("-")[2]) for path in tmp_path.glob("reached-*")]
        there.extend(worker for worker in workers if status(worker)["PPid"] == raylet)
        machines.cluster.remove_node(second, allow_graceful=False)
        (tmp_path / "gate").touch()

    killing = threading.Thread(target=kill)
    killing.start()
    watched = WatchedModel(load_model(made / "model"), tmp_path)
    with Ray(machines.address, workers=2) as engine:
        assert run(made, watched, tmp_path / "out", engine) == undisturbed(run, made)
        assert list(engine.pool._sender._loaded) == [second.node_id]  # which loaded the model itself
    killing.join()
    assert len(there) == 1


def test_a_family_of_trainings_of_which_an_actor_is_killed(made, machines, tmp_path):
    small = {"hidden": 16, "embedding": 8, "epochs": 1, "snapshot_seconds": 0.0}

    def trained(out, engine):
        watch = DeadlyWatch(tmp_path)
        train_family(made / "corpus.txt", out=out, seeds=[1, 2], watch=watch, engine=engine, **small)
        return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}

    whole = trained(tmp_path / "whole", "here")
    assert not (tmp_path / "died").exists()
    assert trained(tmp_path / "out", f"ray:{machines.address}") == whole
    assert (tmp_path / "died").exists()


# The command `coalmine`, with many units for little work.
PROGRAM = """
from coalmine.cli.main import main
from engines.small_units import cut
cut(members=50, questions=16)
main()
"""
COMMANDS = {
    "recite": ("index", "--contexts", "5", "--suffix", "10", "--set", "per_bucket=900"),
    "expose": ("canaries", "--method", "exact"),
}


def results_in(out):
    """How many units are finished of a run that is not."""
    units = out / "unfinished.units"
    return units.read_bytes().count(b"PK\x05\x06") if units.exists() else 0


@pytest.mark.parametrize("command", list(COMMANDS))
def test_a_command_that_is_killed_resumes_elsewhere(command, made, machines, fork_server, tmp_path):
    what, *options = COMMANDS[command]

    def words(out, engine):
        return [command, made / "model", made / what, *options, "-o", tmp_path / out, "--engine", engine, "--quiet"]  # fmt: skip

    def run_here(out):
        ended = fork_server.run(words(out, "here"), before=["engines.small_units:cut", {}])
        assert ended.code == 0, ended.err

    environment = os.environ | {
        "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "PYTHONPATH": str(Path(__file__).parents[1])
    }  # fmt: skip
    there = [sys.executable, "-c", PROGRAM, *map(str, words("out", f"ray:{machines.address}"))]
    with subprocess.Popen(there, env=environment) as process:
        wait_until(lambda: results_in(tmp_path / "out") > 6 or process.poll() is not None)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert results_in(tmp_path / "out") > 6
    run_here("out")
    run_here("whole")
    whole, out = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir() if path.name != "run.json"}
        for name in ("whole", "out")
    )
    assert whole == out
