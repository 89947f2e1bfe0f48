"""Requests that a client may send: their fields and limits, and one sentence for each that is wrong."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from coalmine.errors import InputError
from coalmine.models.protocols import Model

MOST_BYTES = 10_000_000
MOST_CHOICES = 2048
MOST_TOKENS = 4096
MOST_LOGPROBS = 20
DEFAULT_TOKENS = 16


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request: what to do with which tokens."""

    prompts: tuple[tuple[int, ...], ...]
    max_tokens: int
    temperature: float
    top_p: float
    n: int
    stop: tuple[str, ...]
    logprobs: int | None
    echo: bool
    seed: int


_Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
_Temperature = Annotated[float, msgspec.Meta(ge=0, le=2)]
_Tokens = Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]
_Logprobs = Annotated[int, msgspec.Meta(ge=0, le=MOST_LOGPROBS)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=MOST_CHOICES)]
_Stop = Annotated[str, msgspec.Meta(min_length=1)] | Annotated[list[Any], msgspec.Meta(max_length=4)]


class _CompletionFields(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields as they come; as with OpenAI, null means absent."""

    prompt: str | list[Any]
    model: str | None = None
    max_tokens: _Tokens | None = None
    temperature: _Temperature | None = None
    top_p: _Share | None = None
    n: _Count | None = None
    stop: _Stop | None = None
    logprobs: _Logprobs | None = None
    echo: bool | None = None
    seed: int | None = None
    user: str | None = None
    # Listed so that a neutral value is accepted and any other refused: to ignore one would silently change numbers.
    stream: bool | None = None
    stream_options: Any = None
    suffix: str | None = None
    best_of: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None


class _TokenizeFields(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    prompt: str
    model: str | None = None


class RefusedError(InputError):
    """A request that is refused, with the status and the code of the answer; only the server itself meets it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def error_document(refusal: RefusedError) -> bytes:
    """The body of a refusal, in OpenAI's shape."""
    kinds = {401: "authentication_error", 403: "permission_error", 503: "overloaded_error"}
    kind = kinds.get(refusal.status, "server_error" if refusal.status >= 500 else "invalid_request_error")
    error = {"message": str(refusal), "type": kind, "code": refusal.code}
    return msgspec.json.encode({"error": error})


_Fields = TypeVar("_Fields")


def read_completion(body: bytes, model: Model, name: str, *, seed: int) -> Completion:
    """The request in a body; `name` is what the model is served as, `seed` is for requests that name none."""
    fields = _decode(body, _CompletionFields)
    _check_name(fields.model, name)
    _refuse_unsupported(fields)
    n = fields.n or 1
    prompts = _tokens_of_prompts(fields.prompt, model)
    if len(prompts) * n > MOST_CHOICES:
        raise InputError(
            f"a request may ask for {MOST_CHOICES} choices, got {len(prompts)} prompts of n={n}; send several requests"
        )
    stop = [fields.stop] if isinstance(fields.stop, str) else fields.stop or []
    if not all(isinstance(one, str) and one for one in stop):
        raise InputError("stop must be a text or a list of up to four texts, none of them empty")
    return Completion(
        prompts=tuple(prompts),
        max_tokens=DEFAULT_TOKENS if fields.max_tokens is None else fields.max_tokens,
        temperature=1.0 if fields.temperature is None else fields.temperature,
        top_p=1.0 if fields.top_p is None else fields.top_p,
        n=n,
        stop=tuple(stop),
        logprobs=fields.logprobs,
        echo=bool(fields.echo),
        seed=seed if fields.seed is None else fields.seed,
    )


def read_tokenize(body: bytes, model: Model, name: str) -> list[int]:
    """The token ids of the text in a body."""
    fields = _decode(body, _TokenizeFields)
    _check_name(fields.model, name)
    return model.tokenizer.encode(fields.prompt)


def _decode(body: bytes, kind: type[_Fields]) -> _Fields:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as problem:
        raise InputError(f"the request has a wrong field: {problem}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InputError("the body of the request is not valid JSON in UTF-8; send one JSON object") from None


def _check_name(asked: str | None, name: str) -> None:
    if asked is not None and asked != name:
        message = f"this server has no model of that name; it serves {name!r}, as /v1/models says"
        raise RefusedError(404, "model_not_found", message)


def _refuse_unsupported(fields: _CompletionFields) -> None:
    if fields.stream:
        raise InputError("this server does not stream; ask without stream, and the answer comes in one piece")
    for field in ("suffix", "presence_penalty", "frequency_penalty", "logit_bias"):
        if getattr(fields, field):
            raise InputError(f"this server does not support {field}; ask without it")
    if fields.best_of is not None and fields.best_of != (fields.n or 1):
        raise InputError("this server does not support best_of; ask for n choices and choose among them")


def _tokens_of_prompts(prompt: str | list[Any], model: Model) -> list[tuple[int, ...]]:
    """One sequence of ids per prompt: the prompt may be a text, texts, ids, or lists of ids."""
    if isinstance(prompt, str):
        return [tuple(model.tokenizer.encode(prompt))]
    if not prompt:
        raise InputError("prompt is an empty list; give a text, texts, token ids, or lists of token ids")
    if all(isinstance(one, str) for one in prompt):
        return [tuple(model.tokenizer.encode(one)) for one in prompt]
    lists = prompt if all(isinstance(one, list) for one in prompt) else [prompt]
    return [_checked_ids(ids, model.tokenizer.size) for ids in lists]


def _checked_ids(ids: list[Any], size: int) -> tuple[int, ...]:
    for one in ids:
        if not isinstance(one, int) or isinstance(one, bool):
            raise InputError(
                "prompt must be a text, a list of texts, a list of token ids or a list of such lists, not a mixture"
            )
        if not 0 <= one < size:
            raise InputError(f"token ids of this model are 0 to {size - 1}, got {one}")
    return tuple(ids)
