"""The web application: what can be asked, and errors in OpenAI's shape. Who may ask was decided before, by the gate."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from coalmine.errors import CoalmineError, ModelOutputError, TooLongError
from coalmine.models.endpoints.token_texts import TokenTexts
from coalmine.models.protocols import Model, max_length
from coalmine.serving.admission import HEALTH, Gate
from coalmine.serving.chat import read_chat, streamed_answer, whole_answer
from coalmine.serving.completions import Batcher, check_possible
from coalmine.serving.requests import (
    Completion,
    RefusedError,
    json_response,
    read_completion,
    read_tokenize,
    too_long,
)

_Answer = TypeVar("_Answer")


class Application:
    """The answers of one served model."""

    def __init__(
        self, model: Model, gate: Gate, *, name: str, seed: int, batch: int, log: Callable[[str], None]
    ) -> None:
        self.gate, self.log = gate, log
        self._model, self._name, self._seed = model, name, seed
        self._since = int(time.time())
        self._texts = TokenTexts(model.tokenizer)
        # A longer text has more tokens than the model reads, whatever they are.
        longest = max_length(model)
        self._most_characters = None if longest is None else longest * self._texts.longest_piece
        self.batcher = Batcher(model, self._texts, most=batch)
        self._answers = {
            **{f"GET {path}": self._health for path in HEALTH},
            "GET /v1/models": self._models,
            "POST /v1/completions": self._completions,
            "POST /v1/tokenize": self._tokenize,
            "POST /v1/chat/completions": self._chat,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and log one line without its content."""
        began = time.monotonic()
        # A path is compared as it was sent: one that is written in another way is another path.
        asked = f"{scope['method']} {scope['raw_path'].decode('ascii')}"
        try:
            body = await Request(scope, receive).body()
            answer = await _while_connected(receive, self._answers.get(asked, self._nothing)(body))
            response = answer if isinstance(answer, Response) else json_response(answer)
        except ClientDisconnect:  # or the connection refused the rest of the request
            return
        except (Exception, asyncio.CancelledError) as problem:  # noqa: BLE001 - answered without its details
            response = self._refusal(problem).response
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

    async def _health(self, _: bytes) -> dict[str, Any]:
        return {"status": "ok"}

    async def _models(self, _: bytes) -> dict[str, Any]:
        one = {"id": self._name, "object": "model", "created": self._since, "owned_by": "coalmine"}
        return {"object": "list", "data": [one]}

    async def _nothing(self, _: bytes) -> dict[str, Any]:
        posts = "/v1/completions, /v1/chat/completions and /v1/tokenize"
        said = f"there is nothing here; GET /health and /v1/models, POST {posts}"
        raise RefusedError(404, "not_found", said)

    async def _tokenize(self, body: bytes) -> dict[str, Any]:
        # In another thread, as below, so that others are answered meanwhile.
        ids = await asyncio.to_thread(read_tokenize, body, self._model, self._name, self._most_characters)
        written = [self._texts.written(token, first=place == 0) for place, token in enumerate(ids)]
        return {"object": "tokens", "model": self._name, "tokens": written, "ids": ids}

    async def _completions(self, body: bytes) -> dict[str, Any]:
        asked = await asyncio.to_thread(
            read_completion, body, self._model, self._name, self._most_characters, seed=self._seed
        )
        choices, usage = await self._written(asked)
        return {**self._begin("cmpl", body), "object": "text_completion", "choices": choices, "usage": usage}

    async def _chat(self, body: bytes) -> dict[str, Any] | Response:
        asked = await asyncio.to_thread(
            read_chat, body, self._model, self._name, self._most_characters, seed=self._seed
        )
        choices, usage = await self._written(asked)
        begin = self._begin("chatcmpl", body)
        if asked.stream:
            return streamed_answer(begin, choices, usage if asked.counts else None)
        return whole_answer(begin, choices, usage)

    def _begin(self, kind: str, body: bytes) -> dict[str, Any]:
        """What every answer has, with an id that is made from the request."""
        name = f"{kind}-{hashlib.sha256(body).hexdigest()[:24]}"
        return {"id": name, "created": int(time.time()), "model": self._name}

    async def _written(self, asked: Completion) -> tuple[list[dict[str, Any]], dict[str, int]]:
        """The choices, and how many tokens were read and written."""
        try:
            check_possible(self._model, asked)
            choices, written = await self.batcher.ask(asked)
        except (IndexError, TooLongError):
            # Ids were checked, so what a network did not find is a position: it has an embedding for each, and these are too few.
            longest = max(map(len, asked.prompts)) + asked.max_tokens
            raise too_long(f"{longest:,} tokens") from None
        read = sum(map(len, asked.prompts))
        usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        return choices, usage


async def _while_connected(receive: Receive, answering: Coroutine[Any, Any, _Answer]) -> _Answer:
    """An answer; ClientDisconnect if its client leaves first."""
    work, leaving = asyncio.ensure_future(answering), asyncio.ensure_future(receive())
    try:
        await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return work.result()
    finally:
        work.cancel()
        leaving.cancel()
