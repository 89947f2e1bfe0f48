"""What `auto` takes: the exact rank where the time allows it at the measured speed, and otherwise an estimate, with the reason."""

import math
import signal

import pytest
import torch

from coalmine import CanarySet, Format, expose
from coalmine.audits.exposure.measuring import _rate, choose
from coalmine.models import ScriptedModel
from coalmine.search.walks.members import Members
from models.random_networks import random_model

SIX = Format("pin {digits:6}")


class Ticking:
    """A clock that goes on by the same time whenever it is looked at."""

    def __init__(self, seconds):
        self.seconds, self.now = seconds, 0.0

    def __call__(self):
        self.now += self.seconds
        return self.now


class OnlyScores:
    """A model that does not support incremental decoding."""

    def __init__(self, model):
        for name in ("name", "tokenizer", "context", "resolution_bits", "describe", "score"):
            setattr(self, name, getattr(model, name))


@pytest.fixture(scope="module")
def model():
    return random_model("lstm", dtype=torch.float32)


def test_a_space_that_an_estimate_would_cost_as_much_for_is_exact_whatever_the_clock_says(model):
    four = Format("pin {digits:4}")
    assert choose(Members(model, four), seconds=1e-9, budget=50_000).method == "exact"
    assert choose(Members(OnlyScores(model), four), seconds=1e-9, budget=1).method == "exact"


@pytest.mark.parametrize(("tick", "method"), [(10.0, "splitting"), (0.001, "exact")])
def test_a_model_that_only_scores_is_split_where_scoring_each_takes_too_long(model, tick, method):
    choice = choose(Members(OnlyScores(model), SIX), seconds=120, budget=50_000, clock=Ticking(tick))
    assert choice.method == method
    assert "1,000,000 members" in choice.why


def test_the_speed_is_that_after_the_first_steps():
    """A look at the clock each 0.1 s: what was done before the warm-up ended does not count."""
    clock = Ticking(0.1)
    assert _rate(iter([5, 10, 30, 60, 100]), 10, clock) == pytest.approx((100 - 10) / 0.3)
    # It is watched for half a second and no longer.
    steps = iter(range(10, 10_000, 10))
    assert _rate(steps, 10, Ticking(0.1)) == pytest.approx(50 / 0.5)
    assert next(steps) == 70
    assert _rate(iter([10]), 10, Ticking(0.1)) == math.inf


@pytest.mark.parametrize(
    ("seconds", "method"), [(111_111 / 2560 + 0.01, "exact"), (111_111 / 2560 - 0.01, "guided")]
)
def test_exact_is_taken_as_long_as_it_fits_the_time(model, seconds, method):
    # A batch of 256 steps each 0.1 s, so 2,560 a second.
    assert choose(Members(model, SIX), seconds=seconds, budget=50_000, clock=Ticking(0.1)).method == method


ENDED = Format("pin {digits:4}. ok")


@pytest.mark.parametrize(
    ("canary", "method"), [(17, "bounded"), (5001, "exact")], ids=["remembered", "not remembered"]
)
def test_text_after_a_hole_is_read_only_where_a_member_can_rank_before_a_canary(canary, method):
    model = ScriptedModel("pin 0123456789.ok", memory={ENDED.at(17): 0.5, ENDED.at(5000): 0.2})
    canaries = CanarySet.of(ENDED, [ENDED.at(canary), ENDED.at(5000)])
    found, exact = expose(model, canaries), expose(model, canaries, method="exact")
    assert [one.rank for one in found] == [one.rank for one in exact]
    assert found.formats[0].method == method
    # 10,000 leaves, each with the four tokens of its ending, and the nodes above them; the root is not counted.
    assert exact.expansions == 4 * 10_000 + 1_110
    assert found.expansions == (14 if method == "bounded" else exact.expansions)
    assert ("fewer than 1% of all 10,000 members can rank before a canary" in found.formats[0].why) == (
        method == "bounded"
    )


@pytest.mark.parametrize("tick", [10.0, 1e-6])
def test_a_run_that_was_stopped_takes_the_same_method_whatever_the_clock_says_now(
    model, tick, tmp_path, monkeypatch
):
    canaries = CanarySet.of(SIX, SIX.sample(2, 1, replace=False))

    def exposures(tick, **options):
        monkeypatch.setattr("coalmine.audits.exposure.measuring.time.perf_counter", Ticking(tick))
        return expose(model, canaries, samples=500, resume=tmp_path, budget=200, **options)

    with pytest.raises(KeyboardInterrupt):
        exposures(tick, progress=StopsAfterTheChoice())
    (resumed,) = exposures(10.0 if tick < 1 else 1e-6).formats
    assert resumed.method == ("guided" if tick > 1 else "exact")
    (fresh,) = exposures(10.0 if tick < 1 else 1e-6).formats
    assert fresh.method == ("exact" if tick > 1 else "guided")


class StopsAfterTheChoice:
    """Presses Ctrl-C at the first progress after the speed of the model was measured."""

    measured, now = False, False

    def start(self, task, total):  # noqa: ARG002 - the protocol's
        self.now, self.measured = self.measured, self.measured or "speed" in task

    def advance(self, amount=1, note=""):  # noqa: ARG002 - the protocol's
        if self.now:
            signal.raise_signal(signal.SIGINT)

    def finish(self):
        pass
