"""The web application: what can be asked, and errors in OpenAI's shape. Who may ask was decided before, by the gate."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from coalmine.errors import CoalmineError, ModelOutputError, TooLongError
from coalmine.models.protocols import Model
from coalmine.serving.admission import HEALTH, Gate
from coalmine.serving.completions import Batcher, check_possible
from coalmine.serving.generation import TokenTexts
from coalmine.serving.requests import RefusedError, error_response, read_completion, read_tokenize

READ_AT_ONCE = 10_000  # bytes

_Read = TypeVar("_Read")


class Application:
    """The answers of one served model."""

    def __init__(
        self, model: Model, gate: Gate, *, name: str, seed: int, batch: int, log: Callable[[str], None]
    ) -> None:
        self.gate, self.log = gate, log
        self._model, self._name, self._seed = model, name, seed
        self._since = int(time.time())
        self._texts = TokenTexts(model.tokenizer)
        self.batcher = Batcher(model, self._texts, most=batch)
        self._answers = {
            **{f"GET {path}": self._health for path in HEALTH},
            "GET /v1/models": self._models,
            "POST /v1/completions": self._completions,
            "POST /v1/tokenize": self._tokenize,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and log one line without its content."""
        began = time.monotonic()
        # A path is compared as it was sent: one that is written in another way is another path.
        asked = f"{scope['method']} {scope['raw_path'].decode('ascii')}"
        try:
            response = await self._answers.get(asked, self._nothing)(Request(scope, receive))
        except ClientDisconnect:  # or the connection refused the rest of the request
            return
        except (Exception, asyncio.CancelledError) as problem:  # noqa: BLE001 - answered without its details
            response = error_response(self._refusal(problem))
        known = asked if asked in self._answers else f"{scope['method']} another path"
        self.log(f"{known} {response.status_code} in {1000 * (time.monotonic() - began):.0f} ms")
        await response(scope, receive, send)

    def _refusal(self, problem: BaseException) -> RefusedError:
        match problem:
            case RefusedError():
                return problem
            case ModelOutputError():
                return RefusedError(500, "model_output", str(problem))
            case CoalmineError():
                return RefusedError(400, "invalid_request", str(problem))
            case asyncio.CancelledError():  # by a server that stops and has waited long enough
                return RefusedError(503, "closing", "the server is stopping; ask again when it is back")
        # Only the kind is logged, because the message may hold a prompt.
        self.log(f"a request failed inside the server: {type(problem).__name__}")
        said = "the server failed on this request; its log names the kind of failure"
        return RefusedError(500, "internal", said)

    async def _health(self, _: Request) -> Response:
        return _response({"status": "ok"})

    async def _models(self, _: Request) -> Response:
        one = {"id": self._name, "object": "model", "created": self._since, "owned_by": "coalmine"}
        return _response({"object": "list", "data": [one]})

    async def _nothing(self, request: Request) -> Response:
        if request.scope["raw_path"] == b"/v1/chat/completions":
            said = "this server completes texts and does not chat; use POST /v1/completions"
            raise RefusedError(404, "no_chat", said)
        said = "there is nothing here; GET /health and /v1/models, POST /v1/completions and /v1/tokenize"
        raise RefusedError(404, "not_found", said)

    async def _tokenize(self, request: Request) -> Response:
        ids = await _read(await request.body(), lambda body: read_tokenize(body, self._model, self._name))
        written = [self._texts.written(token, first=place == 0) for place, token in enumerate(ids)]
        return _response({"object": "tokens", "model": self._name, "tokens": written, "ids": ids})

    async def _completions(self, request: Request) -> Response:
        body = await request.body()
        asked = await _read(
            body, lambda body: read_completion(body, self._model, self._name, seed=self._seed)
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
                "id": f"cmpl-{hashlib.sha256(body).hexdigest()[:24]}",
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


async def _read(body: bytes, read: Callable[[bytes], _Read]) -> _Read:
    """Read a body; a large one in another thread, so that others are answered meanwhile."""
    return read(body) if len(body) <= READ_AT_ONCE else await asyncio.to_thread(read, body)


def _response(document: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(document), media_type="application/json")
