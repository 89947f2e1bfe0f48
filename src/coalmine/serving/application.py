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
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


class Served:
    """One model as it is served: its name, its defaults, and the queue in which its requests wait."""

    def __init__(self, model: Model, *, name: str, seed: int, batch: int) -> None:
        self.model, self.name, self.seed = model, name, seed
        self.since = int(time.time())
        self.texts = TokenTexts(model.tokenizer)
        self.batcher = Batcher(lambda requests: complete(model, self.texts, requests), most=batch)

    async def health(self, _: Request) -> Response:
        """Whether the server answers; needs no key."""
        return _response({"status": "ok"})

    async def models(self, _: Request) -> Response:
        """The one model that is served."""
        one = {"id": self.name, "object": "model", "created": self.since, "owned_by": "coalmine"}
        return _response({"object": "list", "data": [one]})

    async def tokenize(self, request: Request) -> Response:
        """The tokens of a text."""
        ids = await _read(request, lambda body: read_tokenize(body, self.model, self.name))
        written = [self.texts.written(token, first=place == 0) for place, token in enumerate(ids)]
        return _response({"object": "tokens", "model": self.name, "tokens": written, "ids": ids})

    async def completions(self, request: Request) -> Response:
        """Continuations of prompts, and log-probabilities."""
        asked = await _read(
            request, lambda body: read_completion(body, self.model, self.name, seed=self.seed)
        )
        check_possible(self.model, asked)
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
                "model": self.name,
                "choices": choices,
                "usage": {
                    "prompt_tokens": prompt_tokens,
                    "completion_tokens": completion_tokens,
                    "total_tokens": prompt_tokens + completion_tokens,
                },
            }
        )


def application(
    served: Served,
    *,
    key: str | None,
    hosts: frozenset[str] | None,
    log: Callable[[str], None] | None,
) -> Starlette:
    """The routes of a served model, guarded by the gate; `hosts` are the server's names, None if it may have any."""
    routes = [
        *(Route(path, served.health) for path in _HEALTH),
        Route("/v1/models", served.models),
        Route("/v1/completions", served.completions, methods=["POST"]),
        Route("/v1/tokenize", served.tokenize, methods=["POST"]),
    ]
    known = frozenset({route.path for route in routes} | {_CHAT})
    gate = Middleware(_Gate, key=key, hosts=hosts, known=known, log=log)
    return Starlette(routes=routes, middleware=[gate], exception_handlers={HTTPException: _not_found})


def own_hosts(address: str, port: int) -> frozenset[str]:
    """What a Host header may say to a server that only this machine can reach.

    >>> sorted(own_hosts("::1", 8000)), sorted(own_hosts("127.0.0.1", 80))
    (['[::1]:8000', 'localhost:8000'], ['127.0.0.1', '127.0.0.1:80', 'localhost', 'localhost:80'])
    """
    names = {f"[{address}]" if ":" in address else address, "localhost"}
    return frozenset({f"{name}:{port}" for name in names} | (names if port == 80 else set()))


class _Gate:
    """Refuses what was not sent to this server on purpose, turns every error into an answer, and logs one line per request."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        key: str | None,
        hosts: frozenset[str] | None,
        known: frozenset[str],
        log: Callable[[str], None] | None,
    ) -> None:
        self._app, self._hosts, self._known, self._log = app, hosts, known, log
        self._key = None if key is None else key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        path = scope["path"] if scope["path"] in self._known else "another path"

        async def send_and_log(message: Message) -> None:
            if message["type"] == "http.response.start":
                took = 1000 * (time.monotonic() - began)
                self._write_log(f"{scope['method']} {path} {message['status']} in {took:.0f} ms")
            await send(message)

        admitted = False
        try:
            self._check(scope["method"], scope["path"], Headers(scope=scope))
            admitted = True
            await self._app(scope, receive, send_and_log)
        except ClientDisconnect:
            pass
        except Exception as problem:  # noqa: BLE001 - the client learns that it failed, and nothing about the inside
            refusal = _as_refusal(problem)
            if refusal.code == "internal":
                self._write_log(f"a request failed inside the server: {type(problem).__name__}")
            headers = _MORE_HEADERS.get(refusal.status, {})
            if not admitted:
                headers = {**headers, "Connection": "close"}
                await _discard(receive)
            response = Response(error_document(refusal), refusal.status, headers, "application/json")
            await response(scope, receive, send_and_log)

    def _write_log(self, line: str) -> None:
        if self._log is not None:
            self._log(line)

    def _check(self, method: str, path: str, headers: Headers) -> None:
        """Refuse by the head alone, so that the body of a stranger is not even read."""
        self._check_sender(headers)
        if method == "OPTIONS":
            said = "this server is for programs, and does not allow pages of other sites anything"
            raise RefusedError(405, "method_not_allowed", said)
        if method == "POST":
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                said = "a body must be sent as JSON; add the header Content-Type: application/json (with curl: --json in place of -d)"
                raise RefusedError(415, "wrong_content_type", said)
        if (length := int(headers.get("content-length", "0"))) > MOST_BYTES:
            said = f"a request may have {MOST_BYTES:,} bytes, got {length:,}; send several requests"
            raise RefusedError(413, "too_large", said)
        if self._key is not None and path not in _HEALTH:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            # Headers are decoded as Latin-1: these are the bytes that were sent.
            if (
                not hmac.compare_digest(given.strip().encode("latin-1"), self._key)
                or scheme.lower() != "bearer"
            ):
                said = "the key of this server is missing or wrong; send it as Authorization: Bearer"
                raise RefusedError(401, "invalid_api_key", said)

    def _check_sender(self, headers: Headers) -> None:
        host = headers["host"].lower()
        if self._hosts is not None and host not in self._hosts:
            said = f"the Host header does not name this server, which is called {' or '.join(sorted(self._hosts))}"
            raise RefusedError(403, "wrong_host", said)
        origin = headers.get("origin")
        own = {f"http://{host}"} if self._hosts is not None else {f"http://{host}", f"https://{host}"}
        # "none" is what a browser sends for an address that was typed in.
        site = headers.get("sec-fetch-site") or "none"
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


async def _not_found(request: Request, problem: Exception) -> Response:
    """Nothing is at this path, or not for this method; the gate makes the answer."""
    if request.url.path == _CHAT:
        said = "this server completes texts and does not chat; use POST /v1/completions"
        raise RefusedError(404, "no_chat", said) from problem
    said = "there is nothing here; GET /health and /v1/models, POST /v1/completions and /v1/tokenize"
    raise RefusedError(404, "not_found", said) from problem


def _as_refusal(problem: Exception) -> RefusedError:
    match problem:
        case RefusedError():
            return problem
        case ModelOutputError():
            return RefusedError(500, "model_output", str(problem))
        case CoalmineError():
            return RefusedError(400, "invalid_request", str(problem))
    said = "the server failed on this request; its log names the kind of failure"
    return RefusedError(500, "internal", said)


def _response(document: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(document), media_type="application/json")
