"""Recitation on engines: units that cannot be finished."""

import pytest
from pyarrow import parquet

from coalmine import check, load_model, parse_policy, read_run, recite, train
from coalmine.audits.recitation import answers as recitation_answers
from coalmine.corpus import build_index, write_embedded_corpus
from coalmine.engines.processes import Processes
from engines.deadly_model import DeadlyModel

OPTIONS = {"contexts": (5, 20), "suffix": 10, "lengths": (40,), "per_bucket": 30, "beam": 2}


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
    rows = parquet.read_table(tmp_path / "sequences.parquet").num_rows
    assert rows == found.questions == sum(group.recited.n for group in found.groups if group.bucket is None)
    verdict = check(read_run(tmp_path), parse_policy("[recitation]\nrate_at_most = 0.99\n"))
    assert [rule.outcome for rule in verdict.rules] == ["not_shown"]
    assert "have no answer" in verdict.rules[0].evidence
