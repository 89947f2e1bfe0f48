"""What goes wrong between a client and a server loses no answer and invents none; what was answered is not asked again."""

import contextlib
import itertools
import json
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from coalmine import serve
from coalmine.errors import CoalmineError, InputError, ModelChangedError, ModelError, NotMeasurableError
from coalmine.models import connect, text_sequence
from coalmine.models.endpoints.answers import (
    EndpointAnswer,
    EndpointQuestion,
    UnusableAnswerError,
    check_length,
    read_answer,
)
from coalmine.models.endpoints.cache import AnswerCache
from coalmine.models.endpoints.limits import Budget, RateLimit
from coalmine.models.endpoints.probe_schedule import LONGEST_STRETCH
from coalmine.models.endpoints.transport import HttpReply, Transport
from coalmine.models.reference.checkpoint import save_model
from endpoints.fault_proxy import BENIGN, FAULTS, Fault, FaultProxy
from models.endpoint_servers import local_bits, serving_process, twisted
from models.random_networks import random_model

TEXTS = ["the random number is 281265017", "a", "00", "some other text", "0 zero first", "my pin is 4921"]
TOLERANCE_BITS = 1e-4
QUICK = {"back_off": 0.01, "timeout": 10.0, "probe_texts": ["the cat sat"]}


@pytest.fixture(scope="module")
def url(local, tmp_path_factory):
    directory = tmp_path_factory.mktemp("served") / "model"
    save_model(directory, local._network, local.tokenizer)
    with serving_process(directory) as url:
        yield url


@pytest.fixture(scope="module")
def expected(local):
    return local_bits(local, TEXTS)


@pytest.fixture(scope="module")
def written(url):
    with connect(url, **QUICK) as model:
        return model.complete(TEXTS, length=3)


def bits(model, texts=TEXTS):
    return [score.log_perplexity_bits for score in model.score_text(texts)]


def _options(kind):
    if kind == "delay":
        return {**QUICK, "timeout": 0.5}
    # A stale answer is recognized by its id, once the answer that it repeats has come: one request at a time.
    return {**QUICK, "concurrency": 1} if kind == "stale" else QUICK


@pytest.mark.parametrize("kind", [*FAULTS, *BENIGN])
def test_every_third_answer_is_spoiled(url, expected, written, kind):
    options = _options(kind)
    with (
        FaultProxy(url, [Fault(kind, every=3)], delay=0.8, retry_after=0) as proxy,
        connect(proxy.url, **options) as model,
    ):
        assert model.capability.level == "scorer"
        assert bits(model) == pytest.approx(expected, abs=TOLERANCE_BITS)
        assert model.complete(TEXTS, length=3) == written
        assert proxy.requests[kind] >= 5


@pytest.mark.parametrize("liar", ["no_echo", "text_only"])
@pytest.mark.parametrize("kind", ["drop_in_body", "garbage", "stale", "fewer_choices"])
def test_servers_that_can_do_less_lose_nothing_either(url, written, liar, kind):
    with (
        FaultProxy(url, [Fault(kind, every=3)], liar=liar) as proxy,
        connect(proxy.url, **_options(kind)) as model,
    ):
        assert model.complete(TEXTS, length=3) == written


def test_many_kinds_at_once_by_chance(url, expected):
    kinds = [kind for kind in FAULTS if kind not in {"delay", "stale"}]
    faults = [Fault(kind, rate=0.02) for kind in kinds]
    with (
        FaultProxy(url, faults, retry_after=0, seed=3) as proxy,
        connect(proxy.url, **QUICK, concurrency=8) as model,
    ):
        assert bits(model) == pytest.approx(expected, abs=TOLERANCE_BITS)
        assert sum(proxy.requests.values()) > proxy.requests["passed"]


@pytest.fixture(scope="module")
def through_a_proxy(url):
    with FaultProxy(url, delay=1.5, retry_after=0) as proxy, connect(proxy.url, **QUICK, retries=2) as model:
        bits(model, ["a"])
        yield proxy, model


@pytest.mark.parametrize("kind", [kind for kind in FAULTS if kind not in {"stale", "delay"}])
def test_more_faults_than_retries_are_an_error_and_never_a_number(through_a_proxy, kind):
    proxy, model = through_a_proxy
    proxy.faults = [Fault(kind)]
    with pytest.raises(NotMeasurableError, match="no usable answer in 3 tries"):
        model.score_text([f"asked under {kind.replace('_', ' ')}"])
    assert proxy.requests[kind] == 3
    proxy.faults = []
    asked = sum(proxy.requests.values())
    assert len(bits(model, [f"asked under {kind.replace('_', ' ')}"])) == 1
    # Nothing of what came before was kept; the second is whether the server still is the same.
    assert sum(proxy.requests.values()) == asked + 2


