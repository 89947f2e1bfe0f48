"""How one HTTP request becomes an answer or a refusal: routes, keys, sizes, and errors in OpenAI's shape."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import msgspec

from coalmine.errors import CoalmineError, ModelOutputError
from coalmine.serving.requests import MOST_BYTES, RefusedError, read_completion, read_tokenize

if TYPE_CHECKING:
    from coalmine.serving.server import _HTTPServer

IDLE_SECONDS = 120
# A body that is too large is read and thrown away up to this size, so that the refusal arrives; beyond it the line is cut.
MOST_DISCARDED = 4 * MOST_BYTES


class Handler(BaseHTTPRequestHandler):
    """One connection; requests come one after the other on it."""

    protocol_version = "HTTP/1.1"
    server_version = "coalmine"
    sys_version = ""
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body of an answer go out together

    @property
    def _home(self) -> _HTTPServer:
        return cast("_HTTPServer", self.server)

    def do_GET(self) -> None:
        """Look."""
        self._respond({"/health": self._health, "/v1/health": self._health, "/v1/models": self._models})

    def do_POST(self) -> None:
        """Ask."""
        self._respond({"/v1/completions": self._completions, "/v1/tokenize": self._tokenize})

    def _respond(self, routes: dict[str, Callable[[bytes], dict[str, Any]]]) -> None:
        began = time.monotonic()
        path = self.path.partition("?")[0]
        with self._home.busy():
            try:
                body = self._body()
                self._check_host()
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
        """The whole body, so that the next request on this connection begins where it should."""
        lengths = self.headers.get_all("Content-Length") or []
        if "Transfer-Encoding" in self.headers or (self.command == "POST" and not lengths):
            self.close_connection = True
            raise RefusedError(
                411, "length_required", "a request needs a Content-Length; send its body whole"
            )
        if not lengths:
            return b""
        if len(set(lengths)) > 1 or re.fullmatch("[0-9]{1,15}", lengths[0]) is None:
            self.close_connection = True
            raise RefusedError(
                400, "invalid_request", "the Content-Length of the request is not one whole number"
            )
        length = int(lengths[0])
        if length > MOST_BYTES:
            self.close_connection = True
            self._discard(length)
            said = f"a request may have {MOST_BYTES:,} bytes, got {length:,}; send several requests"
            raise RefusedError(413, "too_large", said)
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionError  # the client went away in the middle of its request
        return body

    def _discard(self, length: int) -> None:
        if length > MOST_DISCARDED:
            return
        while length > 0 and (some := self.rfile.read(min(length, 1 << 16))):
            length -= len(some)

    def _check_host(self) -> None:
        """Refuse names that are not of this machine: a page in a browser may have bent its own name to this address."""
        if not self._home.loopback:
            return
        try:
            host = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
            local = host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            local = False
        if not local:
            said = "the Host header does not name this machine; use http://127.0.0.1 or http://localhost"
            raise RefusedError(403, "wrong_host", said)

    def _check_key(self) -> None:
        key = self._home.key
        if key is None:
            return
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        sent = given.strip().encode(
            "latin-1", "replace"
        )  # headers are read as Latin-1: these are the bytes that came
        if not hmac.compare_digest(sent, key) or scheme.lower() != "bearer":
            said = "the key of this server is missing or wrong; send it as Authorization: Bearer"
            raise RefusedError(401, "invalid_api_key", said)

    def _send(self, status: int, document: dict[str, Any]) -> None:
        content = msgspec.json.encode(document)
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

    def handle_expect_100(self) -> bool:
        """A client with a large body first asks whether to send it; what it waits for must not stay in the buffer."""
        going_on = super().handle_expect_100()
        self.wfile.flush()
        return going_on

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the library refuses by itself (no HTTP, a method that is not known), in the same shape as the rest."""
        del message, explain
        self.close_connection = True
        self._send(code, _error("this is not a request that the server understands", code, "invalid_request"))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """The library would log paths, which may hold anything; `_tell` logs what is known to be harmless."""

    def _tell(self, line: str) -> None:
        if self._home.log is not None:
            self._home.log(line)


def _error(message: str, status: int, code: str) -> dict[str, Any]:
    kinds = {401: "authentication_error", 403: "permission_error", 503: "overloaded_error"}
    kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "code": code}}
