"""Exposure on engines: the same bytes from each, for every method, several formats and models, and whatever is killed."""

import pytest
import torch

from coalmine import Canary, CanarySet, Format, ScriptedModel, expose
from coalmine.audits.exposure.estimators import ESTIMATORS
from coalmine.engines import ledger
from coalmine.engines.engine import open_engine
from coalmine.errors import InputError
from coalmine.models import from_transformers
from models.tiny_transformers import byte_level, tiny

FORMATS = ["my pin is {digits:3}", "the code: {re:[0-2]}{digits:3}"]
# So few that a search does not settle, and that a choice looks at the clock.
SMALL = {"budget": 60, "batch": 64}
SAMPLES = {"guided": 9_000, "splitting": 32, "sampled": 200, "extrapolated": 200}


@pytest.fixture(scope="module")
def engine():
    with open_engine("processes:2") as opened:
        yield opened


@pytest.fixture(scope="module")
def planted():
    forms = {f"f{place}": Format(template) for place, template in enumerate(FORMATS)}
    drawn = {name: form.sample(72, seed=6, replace=False) for name, form in forms.items()}
    canaries = [
        Canary(canary_id=f"{name}-{place}", format_id=name, text=texts[place], repetitions=1, planted=True)
        for name, texts in drawn.items()
        for place in range(2)
    ]
    return CanarySet(canaries, forms, references={name: texts[2:] for name, texts in drawn.items()})


@pytest.fixture(scope="module")
def gpt2():
    tokenizer = byte_level()
    return from_transformers(tiny("gpt2", len(tokenizer), dtype=torch.float32), tokenizer)


def options_of(method):
    return SMALL | ({"samples": SAMPLES[method]} if method in SAMPLES else {})


def saved(exposures, folder):
    exposures.save(folder)
    return {name: (folder / name).read_bytes() for name in ("exposure.json", "scores.parquet")}


@pytest.mark.parametrize("method", [one.name for one in ESTIMATORS])
def test_every_method_gives_the_same_bytes_on_every_engine(method, engine, planted, gpt2, tmp_path):
    here, there = (
        saved(expose(gpt2, planted, method=method, engine=one, **options_of(method)), tmp_path / name)
        for name, one in (("here", None), ("there", engine))
    )
    assert here == there


class KillsWorkers:
    """Kills all workers of an engine at the first progress of a task, once."""

    def __init__(self, engine, task):
        self.engine, self.task, self.now, self.killed = engine, task, False, 0

    def start(self, task, total):  # noqa: ARG002 - the protocol's
        self.now = self.task in task

    def advance(self, amount=1, note=""):  # noqa: ARG002 - the protocol's
        if self.now and not self.killed:
            for one in self.engine.pool._processes.values():
                one.process.kill()
                self.killed += 1

    def finish(self):
        pass


@pytest.mark.parametrize(("method", "task"), [("guided", "Proving"), ("exact", "Ranking"), ("splitting", "Splitting")])  # fmt: skip
def test_a_worker_that_is_killed_changes_no_byte(method, task, engine, planted, gpt2, tmp_path, monkeypatch):
    """In single precision, from what the unit kept: a search goes on with the states that it had."""
    monkeypatch.setattr(ledger, "SECONDS_BETWEEN_SAVES", 0.0)
    options = {"method": method, **options_of(method)}
    killing = KillsWorkers(engine, task)
    found = expose(gpt2, planted, engine=engine, resume=tmp_path / "kept", progress=killing, **options)
    assert killing.killed == 2
    assert saved(found, tmp_path / "killed") == saved(expose(gpt2, planted, **options), tmp_path / "whole")
    assert not list((tmp_path / "kept").iterdir())


class Elsewhere(ScriptedModel):
    """Says that it runs on another machine."""

    def checks(self):
        return {}


def test_a_model_on_another_machine_is_asked_by_one_process(engine):
    canaries = CanarySet.of("pin {digits:2}", ["pin 49"])
    model = Elsewhere("pin 0123456789")
    assert len(expose(model, canaries)) == 1
    with pytest.raises(InputError, match=r"is asked by one process.*; use the engine here"):
        expose(model, canaries, engine=engine)
