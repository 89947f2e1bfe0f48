"""How one HTTP request becomes an answer or a refusal: routes, keys, sizes, and errors in OpenAI's shape."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import io
import socket
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, cast

import msgspec

from coalmine.errors import CoalmineError, ModelOutputError
from coalmine.serving.admission import (
    check_content_type,
    check_sender,
    length_of_body,
    read_head,
)
from coalmine.serving.requests import MOST_BYTES, RefusedError, read_completion, read_tokenize

if TYPE_CHECKING:
    from coalmine.serving.server import _HTTPServer

IDLE_SECONDS = 120
# From its first byte to its last, a request may take so long.
REQUEST_SECONDS = 60
DISCARD_SECONDS = 2
# What comes after a refusal is thrown away up to this size, so that the refusal arrives; beyond it the line is cut.
MOST_DISCARDED = 4 * MOST_BYTES


class Handler(BaseHTTPRequestHandler):
    """One connection; requests come one after the other on it."""

    protocol_version = "HTTP/1.1"
    server_version = "coalmine"
    sys_version = ""
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body of an answer go out together
    raw_requestline: bytes

    @property
    def _home(self) -> _HTTPServer:
        return cast("_HTTPServer", self.server)

    def setup(self) -> None:
        """Read from the connection by the clock."""
        super().setup()
        self._arriving = _Arriving(self.connection)
        self.rfile = self._stream = io.BufferedReader(self._arriving)
        # Whether something was sent that nobody will read.
        self._unread = False

    def handle_one_request(self) -> None:
        """Answer a request."""
        self._arriving.begin()
        super().handle_one_request()

    def parse_request(self) -> bool:
        """Read the head of a request; False where it was refused. The library's own reading is more lenient than is safe."""
        self.requestline, self.request_version, self.command = "", self.protocol_version, ""
        self.close_connection = True
        try:
            try:
                self._head = head = read_head(self.raw_requestline, self._stream)
            except TimeoutError:
                raise _too_slow() from None
        except RefusedError as refusal:
            self._unread = True
            self._send(refusal.status, _error(str(refusal), refusal.status, refusal.code))
            return False
        self.command, self.path, self.close_connection = head.method, head.target, not head.keeps
        return True

    def do_GET(self) -> None:
        """Look; no model computes for it."""
        self._respond({"/health": self._health, "/v1/health": self._health, "/v1/models": self._models})

    def do_POST(self) -> None:
        """Ask."""
        self._respond({"/v1/completions": self._completions, "/v1/tokenize": self._tokenize})

    def do_OPTIONS(self) -> None:
        """What a page asks before it sends JSON to another site: there is no header in the answer that allows it anything."""
        self._respond({})

    def _respond(self, routes: dict[str, Callable[[bytes], dict[str, Any]]]) -> None:
        began = time.monotonic()
        path = self.path.partition("?")[0]
        with self._home.busy():
            try:
                body = self._body()
                if path not in {"/health", "/v1/health"}:
                    self._check_key()
                status, document = 200, self._route(routes, path)(body)
            except RefusedError as refusal:
                status, document = refusal.status, _error(str(refusal), refusal.status, refusal.code)
            except ModelOutputError as problem:
                status, document = 500, _error(str(problem), 500, "model_output")
            except CoalmineError as problem:
                status, document = 400, _error(str(problem), 400, "invalid_request")
            except (ConnectionError, TimeoutError):
                raise  # the client is gone, and this connection with it
            except Exception as problem:  # noqa: BLE001 - the client is told that it failed, and nothing of the inside
                self._tell(f"a request failed inside the server: {type(problem).__name__}")
                said = "the server failed on this request; its log has the kind of the failure"
                status, document = 500, _error(said, 500, "internal")
            self._send(status, document)
        known = path if path in {*routes, "/v1/chat/completions"} else "another path"
        self._tell(f"{self.command} {known} {status} in {1000 * (time.monotonic() - began):.0f} ms")

    def _route(
        self, routes: dict[str, Callable[[bytes], dict[str, Any]]], path: str
    ) -> Callable[[bytes], dict[str, Any]]:
        if path in routes:
            return routes[path]
        if self.command == "OPTIONS":
            raise RefusedError(
                405,
                "method_not_allowed",
                "this server is for programs, and allows no page of another site anything",
            )
        if path == "/v1/chat/completions":
            said = "this server completes texts and does not chat; use POST /v1/completions"
            raise RefusedError(404, "no_chat", said)
        said = "there is nothing here; GET /health and /v1/models, POST /v1/completions and /v1/tokenize"
        raise RefusedError(404, "not_found", said)

    def _health(self, body: bytes) -> dict[str, Any]:
        del body
        if not self._home.batcher.alive:
            raise RefusedError(503, "closing", "the server is closing; ask another one")
        return {"status": "ok"}

    def _models(self, body: bytes) -> dict[str, Any]:
        del body
        one = {"id": self._home.name, "object": "model", "created": self._home.since, "owned_by": "coalmine"}
        return {"object": "list", "data": [one]}

    def _tokenize(self, body: bytes) -> dict[str, Any]:
        ids = read_tokenize(body, self._home.model, self._home.name)
        written = self._home.texts.written
        return {
            "object": "tokens",
            "model": self._home.name,
            "tokens": [written(token, first=place == 0) for place, token in enumerate(ids)],
            "ids": ids,
        }

    def _completions(self, body: bytes) -> dict[str, Any]:
        home = self._home
        request = read_completion(body, home.model, home.name, seed=home.seed)
        choices, completion_tokens = home.answer(request)
        prompt_tokens = sum(map(len, request.prompts))
        return {
            "id": f"cmpl-{hashlib.sha256(msgspec.json.encode(request)).hexdigest()[:24]}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": home.name,
            "choices": choices,
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": completion_tokens,
                "total_tokens": prompt_tokens + completion_tokens,
            },
        }

    def _body(self) -> bytes:
        """The whole body, so that the next request begins where it should."""
        try:
            length = self._admitted()
        except RefusedError:
            self.close_connection = self._unread = True
            raise
        if (self._head.one("expect") or "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
            self.wfile.flush()
        try:
            body = self._stream.read(length)
        except TimeoutError:
            self.close_connection = True
            raise _too_slow() from None
        if len(body) < length:
            raise ConnectionError  # the client went away in the middle of its request
        return body

    def _admitted(self) -> int:
        """How long the body is, once it is clear who sends it and what."""
        length = length_of_body(self._head)
        check_sender(self._head, self._home.hosts)
        if self.command == "POST":
            check_content_type(self._head)
        if length > MOST_BYTES:
            said = f"a request may have {MOST_BYTES:,} bytes, got {length:,}; send several requests"
            raise RefusedError(413, "too_large", said)
        return length

    def _check_key(self) -> None:
        key = self._home.key
        if key is None:
            return
        scheme, _, given = (self._head.one("authorization") or "").partition(" ")
        sent = given.strip().encode(
            "latin-1", "replace"
        )  # headers are read as Latin-1: these are the bytes that came
        if not hmac.compare_digest(sent, key) or scheme.lower() != "bearer":
            said = "the key of this server is missing or wrong; send it as Authorization: Bearer"
            raise RefusedError(401, "invalid_api_key", said)

    def _send(self, status: int, document: dict[str, Any]) -> None:
        content = msgspec.json.encode(document)
        self.connection.settimeout(IDLE_SECONDS)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        if status == 503:
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()
        if self._unread:
            self._discard()

    def _discard(self) -> None:
        """Read what is still coming: a connection that is closed with something unread may lose the answer."""
        self._arriving.hurry()
        left = MOST_DISCARDED
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while left > 0 and (some := self._stream.read1(1 << 16)):
                left -= len(some)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the library refuses by itself (no HTTP, a method that is not known), in the same shape as the rest."""
        del message, explain
        self.close_connection = self._unread = True
        self._send(code, _error("this is not a request that the server understands", code, "invalid_request"))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """The library would log paths, which may hold anything; `_tell` logs what is known to be harmless."""

    def _tell(self, line: str) -> None:
        if self._home.log is not None:
            self._home.log(line)


class _Arriving(io.RawIOBase):
    """What comes on a connection: waited for patiently until a request begins, and from then on by the clock.

    A time-out for each read alone would let a client that sends a byte now and then hold its connection for ever.
    """

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._connection = connection
        self._ends: float | None = None

    def begin(self) -> None:
        """Another request may come."""
        self._ends = None

    def hurry(self) -> None:
        """Nothing that comes now matters."""
        self._ends = time.monotonic() + DISCARD_SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = IDLE_SECONDS if self._ends is None else self._ends - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        came = self._connection.recv_into(buffer)
        if self._ends is None:
            self._ends = time.monotonic() + REQUEST_SECONDS
        return came


def _too_slow() -> RefusedError:
    said = f"the request did not come within {REQUEST_SECONDS:g} seconds; send it whole"
    return RefusedError(408, "too_slow", said)


def _error(message: str, status: int, code: str) -> dict[str, Any]:
    kinds = {401: "authentication_error", 403: "permission_error", 503: "overloaded_error"}
    kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "code": code}}
