"""The server as clients see it: a real process or thread, real sockets, and the local model as the oracle."""

import concurrent.futures
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

import numpy as np
import pytest

from coalmine import ScriptedModel, serve
from coalmine.errors import InputError, MissingExtraError
from coalmine.serving import connections
from models.random_networks import CHARACTERS
from serving.serving_client import ECHO, TEXTS, Client, assert_close, nats
from waiting import PATIENCE_SECONDS, wait_until


def start(directory, *options, environment=None):
    process = subprocess.Popen(
        [sys.executable, "-m", "coalmine", "serve", str(directory), "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
    )
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return process, line


@pytest.fixture(scope="module")
def process_url(directory):
    """A server as users start it."""
    process, line = start(directory, "--set", "precision=float64", "--json")
    yield json.loads(line)["url"]
    process.send_signal(signal.SIGTERM)
    _, logged = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    assert "POST /v1/completions 200" in logged
    assert not any(text in logged for text in TEXTS)
    assert "Traceback" not in logged


def test_the_process_scores_prompts_as_the_local_model_does(process_url, local):
    with Client(process_url) as client:
        found = client.choices(TEXTS, **ECHO)
        assert client.ask("/models")[1]["data"][0]["id"] == "lstm"
    assert [choice["index"] for choice in found] == [0, 1, 2, 3]
    for text, choice, expected in zip(
        TEXTS, found, nats(local, map(local.tokenizer.encode, TEXTS)), strict=True
    ):
        told = choice["logprobs"]
        assert choice["text"] == "".join(told["tokens"]) == text
        assert choice["finish_reason"] == "length"
        assert told["text_offset"] == list(range(len(text)))
        assert told["top_logprobs"] is None
        assert_close(told["token_logprobs"], expected)


def test_clients_at_the_same_time_get_their_own_answers(process_url, local):
    texts = [f"client {number} says {number * 7919}" for number in range(48)]

    def ask(some):
        with Client(process_url) as client:
            return [client.choices(text, **ECHO)[0] for text in some]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = [choice for part in pool.map(ask, [texts[i::8] for i in range(8)]) for choice in part]
    in_order = [text for i in range(8) for text in texts[i::8]]
    assert [choice["text"] for choice in answers] == in_order
    for choice, expected in zip(answers, nats(local, map(local.tokenizer.encode, in_order)), strict=True):
        assert_close(choice["logprobs"]["token_logprobs"], expected)


def test_requests_that_wait_together_are_scored_together():
    model = ScriptedModel(CHARACTERS)
    sizes, go = [], threading.Event()
    plain = model.score

    def slow_score(sequences, *, ranks=False):
        sizes.append(len(sequences))
        go.wait(PATIENCE_SECONDS)
        return plain(sequences, ranks=ranks)

    model.score = slow_score
    with serve(model, port=0, batch=4) as server, concurrent.futures.ThreadPoolExecutor(9) as pool:

        def ask(text):
            with Client(server.url) as client:
                return client.choices(text, **ECHO)[0]["text"]

        first = pool.submit(ask, "0")
        wait_until(lambda: sizes)
        others = [pool.submit(ask, str(number)) for number in range(1, 9)]
        wait_until(lambda: server._batcher._waiting.qsize() == 8)
        go.set()
        assert [first.result(), *(one.result() for one in others)] == list("012345678")
    assert sizes == [1, 4, 4]


DEEP = b'{"prompt":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("request_", "status", "says"),
    [
        (b"{", 400, "not valid JSON"),
        (b"", 400, "not valid JSON"),
        (b'{"prompt": "\xff"}', 400, "not valid JSON"),
        (b'{"prompt": "\\ud800"}', 400, "not valid JSON"),
        (b"[1]", 400, "wrong field"),
        (DEEP, 400, "JSON"),
        ({}, 400, "prompt"),
        ({"prompt": 5}, 400, "prompt"),
        ({"prompt": None}, 400, "prompt"),
        ({"prompt": []}, 400, "empty list"),
        ({"prompt": ["a", 1]}, 400, "mixture"),
        ({"prompt": [1, True]}, 400, "mixture"),
        ({"prompt": [[1], 1]}, 400, "mixture"),
        ({"prompt": [1.5]}, 400, "mixture"),
        ({"prompt": [0, 38]}, 400, "0 to 37"),
        ({"prompt": [-1]}, 400, "0 to 37"),
        ({"prompt": [10**30]}, 400, "0 to 37"),
        ({"prompt": "É"}, 400, "no token for character 1 of 1 of a text"),
        ({"prompt": ["a"] * 3000}, 400, "choices"),
        ({"prompt": ["a"] * 100, "n": 100}, 400, "choices"),
        ({"prompt": "a", "model": "gpt-4"}, 404, "no model of that name"),
        ({"prompt": "a", "max_tokens": -1}, 400, "max_tokens"),
        ({"prompt": "a", "max_tokens": "3"}, 400, "max_tokens"),
        ({"prompt": "a", "max_tokens": 10**9}, 400, "max_tokens"),
        ({"prompt": "a", "temperature": -0.1}, 400, "temperature"),
        ({"prompt": "a", "top_p": 0}, 400, "top_p"),
        ({"prompt": "a", "n": 0}, 400, "$.n"),
        ({"prompt": "a", "logprobs": 21}, 400, "logprobs"),
        ({"prompt": "a", "logprobs": True}, 400, "logprobs"),
        ({"prompt": "a", "stop": ""}, 400, "stop"),
        ({"prompt": "a", "stop": ["a", 1]}, 400, "stop"),
        ({"prompt": "a", "stop": list("abcde")}, 400, "stop"),
        ({"prompt": "a", "stream": True}, 400, "does not stream"),
        ({"prompt": "a", "best_of": 2}, 400, "best_of"),
        ({"prompt": "a", "logit_bias": {"5": 1}}, 400, "logit_bias"),
        ({"prompt": "a", "presence_penalty": 1}, 400, "presence_penalty"),
        ({"prompt": "a", "temprature": 0}, 400, "temprature"),
    ],
)
def test_wrong_requests_are_refused_in_a_sentence(client, request_, status, says):
    found, document = client.ask("/completions", request_)
    assert found == status
    assert set(document) == {"error"}
    assert set(document["error"]) == {"message", "type", "code"}
    assert says in document["error"]["message"]
    assert "Traceback" not in str(document)
    assert client.choices("a", max_tokens=0)  # on the same connection


