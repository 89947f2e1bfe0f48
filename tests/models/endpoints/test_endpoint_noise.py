"""A server whose answers differ a little from one time to the next is not taken for one that switches models."""

import contextlib
import math
import random
import re
import threading
import time
import warnings

import pytest

from coalmine.errors import InputError, ModelChangedError
from coalmine.models import connect
from models.endpoint_servers import local_bits, twisted
from models.switching import QUICK, TEXTS, TRIED, bits, check_often, scripted


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    check_often(monkeypatch)


@pytest.fixture(scope="module")
def expected():
    return local_bits(scripted(), TEXTS)


def noisy(scripted_url, most_nats, *, since=1):
    """A server whose numbers differ by up to so much each time, from request number `since` on."""
    dice, count = random.Random(7), iter(range(1, 100_000))

    def twist(_, document):
        told = document["choices"][0]["logprobs"]
        if told and next(count) >= since:
            shifts = [dice.uniform(0, most_nats) for _ in told["tokens"]]
            told["token_logprobs"] = [n - s for n, s in zip(told["token_logprobs"], shifts, strict=True)]
            told["top_logprobs"] = [
                {token: n - s for token, n in top.items()}
                for top, s in zip(told["top_logprobs"], shifts, strict=True)
            ]
        return document

    return twisted(scripted_url, twist)


@pytest.mark.parametrize("most_nats", [1e-6, 0.001, 0.03])
def test_a_server_that_is_noisy_by_nature_is_not_accused(scripted_url, expected, most_nats):
    with noisy(scripted_url, most_nats) as place, connect(place.url, **QUICK) as model:
        assert model.capability.level == "scorer", model.capability.why
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it may turn out noisier than it was at the beginning
            for start in range(0, 40, 8):
                part = slice(start, start + 8)
                margin = 20 * most_nats / math.log(2)
                assert bits(model, TEXTS[part]) == pytest.approx(expected[part], abs=margin + 1e-9)


def test_numbers_that_depend_on_what_is_computed_at_the_same_time(scripted_url):
    """As on servers that compute in batches, and in few bits: alone, a text always has the same numbers, and others in company."""
    lock, under_way = threading.Lock(), 0

    def twist(request, document):
        nonlocal under_way
        with lock:
            under_way += 1
        time.sleep(0.01)
        with lock:
            company, under_way = under_way > 1, under_way - 1
        told = document["choices"][0]["logprobs"]
        if told and company and "number" in request["prompt"]:
            told["token_logprobs"] = [n - 0.1 for n in told["token_logprobs"]]
        return document

    # Which requests meet is up to the machine: if all of a series do and none before, it looks like another model, and is an error.
    said = []
    with twisted(scripted_url, twist) as place:
        for _ in range(4):
            with (
                connect(place.url, **{**QUICK, "concurrency": 4}) as model,
                warnings.catch_warnings(record=True, action="always") as said,
                contextlib.suppress(ModelChangedError),
            ):
                assert model.resolution_bits < 0.001
                bits(model)
                break
    assert re.search(
        r"less exact than when the run began: .* differ by up to 0\.14 bits", str(said[0].message)
    )


def test_noise_that_begins_later_is_told_and_is_no_error(scripted_url):
    with noisy(scripted_url, 0.02, since=TRIED) as place, connect(place.url, **QUICK) as model:
        assert model.resolution_bits < 0.001
        with pytest.warns(UserWarning, match="less exact than when the run began"):
            bits(model)


def test_noise_that_is_known_is_neither(scripted_url):
    with (
        noisy(scripted_url, 0.02, since=TRIED) as place,
        connect(place.url, **QUICK, noise_bits=0.03) as model,
    ):
        assert model.resolution_bits == 0.06
        bits(model)
    for wrong in (-0.1, 0.6, math.nan):
        with pytest.raises(InputError, match="noise_bits must be from 0 to"):
            connect(scripted_url, **QUICK, noise_bits=wrong)


def test_a_difference_that_stays_is_not_noise(scripted_url):
    """Numbers that are lower by a hundredth from some request on: within the noise that a server may have, and always the same."""
    count = iter(range(1, 10_000))

    def twist(_, document):
        told = document["choices"][0]["logprobs"]
        if told and next(count) > TRIED + 20:
            told["token_logprobs"] = [n - 0.01 for n in told["token_logprobs"]]
        return document

    with (
        twisted(scripted_url, twist) as place,
        connect(place.url, **QUICK) as model,
        pytest.raises(ModelChangedError, match=r"differ by up to 0\.014 bits, and not from one time to"),
    ):
        bits(model)


def test_text_that_is_seldom_written_otherwise(scripted_url):
    """Greedy decoding that differs now and then is reported; a server that was never deterministic is not accused of a switch."""
    for every, level in ((10, "a change"), (3, "from the beginning")):
        count = iter(range(1, 10_000))

        def twist(_, document, count=count, every=every):
            document["choices"][0]["logprobs"] = None
            if next(count) % every == 0:
                document["choices"][0]["text"] = "something else"
            return document

        with twisted(scripted_url, twist) as place, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with connect(place.url, **QUICK) as model:
                assert model.describe()["deterministic"] == (level == "a change")
                for text in TEXTS[:20]:
                    model.complete([text], length=3)
