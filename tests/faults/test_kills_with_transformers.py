"""Kills of work with transformers: a fine-tuning, and a training that the callback watches."""

import shutil

import pytest

from faults.fork_server import ForkServer
from faults.kill_runs import Case, Sweep, spread
from integrations.tiny_training import tiny_gpt2
from models.tiny_transformers import byte_level

KILLS = 20


@pytest.fixture(scope="module")
def server(faulty_disk):
    warm = ("faults.watched_training", "dp_accounting.pld", "dp_accounting.rdp")
    with ForkServer(warm=warm, environment=faulty_disk) as started:
        yield started


PRIVATE = ("--lora-rank", "2", "--dp-noise", "0.5", "--dp-delta", "1e-5", "--training", "dp_seed=3")


@pytest.mark.parametrize("options", [(), PRIVATE], ids=["full", "private LoRA"])
def test_a_fine_tuning(server, inputs, tmp_path, options):
    """In full, where dropout draws from the generator, and with LoRA and noise, which are drawn too."""
    base = tmp_path / "base"
    tiny_gpt2().save_pretrained(base)
    byte_level().save_pretrained(base)
    usual = ("--epochs", "2", "--learning-rate", "0.01", "--quiet")
    case = Case(("train", inputs / "planted", "--base", base, "-o", "out", *usual, *options))
    swept = Sweep(server, case, tmp_path / "run").through(spread(6))
    assert swept.resumed >= 3


def test_a_training_that_is_watched(server, inputs, tmp_path):
    """After resuming from the trainer's checkpoints, the callback's file is that of a training that was never stopped."""
    checkpoints = tmp_path / "checkpoints"
    case = Case(
        (inputs / "planted", checkpoints),
        call="faults.watched_training:main",
        prepare=lambda _: shutil.rmtree(checkpoints, ignore_errors=True),
    )
    swept = Sweep(server, case, tmp_path).through(spread(KILLS))
    assert len(swept.kills) >= KILLS
    assert swept.work < 3 * swept.whole_work, (
        "all these runs together computed less than three whole ones would"
    )
