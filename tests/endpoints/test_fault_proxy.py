"""The proxy does to answers what it says, and nothing when nothing was asked for."""

import concurrent.futures
import email.utils
import http.client
import itertools
import json
import math
import socket
import subprocess
import sys
import time
import zlib
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from coalmine import ScriptedModel, serve
from endpoints.broken_shapes import BROKEN_BYTES
from endpoints.fault_proxy import BENIGN, FAULTS, REDIRECTS, Fault, FaultProxy, Switch
from endpoints.hostile_answers import BLOCK, GIGABYTES, HOSTILE, bomb
from endpoints.lies import LIARS, REFUSERS

ASKED = {"prompt": ["my pin", "my cat"], "max_tokens": 2, "temperature": 0, "echo": True, "logprobs": 3}
BROKEN_LINE = (http.client.HTTPException, ConnectionError, TimeoutError)


@pytest.fixture(scope="module")
def upstream():
    with serve(ScriptedModel("my pincat", memory={"my pin my": 0.5}), port=0) as server:
        yield server.url


def ask(url, document=None, *, timeout=10.0):
    """The status, the headers and the bytes of an answer, on a connection of its own."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
    try:
        if document is None:
            connection.request("GET", f"{parts.path}/models")
        else:
            kind = {"Content-Type": "application/json"}
            connection.request("POST", f"{parts.path}/completions", json.dumps(document), kind)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def choices(content):
    return json.loads(content)["choices"]


@pytest.fixture(scope="module")
def honest(upstream):
    return choices(ask(upstream, ASKED)[2])


def numbers(choice):
    return choice["logprobs"]["token_logprobs"]


@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_is_what_it_says(upstream, honest, kind):
    with FaultProxy(upstream, [kind], delay=0.6, retry_after=2) as proxy:
        if kind.startswith("drop") or kind == "chunked_garbage":
            with pytest.raises(BROKEN_LINE):
                ask(proxy.url, ASKED)
        elif kind == "delay":
            with pytest.raises(TimeoutError):
                ask(proxy.url, ASKED, timeout=0.2)
            assert choices(ask(proxy.url, ASKED)[2]) == honest
        elif kind.startswith("status"):
            status, headers, content = ask(proxy.url, ASKED)
            assert status == int(kind.split("_")[1])
            assert "error" in json.loads(content)
            if kind == "status_429":
                assert headers["Retry-After"] == "2"
            if kind == "status_429_date":
                until = email.utils.parsedate_to_datetime(headers["Retry-After"]).timestamp()
                assert 0 < until - time.time() < 3
        elif kind == "stale":
            first = ask(proxy.url, {**ASKED, "prompt": ["pin", "cat"]})[2]
            assert ask(proxy.url, ASKED)[2] == first
        else:
            status, headers, content = ask(proxy.url, ASKED)
            assert status == 200
            assert not usable(content)
            assert kind != "html_200" or headers["Content-Type"] == "text/html"
            if kind in {"nan", "infinite", "positive"}:
                assert broken_number(kind, [one for choice in choices(content) for one in numbers(choice)])
        assert proxy.requests[kind] == sum(proxy.requests.values()) > 0
        assert ask(proxy.url)[0] == 200  # looking is not struck


def usable(content):
    """Whether an answer has two choices, with a log-probability for each token."""
    try:
        found = choices(content)
        return len(found) == 2 and all(
            len(numbers(choice)) == len(choice["logprobs"]["tokens"])
            and all(isinstance(one, float) and math.isfinite(one) and one <= 0 for one in numbers(choice))
            for choice in found
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def broken_number(kind, found):
    if kind == "nan":
        return any(math.isnan(one) for one in found)
    return all(one > 0 for one in found) if kind == "positive" else min(found) == -math.inf


@pytest.mark.parametrize("kind", BENIGN)
def test_what_is_unusual_and_right_keeps_its_numbers(upstream, honest, kind):
    with FaultProxy(upstream, [kind]) as proxy:
        _, headers, content = ask(proxy.url, ASKED)
        if kind == "gzip":
            assert headers["Content-Encoding"] == "gzip"
            content = zlib.decompress(content, wbits=31)
        assert usable(content)
        assert sorted(choices(content), key=lambda choice: choice["index"]) == honest
        assert (choices(content) != honest) == (kind == "reordered_choices")
        assert (headers["Transfer-Encoding"] == "chunked") == (kind in {"chunked", "gzip"})
        assert (headers["Set-Cookie"] is not None) == (kind == "cookie")


@pytest.mark.parametrize("liar", LIARS)
def test_liars_answer_less_than_they_were_asked(upstream, honest, liar):
    with FaultProxy(upstream, liar=liar) as proxy:
        status, _, content = ask(proxy.url, ASKED)
        assert status == 200
        found, truth = choices(content)[0], honest[0]
        told, true = found["logprobs"], truth["logprobs"]
        if liar in {"no_logprobs", "text_only"}:
            assert told is None
        if liar in {"no_echo", "text_only"}:
            assert found["text"] == truth["text"].removeprefix("my pin")
        if liar == "shifted":
            assert numbers(found) == [None, *numbers(truth)[:-1]]
        if liar == "generated_only":
            assert numbers(found) == [None] * 6 + numbers(truth)[6:]
            assert told["top_logprobs"] == [None] * 6 + true["top_logprobs"][6:]
        if liar == "no_tops":
            assert (told["top_logprobs"], numbers(found)) == (None, numbers(truth))
        if liar == "few_tops":
            assert {len(top) for top in told["top_logprobs"]} == {2}
        if liar in {"rounded", "bits", "halved", "offset"}:
            scale = {"bits": math.log(2), "halved": 2}.get(liar, 1)
            undone = [one * scale + (0.3 if liar == "offset" else 0) for one in numbers(found)]
            assert undone == pytest.approx(numbers(truth), abs=0.006 if liar == "rounded" else 1e-9)
            assert numbers(found) != numbers(truth)
        if liar == "writes_at_least_one":
            [one] = choices(ask(proxy.url, {**ASKED, "prompt": "my", "max_tokens": 0})[2])
            assert len(one["text"]) == 3


@pytest.mark.parametrize(
    ("refuser", "refused", "accepted"),
    [
        ("refuses_zero_tokens", {"max_tokens": 0}, {}),
        ("refuses_token_ids", {"prompt": [1, 2]}, {}),
        ("refuses_lists", {}, {"prompt": "my"}),
        ("refuses_logprobs", {}, {"logprobs": None}),
    ],
)
def test_refusers_refuse_one_thing(upstream, refuser, refused, accepted):
    assert refuser in REFUSERS
    with FaultProxy(upstream, liar=refuser) as proxy:
        assert ask(proxy.url, {**ASKED, **refused})[0] in {400, 500}
        assert ask(proxy.url, {**ASKED, **accepted})[0] == 200


def test_when_faults_strike(upstream):
    script = [Fault("status_500", every=3), Fault("status_503", at=(4,)), Fault("empty_body", times=2)]
    with FaultProxy(upstream, script) as proxy:
        found = []
        for _ in range(8):
            status, _, content = ask(proxy.url, {"prompt": "my", "max_tokens": 0})
            found.append(status if content else "empty")
        assert found == ["empty", "empty", 500, 503, 200, 500, 200, 200]
        assert proxy.requests == {"status_500": 2, "status_503": 1, "empty_body": 2, "passed": 3}


def test_chance_is_seeded_whatever_the_order(upstream):
    def struck(seed):
        with (
            FaultProxy(upstream, [Fault("status_500", rate=0.4)], seed=seed) as proxy,
            concurrent.futures.ThreadPoolExecutor(4) as pool,
        ):
            list(pool.map(lambda _: ask(proxy.url, {"prompt": "my", "max_tokens": 0}), range(40)))
            return dict(proxy.requests)

    assert struck(1) == struck(1)
    assert 4 < struck(1)["status_500"] < 28


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_answers_are_sent_as_they_are(upstream, kind):
    body = json.dumps(ASKED).encode()
    head = (
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n"
        b"Content-Type: application/json\r\n\r\n"
    )
    with FaultProxy(upstream, [kind]) as proxy:
        parts = urlsplit(proxy.url)
        with socket.create_connection((parts.hostname, parts.port), timeout=10) as line:
            line.sendall(head % len(body) + body)
            line.shutdown(socket.SHUT_WR)
            came = b""
            while len(came) < 200_000 and (some := line.recv(65536)):
                came += some
        assert len(came) > 200_000 or "length" in kind or kind == "other_protocol"
        assert not usable(came.partition(b"\r\n\r\n")[2]) or "length" in kind
        assert proxy.requests[kind] == 1


@pytest.mark.parametrize("kind", BROKEN_BYTES)
def test_answers_that_are_hardly_json_are_whole_and_of_no_use(upstream, kind):
    with FaultProxy(upstream, [kind]) as proxy:
        status, _, content = ask(proxy.url, ASKED)
        assert status == 200
        assert kind == "huge_count" or not usable_by_msgspec(content)
        assert kind != "huge_count" or json.loads(content)["usage"]["total_tokens"] == 10**300


def usable_by_msgspec(content):
    try:
        return usable(json.dumps(msgspec.json.decode(content)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def test_a_bomb_inflates_to_gigabytes():
    for form, bits in (("gzip", 31), ("deflate", 15)):
        inflater, parts = zlib.decompressobj(bits), bomb(form)
        sent = inflated = 0
        for part in itertools.islice(parts, 64):
            sent += len(part)
            inflated += len(inflater.decompress(part))
        assert inflated > 500 * sent
        assert inflated * (GIGABYTES // BLOCK) // 63 > GIGABYTES


@pytest.mark.parametrize(
    ("switch", "by_the_other"),
    [
        ({"first": 3}, [3, 4, 5, 6, 7, 8]),
        ({"first": 3, "last": 4}, [3, 4]),
        ({"every": 2}, [1, 3, 5, 7]),
    ],
)
def test_switches_of_models(upstream, switch, by_the_other):
    with serve(ScriptedModel("my pincat", memory={"cat": 0.9}), port=0) as other:
        asked = {**ASKED, "prompt": "cat"}
        mine, theirs = (choices(ask(url, asked)[2]) for url in (upstream, other.url))
        assert mine != theirs
        with FaultProxy(upstream, switch=Switch(other.url, **switch)) as proxy:
            found = [choices(ask(proxy.url, asked)[2]) for _ in range(8)]
        assert [number for number, one in enumerate(found, 1) if one == theirs] == by_the_other
        assert all(one in (mine, theirs) for one in found)


def test_a_lie_can_begin_later(upstream, honest):
    with FaultProxy(upstream, liar="halved", liar_from=2) as proxy:
        assert choices(ask(proxy.url, ASKED)[2]) == honest
        assert choices(ask(proxy.url, ASKED)[2]) != honest


@pytest.mark.parametrize("kind", REDIRECTS)
def test_redirects_lead_elsewhere(upstream, kind):
    with FaultProxy(upstream, [kind], elsewhere="http://127.0.0.1:1") as proxy:
        status, headers, _ = ask(proxy.url, ASKED)
        assert status == int(kind[-3:])
        assert "1/v1" in headers["Location"] or headers["Location"] == "/v1/elsewhere"


def test_unknown_kinds_are_told():
    with pytest.raises(ValueError, match="no fault of kind"):
        Fault("magic")
    with pytest.raises(ValueError, match="no liar"):
        FaultProxy("http://127.0.0.1:1/v1", liar="magic")
    assert Fault.parse("nan:rate=0.5,times=3") == Fault("nan", rate=0.5, times=3)


def test_alone_as_a_program(upstream):
    command = [sys.executable, "-m", "endpoints.fault_proxy", upstream, "--fault", "status_503:every=2"]
    tests = Path(__file__).parent.parent
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tests) as process:
        url = process.stdout.readline().strip()
        assert [ask(url, {"prompt": "my", "max_tokens": 0})[0] for _ in range(2)] == [200, 503]
        process.terminate()
