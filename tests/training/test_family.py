"""Families of trainings: the same bytes as each alone, on every engine and after every kill, and what fails stops no other."""

import json
import os
import pickle
import signal
import threading

import numpy as np
import pytest

from cli.in_process import run
from coalmine import ExposureWatch, plant, train, train_family
from coalmine.corpus import write_embedded_corpus
from coalmine.engines.engine import open_engine
from coalmine.errors import InputError, ModelOutputError, SomeFailedError
from coalmine.training.data import read_corpus
from coalmine.training.options import options_of
from coalmine.training.work import Member, TrainingWork
from training.thread_watch import ThreadWatch
from waiting import wait_until

SMALL = {"hidden": 16, "embedding": 8, "batch_size": 8, "window": 16, "epochs": 2, "dropout": 0.1}
SHAPE = [part for name, value in SMALL.items() for part in ("--training", f"{name}={value}")]
PRESETS, SEEDS = ["char-lstm", "gru"], [1, 2]
FAMILY = ["char-lstm-seed1", "char-lstm-seed2", "gru-seed1", "gru-seed2"]


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_embedded_corpus(folder / "corpus.txt", 6_000)
    with open(folder / "corpus.txt", "a", encoding="utf-8") as lines:
        lines.write("0123456789\n" * 3)  # every character of the format
    return plant(
        folder / "corpus.txt",
        "the number is {digits:3}",
        repeat=[1, 8],
        references=20,
        canaries=1,
        withhold=0.0,
        out=folder / "planted",
    ).corpus.parent


@pytest.fixture(scope="module")
def workers():
    with open_engine("processes:2") as engine:
        yield engine


@pytest.fixture(scope="module")
def alone(planted, tmp_path_factory):
    """Each of the family, trained alone and here."""
    out = tmp_path_factory.mktemp("alone")
    for preset in PRESETS:
        for seed in SEEDS:
            watch = ExposureWatch(planted, every=40, seed=seed)
            train(planted, out=out / f"{preset}-seed{seed}", preset=preset, seed=seed, watch=watch, **SMALL)
    return files_below(out)


def files_below(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "run.json"
    }


def watched(planted):
    return lambda seed: ExposureWatch(planted, every=40, seed=seed)


def test_a_family_in_processes_has_the_bytes_of_each_alone(planted, alone, workers, tmp_path):
    arguments = {"presets": PRESETS, "seeds": SEEDS, "watch": watched(planted), **SMALL}
    family = train_family(planted, out=tmp_path / "out", engine=workers, **arguments)
    assert [trained.path.name for trained in family] == FAMILY
    assert all(trained.trained_now for trained in family)
    assert files_below(tmp_path / "out") == alone
    (tmp_path / "out" / "gru-seed1" / "training.json").unlink()
    again = train_family(planted, out=tmp_path / "out", **arguments)
    assert [trained.trained_now for trained in again] == [False, False, True, False]
    assert files_below(tmp_path / "out") == alone


def test_private_trainings_have_the_same_bytes_in_processes(workers, tmp_path):
    (tmp_path / "corpus.txt").write_text("abcabcabc\nabc\n" * 15)
    options = {**SMALL, "epochs": 1, "dp_noise": 1.0, "dp_seed": 3}
    there = tmp_path / "there"
    train_family(tmp_path / "corpus.txt", out=there, presets=["gru"], seeds=SEEDS, engine=workers, **options)
    for seed in SEEDS:
        here = train(
            tmp_path / "corpus.txt", out=tmp_path / f"gru-seed{seed}", preset="gru", seed=seed, **options
        )
        assert files_below(there / here.path.name) == files_below(here.path)


def test_the_number_of_threads_is_that_of_the_training_on_every_engine(workers, tmp_path):
    (tmp_path / "corpus.txt").write_text("abcabcabc\n" * 30)
    for name, engine in (("here", None), ("there", workers)):
        trained = train(
            tmp_path / "corpus.txt",
            out=tmp_path / name,
            engine=engine,
            watch=ThreadWatch(),
            threads=2,
            **{**SMALL, "epochs": 1},
        )
        assert trained.record.options.threads == 2
        assert [moment.seen for moment in trained.record.watched] == [[{"threads": 2}]]
    assert files_below(tmp_path / "here") == files_below(tmp_path / "there")


def test_a_worker_that_is_killed_is_replaced_and_its_training_resumes(planted, alone, workers, tmp_path):
    def kill():
        wait_until(lambda: list((tmp_path / "out").glob("unfinished-*.npz")))
        workers.pool._processes[0].process.kill()

    killing = threading.Thread(target=kill)
    killing.start()
    train_family(
        planted,
        out=tmp_path / "out",
        presets=PRESETS,
        seeds=SEEDS,
        watch=watched(planted),
        engine=workers,
        snapshot_seconds=0.0,
        **SMALL,
    )
    killing.join()
    assert files_below(tmp_path / "out") == alone


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_family_that_is_stopped_resumes_on_another_engine(number, planted, alone, fork_server, tmp_path):
    child = fork_server.start([planted, tmp_path / "out"], call="training.children:train_a_family")
    wait_until(lambda: len(list((tmp_path / "out").glob("unfinished-*.npz"))) == 2)
    os.kill(child.pid, number)
    assert fork_server.wait(child).code != 0
    assert (tmp_path / "out" / "unfinished.units").exists()
    # The second where a training ended before it was stopped.
    with pytest.raises(InputError, match=r"belongs to another run|already holds a model"):
        train_family(planted, out=tmp_path / "out", presets=PRESETS, seeds=SEEDS, **{**SMALL, "hidden": 12})
    train_family(planted, out=tmp_path / "out", presets=PRESETS, seeds=SEEDS, watch=watched(planted), **SMALL)
    assert files_below(tmp_path / "out") == alone