def test_answers_that_always_come_too_late(url):
    with (
        FaultProxy(url, ["delay"], delay=1.5) as proxy,
        pytest.raises(
            NotMeasurableError, match=r"in 3 tries, the last time because no answer came within 0\.2 s"
        ),
    ):
        connect(proxy.url, **{**QUICK, "timeout": 0.2}, retries=2)


def test_waiting_as_long_as_the_server_asks(url):
    with (
        FaultProxy(url, retry_after=1) as proxy,
        connect(proxy.url, **QUICK, model="model") as model,
    ):
        proxy.faults = [Fault("status_429", times=1)]
        before = time.monotonic()
        model.score_text(["a text"])
        assert time.monotonic() - before >= 1


def test_refusals_are_final(url):
    with FaultProxy(url) as proxy, connect(proxy.url, **QUICK) as model:
        before = sum(proxy.requests.values())
        with pytest.raises(ModelError, match="refused with status 400"):
            model.score_text(["CAPITALS"])
        assert sum(proxy.requests.values()) == before + 1


def test_errors_survive_the_way_between_processes(url):
    for options in ({"model": "another"}, {"model": "model", "timeout": 1e-6}):
        with pytest.raises(CoalmineError) as problem:
            connect(url, **{**QUICK, **options}, retries=0)
        again = pickle.loads(pickle.dumps(problem.value))
        assert (str(again), vars(again)) == (str(problem.value), vars(problem.value))


class TestCache:
    def test_nothing_is_asked_twice(self, url, expected, tmp_path):
        cache = tmp_path / "deep" / "answers.sqlite"
        with FaultProxy(url) as proxy:
            with connect(proxy.url, **QUICK, cache=cache) as model:
                described = model.describe()
                assert bits(model) == pytest.approx(expected, abs=TOLERANCE_BITS)
                tokens = [model.tokenizer.encode(text) for text in TEXTS]
                assert [len(row) for row in tokens] == [len(text) for text in TEXTS]
                asked = sum(proxy.requests.values())
            with connect(proxy.url, **QUICK, cache=cache) as model:
                assert model.describe() == described
                assert bits(model) == pytest.approx(expected, abs=TOLERANCE_BITS)
            # Whether the server is still the same, and nothing else.
            assert sum(proxy.requests.values()) - asked == 1
        assert {path.stat().st_mode & 0o777 for path in cache.parent.iterdir()} == {0o600}

    def test_another_model_under_the_same_name_is_noticed(self, local, tmp_path):
        with serve(local, port=0) as first, FaultProxy(first.url) as proxy:
            with connect(proxy.url, **QUICK, cache=tmp_path / "answers") as model:
                bits(model)
            with serve(random_model("lstm", seed=1), port=0) as second:
                proxy.upstream = proxy.upstream._replace(netloc=second.url.split("/")[2])
                with pytest.raises(
                    ModelChangedError, match="no longer gives the answers that are in the cache"
                ):
                    connect(proxy.url, **QUICK, cache=tmp_path / "answers")

    def test_damage_is_as_good_as_nothing(self, tmp_path):
        question, answer = EndpointQuestion(prompt="p"), EndpointAnswer(text="t", tokens_used=3)
        path = tmp_path / "answers"
        with contextlib.closing(AnswerCache(path, url="u", model="m")) as cache:
            assert cache.get(question) is None
            cache.put(question, answer)
            assert cache.get(question) == answer
        for url, model in (("other", "m"), ("u", "other")):
            with contextlib.closing(AnswerCache(path, url=url, model=model)) as cache:
                assert cache.get(question) is None
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE answers SET answer = substr(answer, 2)")
        with contextlib.closing(AnswerCache(path, url="u", model="m")) as cache:
            assert cache.get(question) is None

    @pytest.mark.parametrize("kind", ["text", "database"])
    def test_a_file_of_something_else_is_left_alone(self, tmp_path, kind):
        path = tmp_path / "mine"
        if kind == "text":
            path.write_text("my own file, and not a short one " * 100)
        else:
            with contextlib.closing(sqlite3.connect(path)) as connection, connection:
                connection.execute("CREATE TABLE mine (x)")
        before = path.read_bytes()
        with pytest.raises(InputError, match="choose another place"):
            AnswerCache(path, url="u", model="m")
        assert path.read_bytes() == before

    def test_threads_share_it(self, tmp_path):
        with contextlib.closing(AnswerCache(tmp_path / "answers", url="u", model="m")) as cache:

            def work(worker):
                for i in range(50):
                    cache.put(EndpointQuestion(prompt=f"{worker} {i}"), EndpointAnswer(text=f"{worker} {i}"))

            threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for worker, i in itertools.product(range(4), range(50)):
                assert cache.get(EndpointQuestion(prompt=f"{worker} {i}")).text == f"{worker} {i}"


