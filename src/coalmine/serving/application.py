"""The web application: who may ask, what can be asked, and errors in OpenAI's shape.

A page in a browser can send requests to servers of the same machine. It cannot read the answers, but it could make a model compute. So
a request that a page could send by itself, without asking first, is refused: by its Host (a name that was pointed at this address), by
its Origin and Sec-Fetch-Site (another site), and by its Content-Type (a form, or text). OPTIONS, with which a browser asks first, is
answered with nothing that would allow the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from coalmine.errors import CoalmineError, ModelOutputError, TooLongError
from coalmine.models.protocols import Model
from coalmine.serving import connections
from coalmine.serving.batching import Batcher
from coalmine.serving.completions import check_possible, complete
from coalmine.serving.requests import MOST_BYTES, RefusedError, error_document, read_completion, read_tokenize
from coalmine.serving.token_text import TokenTexts

READ_AT_ONCE = 10_000  # bytes

_Read = TypeVar("_Read")
_HEALTH = ("/health", "/v1/health")
_CHAT = "/v1/chat/completions"
_MORE_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}


class Application(Starlette):
    """The routes of one served model, and the gate before them; `hosts` are the names of the server, None if it may have any."""

    def __init__(
        self,
        model: Model,
        *,
        name: str,
        seed: int,
        batch: int,
        key: str | None,
        hosts: frozenset[str] | None,
        log: Callable[[str], None] | None,
    ) -> None:
        self._model, self._name, self._seed = model, name, seed
        self._hosts, self._log = hosts, log
        self._key = None if key is None else key.encode()
        self._since = int(time.time())
        self._texts = TokenTexts(model.tokenizer)
        self.batcher = Batcher(lambda requests: complete(model, self._texts, requests), most=batch)
        routes = [
            *(Route(path, self._health) for path in _HEALTH),
            Route("/v1/models", self._models),
            Route("/v1/completions", self._completions, methods=["POST"]),
            Route("/v1/tokenize", self._tokenize, methods=["POST"]),
        ]
        self._known = {_CHAT, *(route.path for route in routes)}
        kinds = (HTTPException, CoalmineError, Exception)
        super().__init__(routes=routes, exception_handlers=dict.fromkeys(kinds, self._refuse))
        self.router.redirect_slashes = False  # an answer repeats nothing of a request's Host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and log one line without its content."""
        began, started = time.monotonic(), False
        # A path is compared as it was sent: one that is written in another way is another path.
        scope["path"] = scope["raw_path"].decode("ascii")
        path = scope["path"] if scope["path"] in self._known else "another path"

        async def send_and_log(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                took = 1000 * (time.monotonic() - began)
                self._write_log(f"{scope['method']} {path} {message['status']} in {took:.0f} ms")
            await send(message)

        try:
            await self._answer(scope, receive, send_and_log)
        except asyncio.CancelledError:  # by a server that stops and has waited long enough
            if not started:
                refusal = RefusedError(503, "closing", "the server is stopping; ask again when it is back")
                await _error_response(refusal, {"Connection": "close"})(scope, receive, send_and_log)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(scope["method"], scope["path"], Headers(scope=scope))
        except RefusedError as refusal:
            await _discard(receive)
            await _error_response(refusal, {"Connection": "close"})(scope, receive, send)
        else:
            # What fails inside is answered, and then raised for servers that log tracebacks, which may quote a prompt.
            with contextlib.suppress(Exception):
                await super().__call__(scope, receive, send)

    def _check(self, method: str, path: str, headers: Headers) -> None:
        """Refuse by the head alone, so that the body of a stranger is not even read."""
        _check_sender(headers, self._hosts)
        if method == "OPTIONS":
            said = "this server is for programs, and does not allow pages of other sites anything"
            raise RefusedError(405, "method_not_allowed", said)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if method == "POST" and kind != "application/json":
            said = "a body must be sent as JSON; add the header Content-Type: application/json (with curl: --json in place of -d)"
            raise RefusedError(415, "wrong_content_type", said)
        if (length := int(headers.get("content-length", "0"))) > MOST_BYTES:
            said = f"a request may have {MOST_BYTES:,} bytes, got {length:,}; send several requests"
            raise RefusedError(413, "too_large", said)
        scheme, _, given = headers.get("authorization", "").partition(" ")
        sent = given.strip().encode(
            "latin-1"
        )  # headers are decoded as Latin-1: these are the bytes that were sent
        right = self._key is None or (hmac.compare_digest(sent, self._key) and scheme.lower() == "bearer")
        if not right and path not in _HEALTH:
            said = "the key of this server is missing or wrong; send it as Authorization: Bearer"
            raise RefusedError(401, "invalid_api_key", said)

    async def _refuse(self, request: Request, problem: Exception) -> Response:
        """The answer to whatever went wrong; of an unexpected failure, only the kind is logged, because its message may hold a prompt."""
        match problem:
            case RefusedError():
                refusal = problem
            case ModelOutputError():
                refusal = RefusedError(500, "model_output", str(problem))
            case CoalmineError():
                refusal = RefusedError(400, "invalid_request", str(problem))
            case HTTPException() if request.scope["path"] == _CHAT:
                said = "this server completes texts and does not chat; use POST /v1/completions"
                refusal = RefusedError(404, "no_chat", said)
            case HTTPException():
                said = (
                    "there is nothing here; GET /health and /v1/models, POST /v1/completions and /v1/tokenize"
                )
                refusal = RefusedError(404, "not_found", said)
            case ClientDisconnect():
                said = "the body is shorter than the Content-Length of the request"
                refusal = RefusedError(400, "incomplete", said)
            case _:
                self._write_log(f"a request failed inside the server: {type(problem).__name__}")
                said = "the server failed on this request; its log names the kind of failure"
                refusal = RefusedError(500, "internal", said)
        return _error_response(refusal)

    def _write_log(self, line: str) -> None:
        if self._log is not None:
            self._log(line)

    async def _health(self, _: Request) -> Response:
        return _response({"status": "ok"})

    async def _models(self, _: Request) -> Response:
        one = {"id": self._name, "object": "model", "created": self._since, "owned_by": "coalmine"}
        return _response({"object": "list", "data": [one]})

    async def _tokenize(self, request: Request) -> Response:
        ids = await _read(request, lambda body: read_tokenize(body, self._model, self._name))
        written = [self._texts.written(token, first=place == 0) for place, token in enumerate(ids)]
        return _response({"object": "tokens", "model": self._name, "tokens": written, "ids": ids})

    async def _completions(self, request: Request) -> Response:
        asked = await _read(
            request, lambda body: read_completion(body, self._model, self._name, seed=self._seed)
        )
        check_possible(self._model, asked)
        prompt_tokens = sum(map(len, asked.prompts))
        try:
            choices, completion_tokens = await self.batcher.ask(asked)
        except (IndexError, TooLongError):
            # Ids were checked, so what a network did not find is a position: it has an embedding for each, and these are too few.
            longest = max(map(len, asked.prompts)) + asked.max_tokens
            said = f"the model cannot read a text of {longest} tokens; its own context is probably shorter"
            raise RefusedError(400, "context_length_exceeded", said) from None
        return _response(
            {
                "id": f"cmpl-{hashlib.sha256(msgspec.json.encode(asked)).hexdigest()[:24]}",
                "object": "text_completion",
                "created": int(time.time()),
                "model": self._name,
                "choices": choices,
                "usage": {
                    "prompt_tokens": prompt_tokens,
                    "completion_tokens": completion_tokens,
                    "total_tokens": prompt_tokens + completion_tokens,
                },
            }
        )


def own_hosts(address: str, port: int) -> frozenset[str]:
    """What a Host header may say to a server that only this machine can reach.

    >>> sorted(own_hosts("::1", 8000)), sorted(own_hosts("127.0.0.1", 80))
    (['[::1]:8000', 'localhost:8000'], ['127.0.0.1', '127.0.0.1:80', 'localhost', 'localhost:80'])
    """
    names = {f"[{address}]" if ":" in address else address, "localhost"}
    return frozenset({f"{name}:{port}" for name in names} | (names if port == 80 else set()))


def _check_sender(headers: Headers, hosts: frozenset[str] | None) -> None:
    host = headers["host"].lower()
    if hosts is not None and host not in hosts:
        said = f"the Host header does not name this server, which is called {' or '.join(sorted(hosts))}"
        raise RefusedError(403, "wrong_host", said)
    origin = headers.get("origin")
    own = {f"http://{host}"} if hosts is not None else {f"http://{host}", f"https://{host}"}
    site = headers.get("sec-fetch-site") or "none"  # which a browser sends for an address that was typed in
    if (origin is not None and origin.lower() not in own) or site.lower() not in {"same-origin", "none"}:
        said = "a page of another site sent this request, which is not allowed; ask from a program"
        raise RefusedError(403, "foreign_origin", said)


async def _discard(receive: Receive) -> None:
    """Drop the body of a refused request for a while: a connection that is closed with bytes unread may lose the answer."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(connections.DISCARD_SECONDS):
            while (await receive()).get("more_body"):
                pass


async def _read(request: Request, read: Callable[[bytes], _Read]) -> _Read:
    """Read the whole body; a large one in another thread, so that others are answered meanwhile."""
    body = await request.body()
    if len(body) < int(request.headers["content-length"]):
        raise ClientDisconnect
    return read(body) if len(body) <= READ_AT_ONCE else await asyncio.to_thread(read, body)


def _response(document: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(document), media_type="application/json")


def _error_response(refusal: RefusedError, headers: dict[str, str] | None = None) -> Response:
    more = _MORE_HEADERS.get(refusal.status, {}) | (headers or {})
    return Response(error_document(refusal), refusal.status, more, "application/json")
