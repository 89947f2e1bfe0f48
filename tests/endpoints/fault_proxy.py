"""A real HTTP proxy that breaks answers on purpose, lies in them, or switches models: what a client must survive, or notice.

    with FaultProxy(server.url, [Fault("drop_in_body", every=3)]) as proxy:
        ...  # ask proxy.url
        assert proxy.requests["drop_in_body"] == 4

Alone, from tests/: `python -m endpoints.fault_proxy http://127.0.0.1:8000/v1 --fault status_429:every=2 --liar shifted`.
"""

import argparse
import collections
import contextlib
import dataclasses
import email.utils
import http.client
import json
import random
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from endpoints.broken_shapes import BROKEN_BYTES, SHAPES
from endpoints.hostile_answers import HOSTILE, SLOW, UNUSUAL, redirect_target, send_hostile
from endpoints.lies import LIARS, REFUSERS, lie

# What the line does. Asking again is the cure.
WIRE_FAULTS = (
    "drop_before",  # the connection ends before any answer
    "drop_after",  # the same, and the server did the work
    "drop_in_body",  # it ends in the middle of the body
    "delay",  # the answer is right, and comes too late
    "status_429",  # with Retry-After in seconds
    "status_429_date",  # with Retry-After as a date
    "status_500",
    "status_503",
    "truncated_json",  # cut in the middle, with a Content-Length that is right for the part
    "garbage",  # random bytes
    "html_200",  # a page that says that something went wrong, with status 200
    "chunked_garbage",  # a chunk whose length is not a number
    "empty_body",
)
# Valid JSON with status 200 that does not answer the question. No number may be read from any of them.
SHAPE_FAULTS = (
    "no_choices",  # the field is missing
    "fewer_choices",  # one choice less than prompts
    "choices_not_a_list",
    "not_an_object",
    "logprobs_null",
    "short_logprobs",  # fewer numbers than tokens
    "null_in_the_middle",  # one number is null
    "nan",  # NaN, as some JSON writers have it
    "infinite",  # minus infinity
    "positive",  # log-probabilities above 0
    "numbers_as_text",
    "stale",  # the answer to an earlier request; the first request is passed on
)
FAULTS = WIRE_FAULTS + SHAPE_FAULTS
# Made to do harm; asking again is the cure here too.
HARMFUL = (*HOSTILE, *SLOW, *BROKEN_BYTES)
# To another origin, or to another path of this one. Nobody follows them.
REDIRECTS = ("redirect_301", "redirect_302", "redirect_303", "redirect_307", "redirect_308")
# Unusual, and right: the numbers must come out the same.
BENIGN = (
    "reordered_choices",  # the order of the list is reversed, the indexes are right
    "chunked",  # the body comes in chunks
    "unknown_fields",  # more fields than anyone asked for
    *UNUSUAL,
)
KINDS = (*FAULTS, *HARMFUL, *REDIRECTS, *BENIGN)
PAGE = b"<!doctype html><html><head><title>502</title></head><body><h1>Bad gateway</h1></body></html>"


@dataclasses.dataclass(frozen=True)
class Fault:
    """When a kind of fault happens: to every n-th request, to those with these numbers (from 1), or by chance; at most `times` times."""

    kind: str
    every: int | None = None
    at: tuple[int, ...] | None = None
    rate: float | None = None
    times: int | None = None

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"no fault of kind {self.kind!r}; there are {', '.join(KINDS)}")

    def strikes(self, number, seed):
        if self.at is not None:
            return number in self.at
        if self.rate is not None:
            return random.Random(f"{seed} {self.kind} {number}").random() < self.rate
        return number % (self.every or 1) == 0

    @classmethod
    def parse(cls, text):
        """`kind`, `kind:every=3`, `kind:rate=0.2` or `kind:at=2`, also with `times=1` after a comma."""
        kind, _, options = text.partition(":")
        named = dict(option.split("=") for option in options.split(",") if option)
        reads = {"every": int, "times": int, "rate": float, "at": lambda number: (int(number),)}
        return cls(kind, **{name: reads[name](value) for name, value in named.items()})