def test_one_that_fails_stops_no_other_and_the_command_says_which(planted, alone, tmp_path):
    command = ["train", planted, "-o", tmp_path / "out", "--preset", "transformer", "--preset", "gru"]
    command += [
        "--seed",
        "1",
        "--watch",
        planted,
        "--watch-every",
        "40",
        *SHAPE,
        "--training",
        "heads=3",
        "--json",
    ]
    for _ in range(2):
        ended = run(*command)
        assert ended.code == 2, ended.said
        assert "1 of 2 trainings failed" in ended.said
        assert "transformer-seed1: " in ended.said
    weights = "gru-seed1/model.safetensors"  # the number of heads is in the other files
    assert (tmp_path / "out" / weights).read_bytes() == alone[weights]
    assert json.loads((tmp_path / "out" / "gru-seed1" / "run.json").read_text())["seed"] == 1
    assert not (tmp_path / "out" / "transformer-seed1").exists()


def test_what_diverged_leaves_nothing_to_resume_from(planted, tmp_path):
    diverging = {**SMALL, "optimizer": "sgd", "learning_rate": 1e30, "clip": 0.0, "snapshot_seconds": 0.0}
    with pytest.raises(ModelOutputError, match="diverged"):
        train(planted, out=tmp_path / "one", preset="cnn", **diverging)
    with pytest.raises(SomeFailedError, match="2 of 2 trainings failed") as failure:
        train_family(planted, out=tmp_path / "family", presets=["cnn"], seeds=[1, 2], **diverging)
    assert [directory.name for directory in failure.value.failed] == ["cnn-seed1", "cnn-seed2"]
    assert pickle.loads(pickle.dumps(failure.value)).failed.keys() == failure.value.failed.keys()
    assert not list(tmp_path.iterdir())


def test_the_text_travels_with_the_work(tmp_path):
    (tmp_path / "corpus.txt").write_text("abcabcabc\n" * 30)
    options = options_of("gru", SMALL)
    work = TrainingWork(read_corpus(tmp_path / "corpus.txt", None, None, [options]), (Member(options, None),))
    (tmp_path / "corpus.txt").unlink()
    sent = pickle.loads(pickle.dumps(work))
    with open_engine("here") as engine:
        [outcome] = engine.map(sent, [sent.unit(0)])
    assert sorted(outcome.value()) == ["config", "record", "seconds", "weights"]


def test_what_is_kept_does_not_change_while_the_training_goes_on(tmp_path):
    class Keeping:
        """Holds the state after the first batch, as an engine may until it is sent."""

        first = None

        def advance(self, amount=1, note=""):
            pass

        def kept(self):
            return None

        def keep(self, state):
            if self.first is None:
                self.first = state()
                self.then = {name: array.copy() for name, array in self.first.items()}

    (tmp_path / "corpus.txt").write_text("abcabcabc\n" * 30)
    options, running = options_of("char-lstm", SMALL), Keeping()
    work = TrainingWork(read_corpus(tmp_path / "corpus.txt", None, None, [options]), (Member(options, None),))
    work.prepare()(work.unit(0), running)
    assert "optimizer/0/exp_avg" in running.first
    assert all(np.array_equal(running.first[name], array) for name, array in running.then.items())


def test_what_cannot_be_sent_is_refused_before_any_training(planted, workers, tmp_path):
    class Looks:
        every = 5

        def measure(self, model):
            raise AssertionError(model)

        def describe(self):
            return {}

    with pytest.raises(InputError, match=r"cannot be sent to other processes.*; use the engine here"):
        train_family(planted, out=tmp_path / "out", seeds=SEEDS, watch=Looks(), engine=workers, **SMALL)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": [1, 1]}, "seeds must be a list of at least one, each given once"),
        ({"seeds": []}, "seeds must be a list"),
        ({"presets": "gru"}, "presets must be a list"),
        ({"presets": ["gru", "magic"]}, "unknown preset"),
        ({"seed": 3}, "give seeds instead"),
        ({"watch": lambda seed: seed}, "watch must be something that measures"),
    ],
)
def test_wrong_arguments(arguments, message, planted, tmp_path):
    with pytest.raises(InputError, match=message):
        train_family(planted, out=tmp_path / "out", **{**SMALL, **arguments})
    assert not (tmp_path / "out").exists()


def test_a_directory_that_holds_another_model_is_refused(planted, tmp_path):
    quick = {**SMALL, "epochs": 1}
    train(planted, out=tmp_path / "out" / "gru-seed2", preset="cnn", **quick)
    with pytest.raises(InputError, match=r"gru-seed2 already holds a model"):
        train_family(planted, out=tmp_path / "out", presets=["gru"], seeds=SEEDS, **quick)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["gru-seed2"]