def test_what_changes_nothing_is_accepted(client):
    neutral = {"stream": False, "best_of": 1, "logit_bias": {}, "presence_penalty": 0, "suffix": None}
    plain = client.choices("a", max_tokens=3)
    assert plain == client.choices("a", max_tokens=3, model="lstm", user="me", stop=None, **neutral)


def test_other_paths_and_methods(client):
    asked = {"messages": [{"role": "user", "content": "a"}]}
    status, document = client.ask("/chat/completions", asked)
    assert status == 404
    assert "does not chat" in document["error"]["message"]
    assert client.ask("/nothing")[0] == 404
    assert client.ask("/health") == (200, {"status": "ok"})
    assert client.ask("/tokenize", {"prompt": "ab"})[1]["ids"] == [11, 12]
    client.connection.request("DELETE", "/v1/models")
    answer = client.connection.getresponse()
    assert answer.status == 501
    assert "error" in json.loads(answer.read())


def test_a_client_that_asks_first_may_send_its_body(url):
    parts, body = urlsplit(url), b'{"prompt": "ab"}'
    head = (
        b"POST /v1/tokenize HTTP/1.1\r\nHost: localhost:%d\r\nExpect: 100-continue\r\nContent-Length: %d\r\n"
        b"Content-Type: application/json\r\n\r\n"
    )
    with socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_SECONDS) as line:
        line.sendall(head % (parts.port, len(body)))
        assert line.recv(100).startswith(b"HTTP/1.1 100 ")
        line.sendall(body)
        answer = b""
        while not answer.endswith(b"}") and (some := line.recv(10_000)):
            answer += some
        assert b'"ids":[11,12]' in answer


def test_a_body_that_is_too_large_is_refused_and_not_kept(url):
    with Client(url) as client:
        status, document = client.ask("/completions", b" " * 10_000_001)
    assert status == 413
    assert "10,000,000 bytes" in document["error"]["message"]


def test_a_client_that_goes_away_harms_nobody(url):
    parts = urlsplit(url)
    for part in (
        b"POST /v1/comp",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost:%d\r\nContent-Length: 50\r\n"
        b"Content-Type: application/json\r\n\r\n{" % parts.port,
    ):
        with socket.create_connection((parts.hostname, parts.port)) as line:
            line.sendall(part)
    with Client(url) as client:
        assert client.choices("a", max_tokens=0)