SCRIPT = """
    import json, sys
    from coalmine.models.endpoints.connecting import connect
    url, cache, texts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    with connect(url, cache=cache, concurrency=2, timeout=60, probe_texts=["the cat sat"]) as model:
        print("ready", flush=True)
        print(json.dumps([score.log_perplexity_bits for score in model.score_text(texts)]), flush=True)
"""


def client_process(url, cache, texts):
    environment = {**os.environ, "COALMINE_API_KEY": "sk-0123456789"}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), url, str(cache), json.dumps(texts)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def prompts_of(proxy):
    return [
        json.loads(body)["prompt"] for body in proxy.bodies if body
    ]  # a client that is killed may send half of one


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_stopped_asks_only_for_what_is_missing(url, local, tmp_path, number):
    texts = [f"number {i} of many" for i in range(60)]
    cache = tmp_path / "answers"
    # The last texts come late, so that there is something to interrupt.
    with FaultProxy(url, delay=20.0) as proxy:
        process = client_process(proxy.url, cache, texts)
        assert process.stdout.readline() == "ready\n"
        while sum(prompt in texts for prompt in prompts_of(proxy)) < 40:
            time.sleep(0.01)
        proxy.faults = [Fault("delay")]
        while not proxy.requests["delay"]:
            time.sleep(0.01)
        before = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=15)
        assert time.monotonic() - before < 10
        assert process.returncode not in {0, 2}
        assert not out
        assert "sk-0123456789" not in err
        proxy.faults = []
        first = [prompt for prompt in prompts_of(proxy) if prompt in texts]
        proxy.bodies.clear()
        process = client_process(proxy.url, cache, texts)
        out, err = process.communicate(timeout=60)
        second = [prompt for prompt in prompts_of(proxy) if prompt in texts]
    found = json.loads(out.splitlines()[-1])
    own = [score.log_perplexity_bits for score in local.score([text_sequence(local, t) for t in texts])]
    assert found == pytest.approx(own, abs=TOLERANCE_BITS)
    assert len(first) >= 40
    # What came since the last probe is asked a second time, what was under way (two at a time, and two that were just answered), and one
    # in 32 to recognize the server.
    repeats = round(len(texts) / 32)
    assert len(set(first) & set(second)) <= LONGEST_STRETCH + 4 + repeats
    assert set(first) | set(second) == set(texts)
    assert len(second) <= len(set(second)) + repeats
    assert all(b"sk-0123456789" not in path.read_bytes() for path in tmp_path.iterdir())


class TestLimits:
    def test_a_cap_on_requests_and_going_on(self, url, expected, tmp_path):
        cache = tmp_path / "answers"
        with FaultProxy(url, [Fault("status_500", every=5)]) as proxy, connect(proxy.url, **QUICK) as model:
            cap = model.spent()["requests"] + 4
        with FaultProxy(url, [Fault("status_500", every=5)]) as proxy:
            with connect(proxy.url, **QUICK, cache=cache, most_requests=cap) as model:
                with pytest.raises(NotMeasurableError, match=f"cap of {cap} requests"):
                    bits(model)
                assert model.spent()["requests"] == cap
            # The question which models there are is not counted by the proxy.
            assert sum(proxy.requests.values()) == cap - 1
            with connect(proxy.url, **QUICK, cache=cache) as model:
                assert bits(model) == pytest.approx(expected, abs=TOLERANCE_BITS)
                assert model.spent()["answered_from_cache"] > 0

    def test_a_cap_on_cost(self, url):
        with FaultProxy(url) as proxy:
            with connect(proxy.url, **QUICK, most_cost=2.0, cost_per_million_tokens=1000.0) as model:
                texts = [f"text number {number}" for number in range(500)]
                with pytest.raises(NotMeasurableError, match="above the cap of 2"):
                    model.score_text(texts)
                spent = model.spent()
            assert 1.9 < spent["cost"] <= 2.0
            assert spent["cost"] == pytest.approx(spent["tokens"] / 1000)

    def test_a_server_that_counts_below_zero_gives_no_credit(self, url):
        def negative(_, document):
            document["usage"]["total_tokens"] = -1_000_000
            return document

        with twisted(url, negative) as place, connect(place.url, **QUICK) as model:
            assert model.spent()["tokens"] > 0

    def test_many_retries_are_possible(self, url, monkeypatch):
        tries = []
        monkeypatch.setattr(
            Transport, "exchange", lambda *_, **__: tries.append(1) or HttpReply(500, {}, b"")
        )
        with pytest.raises(NotMeasurableError, match="in 1101 tries"):
            connect(url, **{**QUICK, "model": "model", "retries": 1100, "back_off": 0.0})
        assert len(tries) == 1101

    def test_the_budget_holds_for_requests_under_way(self):
        budget = Budget(None, 1.0, 1e6)
        budget.reserve(0)
        with pytest.raises(NotMeasurableError):
            budget.reserve(2)
        budget = Budget(None, 10.0, 1e6)
        budget.reserve(6)
        with pytest.raises(NotMeasurableError):
            budget.reserve(6)
        budget.settle(6, 2)
        budget.reserve(6)
        assert (budget.requests, budget.tokens, budget.cost) == (2, 2, 2.0)

    def test_requests_keep_their_distance(self):
        now = 0.0
        began = []

        def sleep(seconds):
            nonlocal now
            now += seconds

        rate = RateLimit(4.0, clock=lambda: now)
        for number in range(20):
            rate.wait(sleep)
            began.append(now)
            if number == 10:
                rate.pause(3.0)
            if number == 15:
                now += 2.0  # idle time is not saved up
        for first in began:
            assert sum(first <= moment < first + 1 for moment in began) <= 4
        assert began[11] >= began[10] + 3.0

    def test_threads_share_the_limit(self, url):
        with connect(url, **QUICK, concurrency=4, requests_per_second=50) as model:
            sent = []
            transport = model._client.connection._transport
            inner = transport.exchange
            transport.exchange = lambda *a, **o: (sent.append(time.monotonic()), inner(*a, **o))[1]
            before = time.monotonic()
            model.score_text([f"text {number}" for number in range(20)])
            # The twentieth may not begin before nineteen distances have passed.
            assert max(sent) - before >= 18 / 50


