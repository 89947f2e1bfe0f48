"""Recitation on engines: the same bytes from each, after kills of workers and of the command, and units that cannot be finished."""

import threading
import time

import pytest
from pyarrow import parquet

from coalmine import check, load_model, parse_policy, read_run, recite, train
from coalmine.audits.recitation import answers as recitation_answers
from coalmine.corpus import build_index, write_embedded_corpus
from coalmine.engines.processes import Processes
from engines.deadly_model import DeadlyModel

OPTIONS = {"contexts": (5, 20), "suffix": 10, "lengths": (40,), "per_bucket": 30, "beam": 2}
FILES = ("recitation.json", "sequences.parquet")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A small trained model, another, and the index of their corpus."""
    folder = tmp_path_factory.mktemp("engines")
    write_embedded_corpus(folder / "corpus.txt", 20_000)
    for name, seed in (("first", 1), ("second", 2)):
        train(folder / "corpus.txt", out=folder / name, epochs=2, hidden=32, seed=seed)
    build_index(folder / "corpus.txt", folder / "index", tokenizer=folder / "first")
    return folder


@pytest.fixture
def small_units(monkeypatch):
    monkeypatch.setattr(recitation_answers, "AT_A_TIME", 16)


@pytest.fixture(scope="module")
def workers():
    with Processes(2) as engine:
        yield engine


def bytes_of(folder):
    return [(folder / name).read_bytes() for name in FILES]


def asked(made):
    return [load_model(made / "first"), load_model(made / "second")]


@pytest.mark.usefixtures("small_units")
def test_processes_give_the_same_bytes_also_if_one_of_them_is_killed(made, tmp_path, workers):
    recite(asked(made), made / "index", **OPTIONS, out=tmp_path / "here")
    recite(asked(made), made / "index", **OPTIONS, out=tmp_path / "there", engine=workers)
    assert bytes_of(tmp_path / "here") == bytes_of(tmp_path / "there")

    def kill():
        while not (tmp_path / "killed" / "unfinished.units").exists():
            time.sleep(0.002)
        workers.pool._processes[0].process.kill()

    killing = threading.Thread(target=kill)
    killing.start()
    recite(asked(made), made / "index", **OPTIONS, out=tmp_path / "killed", engine=workers)
    killing.join()
    assert bytes_of(tmp_path / "here") == bytes_of(tmp_path / "killed")
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == sorted(FILES)


@pytest.mark.usefixtures("small_units")
def test_questions_that_kill_their_worker_each_time_are_not_measured_and_nothing_is_called_safe(
    made, tmp_path, workers
):
    options = {**OPTIONS, "beam": None, "seed": 3}
    deadly = DeadlyModel(load_model(made / "second"))
    whole = recite(deadly, made / "index", **options)
    deadly.deadly = deadly.asked[2]
    found = recite(deadly, made / "index", **options, out=tmp_path, engine=workers)
    assert found.questions == whole.questions - 16
    assert len(found.not_measured) == 1
    assert "16 questions" in found.not_measured[0]
    assert "SIGKILL" in found.not_measured[0]
    assert found.not_measured[0] in found.warnings
    rows = parquet.read_table(tmp_path / "sequences.parquet").num_rows
    assert rows == found.questions == sum(group.recited.n for group in found.groups if group.bucket is None)
    verdict = check(read_run(tmp_path), parse_policy("[recitation]\nrate_at_most = 0.99\n"))
    assert [rule.outcome for rule in verdict.rules] == ["not_shown"]
    assert "have no answer" in verdict.rules[0].evidence
