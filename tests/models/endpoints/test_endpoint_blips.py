"""An endpoint that answers as another model for a moment and then as the first one again, also around an interruption."""

import contextlib
import random
import sqlite3
import warnings

import pytest

from coalmine.errors import ModelChangedError
from coalmine.models import connect
from coalmine.models.endpoints.probe_schedule import LONGEST_STRETCH, SHORTEST_STRETCH
from endpoints.fault_proxy import FaultProxy, Switch
from models import switching
from models.endpoint_servers import local_bits, twisted
from models.switching import QUICK, TRIED, scripted, seeded

TEXTS = [f"a text with number {number}" for number in range(116)]
BLIP = 20


@pytest.fixture(autouse=True)
def same_draws(monkeypatch):
    seeded(monkeypatch)


@pytest.fixture(scope="module")
def expected():
    return local_bits(scripted(), TEXTS)


def bits(model, texts=TEXTS):
    return switching.bits(model, texts)


def blip(place, begins, length=BLIP):
    """Requests that another server answers, by their numbers after the server was tried."""
    return Switch(place, first=TRIED + begins, last=TRIED + begins + length - 1)


@pytest.mark.parametrize("begins", [1, 40, 107])
@pytest.mark.parametrize("other", ["other", "near"])
def test_twenty_of_116_answers(scripted_url, other_url, near_url, expected, tmp_path, begins, other):
    place, cache = {"other": other_url, "near": near_url}[other], tmp_path / "answers"
    with FaultProxy(scripted_url, switch=blip(place, begins)) as proxy:
        with (
            pytest.raises(ModelChangedError, match="became another one") as problem,
            connect(proxy.url, **QUICK, cache=cache) as model,
        ):
            bits(model)
        assert "while texts were scored" in str(problem.value)
        # The first model is back, and nothing of the other one is left.
        proxy.switch = None
        with connect(proxy.url, **QUICK, cache=cache) as model:
            assert bits(model) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("begins", [3, 50])
def test_several_requests_at_a_time(scripted_url, other_url, begins):
    """Answers that are under way together with a probe may come before it or after it; on a busy machine that may be many."""
    length = 3 * LONGEST_STRETCH
    with (
        FaultProxy(scripted_url, switch=blip(other_url, begins, length)) as proxy,
        connect(proxy.url, **{**QUICK, "concurrency": 4}) as model,
        pytest.raises(ModelChangedError, match="differ by up to"),
    ):
        bits(model)


def test_servers_that_take_turns_in_step_with_the_probes(scripted_url, other_url):
    """Wherever probes always came after as many answers, a balancer over as many servers would always show them the same one."""
    for every in (SHORTEST_STRETCH + 1, LONGEST_STRETCH + 1):
        switch = Switch(other_url, first=TRIED + 2, every=every)
        with (
            FaultProxy(scripted_url, switch=switch) as proxy,
            connect(proxy.url, **QUICK) as model,
            pytest.raises(ModelChangedError, match="differ by up to"),
        ):
            bits(model, [f"{part} {text}" for part in range(6) for text in TEXTS])


def test_a_server_that_gives_text_only(scripted_url, other_url):
    with FaultProxy(scripted_url, liar="text_only") as proxy, connect(proxy.url, **QUICK) as model:
        proxy.count_from_here()
        proxy.switch = Switch(other_url, first=30, last=30 + BLIP - 1)
        with pytest.raises(ModelChangedError, match="another model answered for a moment"):
            model.complete(TEXTS, length=3)


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_noise_that_is_seldom_is_no_switch(scripted_url, share):
    """As on servers that compute in batches, where an answer now and then is a little different from the others to the same question."""
    dice = random.Random(3)

    def twist(_, document):
        told = document["choices"][0]["logprobs"]
        if told and dice.random() < share:
            shift = dice.uniform(0.002, 0.03)
            told["token_logprobs"] = [nats - shift for nats in told["token_logprobs"]]
        return document

    with twisted(scripted_url, twist) as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with connect(place.url, **QUICK) as model:
            assert model.capability.level == "scorer"
            bits(model, [f"{part} {text}" for part in range(2) for text in TEXTS])


def test_what_it_costs(scripted_url):
    texts = [f"{part} {text}" for part in range(4) for text in TEXTS[:96]]
    with FaultProxy(scripted_url) as proxy, connect(proxy.url, **QUICK) as model:
        bits(model, texts)
        asked = sum(proxy.requests.values()) - TRIED - len(texts)
        told = model.checks()
    assert told["probes"] + told["repeats"] == asked
    assert told["repeats"] == len(texts) / 32
    assert 0.10 < asked / len(texts) < 0.13


