"""Requests as bytes on a plain socket: anything but one unambiguous request to this server is refused and computes nothing."""

import concurrent.futures
import json
import socket
from urllib.parse import urlsplit

import pytest

from coalmine import ScriptedModel, serve
from coalmine.serving import connections
from models.random_networks import CHARACTERS
from serving.serving_client import Client
from waiting import PATIENCE_SECONDS, wait_until

BODY = b'{"prompt": "my pin", "max_tokens": 2}'
JSON = b"Content-Type: application/json\r\n"


@pytest.fixture(scope="module")
def scripted():
    return ScriptedModel(CHARACTERS, memory={"my pin is 4921": 0.5})


@pytest.fixture(scope="module")
def url(scripted):
    with serve(scripted, port=0, name="m") as started:
        yield started.url


def talk(url, raw, *, keep=False):
    """The answer to bytes on a plain socket."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_SECONDS) as line:
        line.sendall(raw)
        if not keep:
            line.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: line.recv(65536), b""))


def read(answer):
    """The status and the document of the one answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(body)


def asking(url, *, host=None, more=b"", kind=JSON, body=BODY, method=b"POST /v1/completions"):
    host = b"Host: localhost:%d\r\n" % urlsplit(url).port if host is None else host
    return (
        method
        + b" HTTP/1.1\r\n"
        + host
        + more
        + kind
        + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        + body
    )


def check(url, scripted, raw, status, says=""):
    """A refused request computed nothing, and the server still answers."""
    before = scripted.calls
    found, document = read(talk(url, raw))
    assert found == status, document
    if status == 200:
        assert "error" not in document
        assert (scripted.calls > before) == (b" /v1/completions" in raw)
        return
    assert says in document["error"]["message"]
    assert scripted.calls == before
    with Client(url) as client:
        assert client.ask("/health") == (200, {"status": "ok"})


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:{port}", 200),
        ("LOCALHOST:{port}", 200),
        ("127.0.0.1:{port}", 200),
        ("", 400),
        ("localhost", 403),
        ("localhost:1", 403),
        ("localhost.:{port}", 403),
        ("localhost:0{port}", 403),
        ("localhost:{port}.", 403),
        ("localhost:{port}/", 403),
        ("localhost:{port}, evil.example", 403),
        ("localhost:{port} evil.example", 403),
        ("evil@localhost:{port}", 403),
        ("localhost:{port}@evil.example", 403),
        ("localhost:{port}#evil.example", 403),
        ("[::1]:{port}", 403),
        ("[127.0.0.1]:{port}", 403),
        ("127.1:{port}", 403),
        ("127.0.0.2:{port}", 403),
        ("0.0.0.0:{port}", 403),
        ("2130706433:{port}", 403),
        ("evil.example:{port}", 403),
        ("127.0.0.1.evil.example:{port}", 403),
        ("http://localhost:{port}", 403),
        ("locaLho\u017ft:{port}", 403),
    ],
)
def test_one_exact_host(url, scripted, host, status):
    named = host.format(port=urlsplit(url).port).encode()
    check(url, scripted, asking(url, host=b"Host: " + named + b"\r\n"), status)
    raw = asking(url, host=b"Host: " + named + b"\r\n", method=b"GET /v1/models", body=b"")
    check(url, scripted, raw, status)


def test_an_address_of_ipv6_has_brackets(scripted):
    try:
        started = serve(scripted, host="::1", port=0)
    except Exception:  # noqa: BLE001 - a machine without IPv6
        pytest.skip("this machine has no IPv6")
    with started:
        port = urlsplit(started.url).port
        for host, status in ((b"[::1]:%d", 200), (b"::1:%d", 403), (b"[::1%%lo]:%d", 403), (b"[::]:%d", 403)):
            check(started.url, scripted, asking(started.url, host=b"Host: " + host % port + b"\r\n"), status)