def test_the_work_for_a_client_that_went_away_stops(monkeypatch):
    monkeypatch.setattr(connections, "LEFT_SECONDS", 0.1)
    model = ScriptedModel(CHARACTERS)
    plain_step, plain_score, begun = model.step, model.score, threading.Event()
    steps, scored = [], []

    def slow_step(*arguments):
        steps.append(begun.set())
        time.sleep(0.01)
        return plain_step(*arguments)

    def score(sequences, *, ranks=False):
        scored.extend(model.tokenizer.decode(sequence.target) for sequence in sequences)
        return plain_score(sequences, ranks=ranks)

    model.step, model.score = slow_step, score
    with serve(model, port=0, batch=1) as server:

        def send(**fields):
            client = Client(server.url)
            body = json.dumps({"max_tokens": 0, **fields}).encode()
            head = {"Content-Type": "application/json"}
            client.connection.request("POST", "/v1/completions", body, head)
            return client.connection

        computing = send(prompt="a", max_tokens=4096, temperature=0)
        assert begun.wait(PATIENCE_SECONDS)
        waiting = send(prompt="waiting", echo=True, logprobs=0)
        wait_until(lambda: server._batcher._waiting.qsize() == 1)
        for one in (waiting, computing):
            one.close()
        with Client(server.url) as client:
            assert client.choices("b", **ECHO)
    assert len(steps) < 2000
    assert scored == ["b"]


def test_connections_are_kept_and_answers_come_at_once(local):
    with serve(local, port=0) as server, Client(server.url) as client:
        client.choices("a", **ECHO)
        line = client.connection.sock
        for _ in range(30):
            client.choices("a", **ECHO)
        assert client.connection.sock is line
        [kept] = server.server_state.connections
        # Were the body of an answer to wait for the acknowledgment of its head, each answer would take 40 ms.
        there = kept.transport.get_extra_info("socket")
        assert there.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_failure_inside_is_reported_without_details_and_without_a_number():
    model = ScriptedModel(CHARACTERS)
    plain, lines = model.score, []

    def score(sequences, *, ranks=False):
        texts = [model.tokenizer.decode(sequence.target) for sequence in sequences]
        if "boom" in texts:
            raise RuntimeError("the secret is 4921")
        answers = plain(sequences, ranks=ranks)
        for text, answer in zip(texts, answers, strict=True):
            if text == "nan":
                answer.log2_probabilities[1] = np.nan
        return answers

    model.score = score
    with serve(model, port=0, log=lines.append) as server, Client(server.url) as client:
        status, document = client.ask("/completions", {"prompt": "boom", **ECHO})
        assert (status, document["error"]["type"]) == (500, "server_error")
        assert "4921" not in str(document) + str(lines)
        assert any("RuntimeError" in line for line in lines)
        status, document = client.ask("/completions", {"prompt": "nan", **ECHO})
        assert status == 500
        assert "not a finite number" in document["error"]["message"]
        # Those that waited together with one that fails are answered.
        with concurrent.futures.ThreadPoolExecutor(6) as pool:

            def ask(text):
                with Client(server.url) as one:
                    return one.ask("/completions", {"prompt": text, **ECHO})[0]

            assert list(pool.map(ask, ["a", "boom", "b", "nan", "c", "d"])) == [200, 500, 200, 500, 200, 200]


def test_addresses_that_others_can_reach_need_a_key(local):
    with pytest.raises(InputError, match="a key is needed"):
        serve(local, host="0.0.0.0", port=0)
    with pytest.raises(InputError, match="key is empty"):
        serve(local, port=0, key=" ")
    with pytest.raises(InputError, match="batch"):
        serve(local, port=0, batch=0)
    with serve(local, host="0.0.0.0", port=0, key="höchst geheim") as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        sent = "höchst geheim".encode().decode("latin-1")
        for key, status in [(None, 401), ("", 401), ("wrong", 401), ("höchst", 401), (sent, 200)]:
            with Client(url, key) as client:
                assert client.ask("/models")[0] == status
                assert client.ask("/completions", {"prompt": "a"})[0] == status
                assert client.ask("/health")[0] == 200
        with Client(url) as client:
            assert client.ask("/models", Authorization=f"Basic {sent}")[0] == 401


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_without_the_web_server_it_says_what_to_install(local, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package}, which is not installed.*coalmine\[serving\]"):
        serve(local, port=0)


def test_a_port_that_is_taken_is_an_error(local, url):
    with pytest.raises(InputError, match="cannot listen"):
        serve(local, port=urlsplit(url).port)