def test_the_record(scripted_url, tmp_path):
    cache = tmp_path / "answers"
    with connect(scripted_url, **QUICK, cache=cache) as model:
        bits(model)
        told = model.checks()
        described = model.describe()
    assert told["answers"] == len(TEXTS)
    assert told["most_answers_between_probes"] == LONGEST_STRETCH
    assert told["tolerance_bits"] == 2 * described["resolution_bits"]
    assert 0.3 < told["unnoticed"]["in_a_row"] < 0.6
    assert told["unnoticed"]["scattered"] == pytest.approx(0.95 ** told["probes"] * 0.905 ** told["repeats"])
    # What comes from the cache was checked by the run that asked it, and nothing differs that describes the model.
    with connect(scripted_url, **QUICK, cache=cache) as model:
        bits(model)
        assert (model.checks(), model.describe()) == (told, described)
        bits(model, [f"more {text}" for text in TEXTS])
        assert model.checks()["answers"] == 2 * len(TEXTS)


class TestRunsThatWereStopped:
    """Before its last answers were confirmed."""

    COUNT = 57

    def stop(self, scripted_url, cache):
        with connect(scripted_url, **QUICK, cache=cache) as model:
            bits(model, ["first"])

            def interrupt(*_):
                raise KeyboardInterrupt

            model._client.recognizer.check = interrupt
            with pytest.raises(KeyboardInterrupt):
                bits(model, TEXTS[: self.COUNT])

    def left(self, cache, what="bracketed = 1"):
        with contextlib.closing(sqlite3.connect(cache)) as file:
            return file.execute(f"SELECT count(*) FROM unconfirmed WHERE {what}").fetchone()[0]

    def test_what_came_before_a_probe_is_not_asked_again(self, scripted_url, expected, tmp_path):
        cache = tmp_path / "answers"
        with FaultProxy(scripted_url) as proxy:
            self.stop(proxy.url, cache)
            kept = self.left(cache)
            assert self.COUNT - LONGEST_STRETCH <= kept < self.COUNT
            asked = sum(proxy.requests.values())
            with connect(proxy.url, **QUICK, cache=cache) as model:
                assert bits(model, TEXTS[: self.COUNT]) == pytest.approx(expected[: self.COUNT], abs=1e-9)
                told = model.checks()
            lost = self.COUNT - kept
            # The first text when it begins and when the answers are used, and some of them.
            assert sum(proxy.requests.values()) - asked == lost + 2 + round(self.COUNT / 32)
        assert told["answers"] == 1 + self.COUNT
        assert told["most_answers_between_probes"] <= LONGEST_STRETCH

    def test_a_switch_that_was_there_when_it_was_stopped(self, scripted_url, other_url, expected, tmp_path):
        """Nobody saw it, and when the run is resumed the first model is back."""
        cache = tmp_path / "answers"
        with FaultProxy(scripted_url) as proxy:
            self.stop(proxy.url, tmp_path / "elsewhere")
            lost = self.COUNT - self.left(tmp_path / "elsewhere")
            last = sum(proxy.requests.values())
            assert lost > 3
            proxy.count_from_here()
            proxy.switch = Switch(other_url, first=last - lost + 1)
            self.stop(proxy.url, cache)
            proxy.switch = None
            with connect(proxy.url, **QUICK, cache=cache) as model:
                assert bits(model, TEXTS[: self.COUNT]) == pytest.approx(expected[: self.COUNT], abs=1e-9)

    def test_a_switch_before_it_is_resumed(self, scripted_url, other_url, tmp_path):
        cache = tmp_path / "answers"
        with FaultProxy(scripted_url) as proxy:
            self.stop(proxy.url, cache)
            proxy.switch = Switch(other_url)
            with pytest.raises(ModelChangedError, match="no longer gives the answers that are in the cache"):
                connect(proxy.url, **QUICK, cache=cache)
        assert self.left(cache, "true") == 0

    def test_a_switch_after_it_is_resumed(self, scripted_url, other_url, expected, tmp_path):
        """What the cache holds and what comes later are of one model, or there is no result."""
        cache = tmp_path / "answers"
        with FaultProxy(scripted_url) as proxy:
            self.stop(proxy.url, cache)
            proxy.count_from_here()
            proxy.switch = Switch(other_url, first=10, last=10 + BLIP - 1)
            with (
                pytest.raises(ModelChangedError, match="differ by up to"),
                connect(proxy.url, **QUICK, cache=cache) as model,
            ):
                bits(model)
            proxy.switch = None
            with connect(proxy.url, **QUICK, cache=cache) as model:
                assert bits(model) == pytest.approx(expected, abs=1e-9)