@pytest.mark.parametrize(
    ("head", "status", "says"),
    [
        (b"Host: localhost:{port}\r\nHost: localhost:{port}\r\n", 400, "came 2 times"),
        (b"Host: evil.example\r\nHost: localhost:{port}\r\n", 400, "came 2 times"),
        (b"Host: localhost:{port}\r\nhOST: evil.example\r\n", 400, "came 2 times"),
        (b"X: y\r\n", 400, "Host"),
        (b"Host: localhost:{port}\r\n folded\r\n", 400, "one line"),
        (b"X: y\r\n Host: localhost:{port}\r\n", 400, "one line"),
        (b"Host : localhost:{port}\r\n", 400, "one line"),
        (b"X: y\rHost: localhost:{port}\r\n", 400, "one line"),
        (b"X: y\nHost: localhost:{port}\r\n", 400, "one line"),
        (b"X: \x00\r\nHost: localhost:{port}\r\n", 400, "one line"),
        (b"Host: localhost:{port}\r\nX:" + b" " * 60_000 + b"\x00\r\n", 400, "one line"),  # at once
        (b"Host: localhost:{port}\r\nX:" + b" \t" * 30_000 + b"y\r\n", 200, ""),
        (b"Host: localhost:{port}\r\nno colon\r\n", 400, "one line"),
        (b"Host: localhost:{port}\r\n: empty\r\n", 400, "one line"),
        (b"Host: localhost:{port}\r\nTransfer-Encoding: chunked\r\n", 411, "Content-Length"),
        (b"Host: localhost:{port}\r\nTransfer-Encoding: identity\r\n", 411, "Content-Length"),
        (b"Host: localhost:{port}\r\nContent-Length: 3\r\n", 400, "one whole number"),
        (b"Host: localhost:{port}\r\nContent-Type: application/json\r\n", 400, "came 2 times"),
        (b"Host: localhost:{port}\r\n" + b"X: y\r\n" * 100, 431, "100 headers"),
        (b"Host: localhost:{port}\r\nX: " + b"y" * 70_000 + b"\r\n", 431, "65,536 bytes"),
        (b"Host: localhost:{port}\r\n" + b"X: y\r\n" * 50 + b"X: " + b"y" * 65_300 + b"\r\n", 431, "65,536"),
    ],
)
def test_heads_that_two_programs_could_read_differently(url, scripted, head, status, says):
    port = b"%d" % urlsplit(url).port
    check(url, scripted, asking(url, host=head.replace(b"{port}", port)), status, says)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET /v1/models HTTP/1.1\r\n", 200),
        (b"GET /v1/models HTTP/1.0\r\n", 200),
        (b"GET /v1/models\r\n", 400),
        (b"GET /v1/models HTTP/1.1\n", 400),
        (b"GET  /v1/models HTTP/1.1\r\n", 400),
        (b"GET /v1/models HTTP/2.0\r\n", 400),
        (b"GET /v1/models HTTP/9.9\r\n", 400),
        (b"get /v1/models HTTP/1.1\r\n", 400),
        (b"GET http://localhost/v1/models HTTP/1.1\r\n", 400),
        (b"GET http://evil.example/v1/models HTTP/1.1\r\n", 400),
        (b"GET /v1/m\xf6dels HTTP/1.1\r\n", 400),
        (b"GET /\x00 HTTP/1.1\r\n", 400),
        (b"GET //evil.example/v1/models HTTP/1.1\r\n", 404),
        (b"CONNECT evil.example:443 HTTP/1.1\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\n", 405),
        (b"OPTIONS /v1/completions HTTP/1.1\r\n", 405),
        (b"DELETE /v1/models HTTP/1.1\r\n", 501),
        (b"HEAD /v1/models HTTP/1.1\r\n", 501),
        (b"GET /" + b"x" * 66_000 + b" HTTP/1.1\r\n", 414),
        (b"nonsense\r\n", 400),
        (b"\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", 400),  # as a client that wants encryption
    ],
)
def test_first_lines(url, line, status):
    rest = b"Host: localhost:%d\r\nConnection: close\r\n\r\n" % urlsplit(url).port
    answer = talk(url, line + rest)
    found, document = read(answer)
    assert found == status
    assert ("error" in document) == (status != 200)
    assert b"access-control" not in answer.lower()


@pytest.mark.parametrize(
    "path",
    [
        b"/v1/completions/",
        b"/v1/completions%2f",
        b"/v1/%63ompletions",
        b"/v1/completions%0a",
        b"/v1//completions",
        b"/v1/models/",
        b"/v1/models%2f",
        b"/v1/%6dodels",
        b"/health/",
        b"/%68ealth",
        b"/v1/chat/completions/",
    ],
)
def test_a_path_that_is_written_in_another_way_is_another_path(url, scripted, path):
    check(url, scripted, asking(url, method=b"POST " + path), 404, "there is nothing here")
    check(url, scripted, asking(url, method=b"GET " + path, body=b""), 404, "there is nothing here")


def test_a_host_that_is_no_name_is_not_repeated(scripted):
    with serve(scripted, host="0.0.0.0", port=0, key="k-12345678") as started:
        url = started.url.replace("0.0.0.0", "127.0.0.1")
        key = b"Authorization: Bearer k-12345678\r\n"
        for host in (b"evil.example", b"evil.example/v1", b"["):
            for path, says in ((b"/v1/models/", "nothing here"), (b"/v1/chat/completions", "does not chat")):
                raw = asking(url, host=b"Host: " + host + b"\r\n", more=key, method=b"POST " + path)
                check(url, scripted, raw, 404, says)
                assert b"evil" not in talk(url, raw)
        check(url, scripted, asking(url, method=b"GET /%68ealth", body=b""), 401)