def test_closing_answers_what_came_and_frees_the_port(local, monkeypatch):
    monkeypatch.setattr(connections, "PATIENCE_SECONDS", PATIENCE_SECONDS)
    model = ScriptedModel(CHARACTERS)
    plain, began, go = model.score, threading.Event(), threading.Event()

    def slow_score(sequences, *, ranks=False):
        began.set()
        go.wait(PATIENCE_SECONDS)
        return plain(sequences, ranks=ranks)

    model.score = slow_score
    before = set(threading.enumerate())
    server = serve(model, port=0)
    with (
        Client(server.url) as idle,
        Client(server.url) as busy,
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        idle.ask("/health")
        waiting = pool.submit(busy.choices, "abc", **ECHO)
        began.wait(PATIENCE_SECONDS)
        closing = pool.submit(server.close)
        assert idle.connection.sock.recv(1) == b""  # closing has come to the connections
        assert not waiting.done()
        go.set()
        closing.result()
        assert waiting.result()[0]["text"] == "abc"
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            idle.ask("/health")
    server.close()
    serve(local, port=urlsplit(server.url).port).close()
    assert set(threading.enumerate()) <= before


def test_closing_tells_those_who_still_wait(monkeypatch, caplog):
    monkeypatch.setattr(connections, "PATIENCE_SECONDS", 0.5)
    model = ScriptedModel(CHARACTERS)
    plain, began, go = model.score, threading.Event(), threading.Event()

    def slow_score(sequences, *, ranks=False):
        began.set()
        go.wait(PATIENCE_SECONDS)
        return plain(sequences, ranks=ranks)

    model.score = slow_score
    lines = []
    server = serve(model, port=0, batch=1, log=lines.append)
    parts = urlsplit(server.url)
    unfinished = (
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost:%d\r\nContent-Length: 50\r\n"
        b"Content-Type: application/json\r\n\r\n{" % parts.port
    )
    with (
        Client(server.url) as first,
        Client(server.url) as second,
        socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_SECONDS) as third,
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        third.sendall(unfinished)
        computing = pool.submit(first.ask, "/completions", {"prompt": "abc", **ECHO})
        began.wait(PATIENCE_SECONDS)
        queued = pool.submit(second.ask, "/completions", {"prompt": "abd", **ECHO})
        wait_until(lambda: server._batcher._waiting.qsize() == 1 and len(server.server_state.tasks) == 3)
        server.close()
        for one in (computing, queued):
            status, document = one.result()
            assert status == 503
            assert set(document["error"]) == {"message", "type", "code"}
            assert "the server is stopping" in document["error"]["message"]
        head, _, body = b"".join(iter(lambda: third.recv(65536), b"")).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert "the server is stopping" in json.loads(body)["error"]["message"]
        go.set()
    assert [re.sub(r" in \d+ ms", "", line) for line in lines] == ["POST /v1/completions 503"] * 3
    assert not caplog.records  # which would be written to standard error


def test_closing_does_not_wait_for_a_client_that_reads_nothing(monkeypatch, caplog):
    monkeypatch.setattr(connections, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(connections, "FAREWELL_SECONDS", 0.2)
    server = serve(ScriptedModel(CHARACTERS), port=0)
    parts = urlsplit(server.url)
    head = (
        b"POST /v1/tokenize HTTP/1.1\r\nHost: localhost:%d\r\nContent-Length: %d\r\n"
        b"Content-Type: application/json\r\n\r\n"
    )
    body = json.dumps({"prompt": "a" * 2_000_000}).encode()
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect((parts.hostname, parts.port))
        line.sendall(head % (parts.port, len(body)) + body)
        wait_until(lambda: any(one.flow.write_paused for one in server.server_state.connections))
        server.close()
    assert not caplog.records  # which would be written to standard error


def test_the_process_ends_when_asked_and_keeps_its_key_to_itself(directory):
    environment = {"SERVE_KEY": "k-12345678"}
    process, line = start(directory, "--key-variable", "SERVE_KEY", "--name", "mine", environment=environment)
    url = re.search(r"http://\S+/v1", line)[0]
    assert line.startswith("Serving 'mine' at http://127.0.0.1:")
    with Client(url) as client:
        assert client.ask("/models")[0] == 401
    with Client(url, "k-12345678") as client:
        assert client.ask("/models")[1]["data"][0]["id"] == "mine"
    process.send_signal(signal.SIGINT)
    rest, logged = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    assert rest == ""
    assert "k-12345678" not in line + logged
    assert "Traceback" not in logged


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--host", "0.0.0.0"], "a key is needed"),
        (["--key-variable", "NOT_SET_ANYWHERE"], "empty or not set"),
        (["--port", "70000"], "--port"),
    ],
)
def test_wrong_options_are_one_sentence(directory, options, says):
    command = [sys.executable, "-m", "coalmine", "serve", str(directory), *options]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    assert process.returncode == 2
    assert says in process.stderr
    assert "Traceback" not in process.stderr