class TestConcurrency:
    def test_as_many_at_a_time_as_allowed_and_in_order(self, url, local):
        texts = [f"text number {number}" for number in range(12)]
        own = [score.log_perplexity_bits for score in local.score([text_sequence(local, t) for t in texts])]
        lock = threading.Lock()
        under_way, most = 0, 0

        def twist(_, document):
            nonlocal under_way, most
            with lock:
                under_way += 1
                most = max(most, under_way)
            time.sleep(0.1)
            with lock:
                under_way -= 1
            return document

        with twisted(url, twist) as place, connect(place.url, **QUICK, concurrency=3) as model:
            assert bits(model, [*texts, *texts]) == pytest.approx([*own, *own], abs=TOLERANCE_BITS)
            asked = [body["prompt"] for body in place.bodies if body["prompt"] in texts]
            # Equal texts are asked about once; one may come again, to see that the server still is the same.
            assert sorted(asked[:12]) == sorted(texts)
            assert len(asked) <= 13
            assert most == 3

    def test_a_failure_keeps_what_was_answered(self, url):
        texts = [f"text number {number}" for number in range(12)]
        with FaultProxy(url) as proxy, connect(proxy.url, **QUICK, concurrency=3) as model:
            with pytest.raises(CoalmineError):
                model.score_text([*texts[:6], "NOT READABLE", *texts[6:]])
            asked = [prompt for prompt in prompts_of(proxy) if prompt in texts]
            model.score_text(texts)
            again = [prompt for prompt in prompts_of(proxy) if prompt in texts]
            # One may come again, to see that the server still is the same.
            assert sorted(again[:12]) == sorted(texts)
            assert len(again) <= 13
            assert len(asked) < len(texts)

    def test_progress_is_told(self, url):
        told = []

        class Told:
            def start(self, task, total):
                told.append((task, total))

            def advance(self, amount=1, note=""):
                told.append((amount, note))

            def finish(self):
                told.append("end")

        with connect(url, **QUICK, progress=Told()) as model:
            told.clear()
            model.score_text(TEXTS)
        assert told == [("asking the endpoint", len(TEXTS)), *[(1, "")] * len(TEXTS), "end"]


def test_an_answer_to_a_shorter_question_is_refused():
    asked = EndpointQuestion(prompt="1", most_tokens=3)
    short = {"choices": [{"text": "1", "finish_reason": "length"}], "usage": {"completion_tokens": 1}}
    answer = read_answer(json.dumps(short).encode())
    with pytest.raises(UnusableAnswerError, match="after 1 tokens, and 3 were asked for"):
        check_length(asked, answer, answer.tokens_generated)
    short["choices"][0]["finish_reason"] = "stop"  # the text ends there
    ended = read_answer(json.dumps(short).encode())
    check_length(asked, ended, ended.tokens_generated)