@pytest.mark.parametrize(
    "part",
    [
        b"G",
        b"POST /v1/comp",
        b"GET /health HTTP/1.1\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n",
        b"\r",
        b"\r\r\r\r",
        b"\r\n",
        b"\n",
    ],
)
def test_a_head_that_ends_too_early(url, scripted, part):
    check(url, scripted, part, 400, "before its head was complete")
    whole = asking(url, method=b"GET /health", body=b"").replace(b"Connection: close\r\n", b"")
    answers = talk(url, whole + whole + part).split(b"HTTP/1.1 ")
    assert [answer[:4] for answer in answers[1:]] == [b"200 ", b"200 ", b"400 "]
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_SECONDS) as line:
        line.sendall(whole)
        answer = b""
        while not answer.endswith(b"}") and (some := line.recv(65536)):
            answer += some
        line.sendall(part)
        line.shutdown(socket.SHUT_WR)
        assert read(b"".join(iter(lambda: line.recv(65536), b"")))[0] == 400


def test_a_body_that_ends_too_early(url, scripted):
    check(url, scripted, asking(url)[:-1], 400, "shorter than the Content-Length")
    check(url, scripted, asking(url)[: -len(BODY)], 400, "shorter than the Content-Length")


def test_nothing_is_read_after_the_last_request(url, scripted):
    check(url, scripted, asking(url) + b"\r\n", 200)
    before = scripted.calls
    assert talk(url, asking(url, method=b"GET /health", body=b"") + asking(url)).count(b"HTTP/1.1 ") == 1
    assert scripted.calls == before


def test_a_client_that_sends_nothing_gets_nothing(url):
    assert talk(url, b"") == b""


@pytest.mark.parametrize(
    "length", [b"-1", b"+37", b"0x25", b"37, 37", b"3 7", b"", b"9" * 16, b"\xb3", b"1e1"]
)
def test_lengths_that_are_not_a_number(url, scripted, length):
    raw = asking(url).replace(b"Content-Length: 37", b"Content-Length: " + length)
    assert raw != asking(url)
    check(url, scripted, raw, 400, "one whole number")


@pytest.mark.parametrize(
    "header",
    [
        "Origin: null",
        "Origin: http://evil.example",
        "Origin: http://localhost",
        "Origin: http://localhost:1",
        "Origin: https://localhost:{port}",
        "Origin: http://127.0.0.1:{port}",
        "Origin: http://localhost:{port}.evil.example",
        "Origin: ",
        "Origin: file://",
        "Origin: http://localhost:{port}, http://evil.example",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
        "Sec-Fetch-Site: x",
    ],
)
def test_what_a_page_of_another_site_sends(url, scripted, header):
    more = header.format(port=urlsplit(url).port).encode() + b"\r\n"
    check(url, scripted, asking(url, more=more), 403, "a page of another site")
    raw = asking(url, more=more, method=b"OPTIONS /v1/completions", body=b"")
    check(url, scripted, raw, 403)
    assert b"access-control" not in talk(url, raw).lower()
    for look in (b"GET /v1/models", b"GET /health"):
        check(url, scripted, asking(url, more=more, method=look, body=b""), 403)


def test_its_own_origin_is_allowed(url, scripted):
    port = urlsplit(url).port
    for more in (
        b"Origin: http://localhost:%d\r\n" % port,
        b"Sec-Fetch-Site: same-origin\r\n",
        b"Sec-Fetch-Site: none\r\n",
    ):
        check(url, scripted, asking(url, more=more), 200)


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "Content-Type: text/plain\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n",
        "Content-Type: multipart/form-data; boundary=x\r\n",
        "Content-Type: text/plain; application/json\r\n",
        "Content-Type: application/jsonp\r\n",
        "Content-Type: application/json, text/plain\r\n",
        "Content-Type: \r\n",
    ],
)
def test_bodies_that_any_page_may_send(url, scripted, kind):
    check(url, scripted, asking(url, kind=kind.encode()), 415, "with curl: --json in place of -d")
    check(url, scripted, asking(url, kind=kind.encode(), method=b"POST /v1/tokenize"), 415)


def test_other_ways_to_write_json(url, scripted):
    for kind in (
        b"content-type:Application/JSON;charset=utf-8\r\n",
        b"Content-Type:  application/json \t\r\n",
    ):
        check(url, scripted, asking(url, kind=kind), 200)