@dataclasses.dataclass(frozen=True)
class Switch:
    """Which requests another server answers: of those from number `first` (from 1) to `last`, every n-th, or some by chance."""

    upstream: str
    first: int = 1
    last: int | None = None
    every: int = 1
    rate: float = 1.0

    def takes(self, number):
        if number < self.first or (self.last is not None and number > self.last):
            return False
        by_chance = self.rate == 1 or random.Random(f"switch {number}").random() < self.rate
        return by_chance and (number - self.first) % self.every == 0


class FaultProxy:
    """Stands between a client and `upstream`; only POST requests are struck, unless `strike_get`.

    `faults` are kinds (struck always) or `Fault`s, of which the first that strikes is done. `liar` changes all answers from request
    number `liar_from` on; with `switch`, another server gives some of them. `elsewhere` is where redirects lead. `requests` counts
    the POST requests by what was done to them: a kind, or "passed".
    """

    def __init__(
        self,
        upstream,
        faults=(),
        *,
        liar=None,
        liar_from=1,
        switch=None,
        elsewhere="http://127.0.0.1:9",
        seed=0,
        delay=3.0,
        retry_after=1,
        strike_get=False,
        port=0,
    ):
        if liar is not None and liar not in LIARS + REFUSERS:
            raise ValueError(f"no liar {liar!r}; there are {', '.join(LIARS + REFUSERS)}")
        self.upstream = urlsplit(upstream)
        self.faults = [Fault(fault) if isinstance(fault, str) else fault for fault in faults]
        self.liar, self.seed, self.delay, self.retry_after = liar, seed, delay, retry_after
        self.liar_from, self.switch, self.elsewhere = liar_from, switch, elsewhere
        self.strike_get = strike_get
        self.requests = collections.Counter()
        self.bodies = []  # of the POST requests, in the order in which they came
        self.headers = []  # theirs
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._number = 0
        self._earlier = None
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # clients that give up are what this is for
        self._server.proxy = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_address[1]}{self.upstream.path}"

    def close(self):
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def choose(self, body, headers):
        """The number of the next request, and what happens to it."""
        with self._lock:
            self._number += 1
            number = self._number
            self.bodies.append(body)
            self.headers.append(dict(headers))
            for fault in self.faults:
                spent = fault.times is not None and self.requests[fault.kind] >= fault.times
                if not spent and fault.strikes(number, self.seed):
                    self.requests[fault.kind] += 1
                    return number, fault.kind
            self.requests["passed"] += 1
            return number, "passed"

    def count_from_here(self):
        """The next request is number 1."""
        with self._lock:
            self._number = 0

    def wait(self):
        """The delay; it ends early when the proxy is closed."""
        self.closing.wait(self.delay)

    def exchange_stale(self, body, answer):
        """The answer to an earlier request with another body, or this one where there is none; remembers this one."""
        with self._lock:
            earlier = self._earlier
            if earlier is None or earlier[0] != body:
                self._earlier = (body, answer)
            return answer if earlier is None or earlier[0] == body else earlier[1]

    def forward(self, method, path, headers, body, number):
        """The status and the bytes of the answer of the server itself, or of the one that was switched to."""
        switched = self.switch is not None and self.switch.takes(number)
        upstream = urlsplit(self.switch.upstream) if switched else self.upstream
        connection = http.client.HTTPConnection(upstream.hostname, upstream.port, timeout=60)
        kept = {name: headers[name] for name in ("Authorization", "Content-Type") if name in headers}
        with contextlib.closing(connection):
            connection.request(method, path, body=body if method == "POST" else None, headers=kept)
            answer = connection.getresponse()
            return answer.status, answer.read()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = 30

    def log_message(self, *_):
        pass

    def do_GET(self):
        proxy = self.server.proxy
        number, fault = proxy.choose(b"", self.headers) if proxy.strike_get else (0, "passed")
        self.answer(number, fault, b"")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(*self.server.proxy.choose(body, self.headers), body)

    def answer(self, number, fault, body):
        proxy = self.server.proxy
        if fault == "drop_before":
            return self.drop()
        if fault in {"status_429", "status_429_date", "status_500", "status_503"}:
            return self.refuse(fault)
        if fault in REDIRECTS:
            where = {"Location": redirect_target(fault, proxy)}
            return self.send(int(fault.rpartition("_")[2]), PAGE, kind="text/html", headers=where)
        if fault == "delay":
            proxy.wait()
        try:
            status, content = self.honest_or_liar(number, body)
        except OSError:
            return self.send(502, b'{"error":{"message":"no server behind the proxy"}}')
        if fault == "drop_after":
            return self.drop()
        if status == 200 and self.command == "POST":
            current = proxy.exchange_stale(body, content)
            content = current if fault == "stale" else content
            if fault in SHAPES:
                content = json.dumps(SHAPES[fault](json.loads(content))).encode()
            if fault in BROKEN_BYTES:
                content = BROKEN_BYTES[fault](content)
        return self.send_struck(fault, status, content)

    def honest_or_liar(self, number, body):
        proxy = self.server.proxy

        def forward(content):
            return proxy.forward(self.command, self.path, self.headers, content, number)

        if (
            proxy.liar is None
            or number < proxy.liar_from
            or self.command != "POST"
            or not self.path.endswith("/completions")
        ):
            return forward(body)
        return lie(proxy.liar, json.loads(body), lambda request: forward(json.dumps(request).encode()))

    def send_struck(self, fault, status, content):
        if fault == "drop_in_body":
            self.send(status, content[: len(content) // 2], length=len(content))
            return self.drop()
        if fault == "truncated_json":
            return self.send(status, content[: len(content) * 2 // 3])
        if fault == "garbage":
            return self.send(status, b"\xff" + random.Random(len(content)).randbytes(200))
        if fault == "html_200":
            return self.send(200, PAGE, kind="text/html")
        if fault == "empty_body":
            return self.send(status, b"")
        if fault in HOSTILE or fault in SLOW or fault in UNUSUAL:
            return send_hostile(self, fault, content)
        if fault in {"chunked", "chunked_garbage"}:
            return self.send_chunks(status, content, garbage=fault == "chunked_garbage")
        return self.send(status, content)

    def refuse(self, fault):
        proxy = self.server.proxy
        headers = {}
        if fault == "status_429":
            headers["Retry-After"] = str(proxy.retry_after)
        elif fault == "status_429_date":
            headers["Retry-After"] = email.utils.formatdate(time.time() + proxy.retry_after, usegmt=True)
        content = b'{"error":{"message":"not now","type":"server_error","code":null}}'
        return self.send(int(fault.split("_")[1]), content, headers=headers)

    def send(self, status, content, *, kind="application/json", length=None, headers=None):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def send_chunks(self, status, content, *, garbage):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        half = max(1, len(content) // 2)
        self.wfile.write(b"%x\r\n%b\r\n" % (half, content[:half]))
        if garbage:
            self.wfile.write(b"not a number\r\n\xff\xfe\r\n")
            self.wfile.flush()
            return self.drop()
        if rest := content[half:]:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(rest), rest))
        self.wfile.write(b"0\r\n\r\n")
        return self.wfile.flush()

    def drop(self):
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


def main():
    parser = argparse.ArgumentParser(description="A proxy that breaks answers on purpose.")
    parser.add_argument("upstream")
    parser.add_argument("--fault", action="append", default=[], type=Fault.parse)
    parser.add_argument("--liar", choices=LIARS + REFUSERS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--delay", type=float, default=3.0)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    with FaultProxy(
        options.upstream,
        options.fault,
        liar=options.liar,
        seed=options.seed,
        delay=options.delay,
        port=options.port,
    ) as proxy:
        print(proxy.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)


if __name__ == "__main__":
    main()