def test_looking_computes_nothing(url, scripted):
    before = scripted.calls
    with Client(url) as client:
        for path in ("/models", "/health", "/completions", "/completions?prompt=a&max_tokens=2", "/tokenize"):
            assert client.ask(path)[0] == (200 if path in {"/models", "/health"} else 404)
    assert scripted.calls == before


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt": "\xff"}',
        b'{"prompt": "a\x00b"}',
        b'{"prompt": "\\u0000"}',
        b'{"prompt": ' + b"[" * 5_000_000,
        b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
        b'{"prompt": [' + b"[" * 200_000 + b"]" * 200_000 + b"]}",
        b'{"prompt": "a", "seed": ' + b"9" * 5000 + b"}",
        b'{"prompt": "a", "temperature": 1e999}',
        b'{"prompt": "a", "prompt": ["b", 1]}',
        b"",
        b"null",
        b"NaN",
    ],
)
def test_bodies_that_cannot_be_read(url, scripted, body):
    check(url, scripted, asking(url, body=body), 400)


def test_a_request_after_a_refused_one_is_not_read(url, scripted):
    """What follows an ambiguous head may be its body, made to look like another request."""
    smuggled = asking(url).replace(b"Connection: close\r\n", b"")
    for first in (
        asking(url, more=b"Transfer-Encoding: chunked\r\n", body=b"0\r\n\r\n"),
        asking(url, more=b"Content-Length: 0\r\n", body=b""),
        asking(url, host=b"Host: evil.example\r\n", body=b""),
    ):
        before = scripted.calls
        answer = talk(url, first.replace(b"Connection: close\r\n", b"") + smuggled)
        assert answer.count(b"HTTP/1.1 ") == 1
        assert scripted.calls == before


def test_the_refusal_of_a_large_body_arrives(url, scripted):
    check(url, scripted, asking(url, body=b" " * 10_000_001), 413, "10,000,000 bytes")
    check(url, scripted, asking(url, kind=b"Content-Type: text/plain\r\n", body=b" " * 9_000_000), 415)
    raw = asking(url).replace(b"Content-Length: 37", b"Content-Length: 999999999999999")
    check(url, scripted, raw, 413, "send several requests")


def test_clients_that_send_a_byte_now_and_then(url, monkeypatch):
    """They are refused, and do not keep others waiting meanwhile."""
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.6)
    monkeypatch.setattr(connections, "DISCARD_SECONDS", 0.2)
    parts = urlsplit(url)
    raw = asking(url)
    cut = raw.index(b"\r\n\r\n")

    def drip(start):
        with socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_SECONDS) as line:
            line.sendall(raw[:start])
            line.settimeout(0.05)

            def answer():
                """What the server said before it closed the connection, or None while it waits for more."""
                try:
                    line.sendall(b"X" if start < cut else b" ")
                    return (line.recv(65536),)
                except TimeoutError:
                    return None
                except OSError:
                    return (b"",)

            [came] = wait_until(answer)
            return came

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        dripping = [pool.submit(drip, start) for start in (5, cut - 20, cut + 4, cut + 10) for _ in range(2)]
        with Client(url) as client:
            assert client.choices("my pin", max_tokens=1)
        for one in dripping:
            came = one.result()
            assert not came or b" 408 " in came or b" 400 " in came


def test_more_connections_than_are_served_are_closed(scripted, monkeypatch):
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 4)
    with serve(scripted, port=0) as started:
        parts = urlsplit(started.url)
        lines = [
            socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_SECONDS) for _ in range(8)
        ]
        try:
            closed = 0
            for line in lines[4:]:
                try:
                    closed += line.recv(10) == b""
                except ConnectionError:
                    closed += 1
            assert closed == 4
        finally:
            for line in lines:
                line.close()
        wait_until(lambda: not started.server_state.connections)
        with Client(started.url) as client:
            assert client.ask("/health")[0] == 200


def test_where_others_can_reach_it_the_key_is_needed_and_pages_are_refused_too(scripted):
    with serve(scripted, host="0.0.0.0", port=0, key="k-12345678") as started:
        url = started.url.replace("0.0.0.0", "127.0.0.1")
        key = b"Authorization: Bearer k-12345678\r\n"
        any_host = b"Host: models.example\r\n"
        check(url, scripted, asking(url, host=any_host, more=key), 200)
        check(url, scripted, asking(url, host=any_host), 401)
        check(url, scripted, asking(url, host=any_host, more=key + b"Origin: https://evil.example\r\n"), 403)
        check(
            url, scripted, asking(url, host=any_host, more=key + b"Origin: https://models.example\r\n"), 200
        )
        check(url, scripted, asking(url, host=any_host * 2, more=key), 400)
        check(url, scripted, asking(url, host=any_host, more=key * 2), 400)
