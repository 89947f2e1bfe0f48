"""Requests that a client may send: their fields and limits, one sentence for each that is wrong, and the answer that says it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from starlette.responses import Response

from coalmine.errors import InputError
from coalmine.models.protocols import Model, Tokenizer

MOST_CHOICES = 2048
_UNSUPPORTED = ("suffix", "presence_penalty", "frequency_penalty", "logit_bias")
_ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 503: "overloaded_error"}
_MORE_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1", "Connection": "close"}}
_Record = TypeVar("_Record")


class RefusedError(InputError):
    """A request that is refused, with the status and the code of the answer; only the server itself meets it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code

    @property
    def response(self) -> Response:
        """The answer that says so, in OpenAI's shape."""
        fault = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = _ERROR_TYPES.get(self.status, fault)
        error = {"message": str(self), "type": kind, "code": self.code}
        return json_response({"error": error}, self.status, _MORE_HEADERS.get(self.status))


class Completion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for completions, and what is meant by a field that is absent."""

    prompts: tuple[tuple[int, ...], ...] = msgspec.field(name="prompt")
    max_tokens: Annotated[int, msgspec.Meta(ge=0, le=4096)] = 16
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] = 1.0
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    n: Annotated[int, msgspec.Meta(ge=1, le=MOST_CHOICES)] = 1
    stop: Annotated[tuple[Annotated[str, msgspec.Meta(min_length=1)], ...], msgspec.Meta(max_length=4)] = ()
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    echo: bool = False
    seed: int

    @property
    def in_chat(self) -> bool:
        """Whether tokens are reported as in a chat: with the one that ends a turn, whose text is empty if it is the only one."""
        return False

    def context(self, model: Model) -> tuple[int, ...]:
        """What comes before each prompt."""
        return model.context

    def ends(self, model: Model) -> frozenset[int]:
        """The tokens that end a text."""
        return frozenset(model.context[-1:])


class _Tokenize(msgspec.Struct, forbid_unknown_fields=True):
    prompt: str


def too_long(what: str) -> RefusedError:
    """The refusal of a text that does not fit into the model."""
    said = f"the model cannot read a text of {what}; its own context is probably shorter"
    return RefusedError(400, "context_length_exceeded", said)


def check_characters(texts: Sequence[str], most: int | None) -> None:
    """Refuse a text that is too long whatever its tokens are, before minutes and gigabytes are spent on cutting it into tokens."""
    longest = max(map(len, texts), default=0)
    if most is not None and longest > most:
        raise too_long(f"{longest:,} characters")


def read_completion(
    body: bytes, model: Model, name: str, most_characters: int | None, *, seed: int
) -> Completion:
    """The request in a body; `name` is what the model is served as, `seed` is for requests that name none."""
    given = {"seed": seed} | named_fields(body, name, ignored={"user", "stream_options"})
    # A neutral value is accepted and any other refused: to ignore one would silently change numbers.
    if given.pop("stream", False):
        raise InputError("this server does not stream; ask without stream, and the answer comes in one piece")
    if given.pop("best_of", n := given.get("n", 1)) != n:
        raise InputError("this server does not support best_of; ask for n choices and choose among them")
    refuse_unsupported(given, _UNSUPPORTED)
    if "prompt" in given:
        given["prompt"] = _token_ids(given["prompt"], model.tokenizer, most_characters)
    if isinstance(given.get("stop"), str):
        given["stop"] = [given["stop"]]
    asked = checked(given, Completion)
    if len(asked.prompts) * asked.n > MOST_CHOICES:
        said = f"got {len(asked.prompts)} prompts of n={asked.n}; send several requests"
        raise InputError(f"a request may ask for {MOST_CHOICES} choices, {said}")
    return asked


def refuse_unsupported(given: dict[str, Any], fields: Sequence[str]) -> None:
    """Refuse fields that would change the answer, and remove them where their value changes nothing."""
    for field in fields:
        if given.pop(field, None):
            raise InputError(f"this server does not support {field}; ask without it")


def read_tokenize(body: bytes, model: Model, name: str, most_characters: int | None) -> list[int]:
    """The token ids of the text in a body."""
    given = named_fields(body, name, ignored={"user", "stream_options"})
    text = checked(given, _Tokenize).prompt
    check_characters([text], most_characters)
    return model.tokenizer.encode(text)


def json_response(
    document: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """An answer."""
    return Response(msgspec.json.encode(document), status, headers, "application/json")


def named_fields(body: bytes, name: str, *, ignored: set[str]) -> dict[str, Any]:
    """The fields of a request to the model of this name, without those that are `ignored`; as with OpenAI, null means absent."""
    try:
        given = checked(msgspec.json.decode(body), dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InputError("the body of the request is not valid JSON in UTF-8; send one JSON object") from None
    if given.pop("model", None) not in (None, name):
        raise RefusedError(404, "model_not_found", f"there is no model of that name; this is {name!r}")
    return {field: value for field, value in given.items() if value is not None and field not in ignored}


def checked(given: Any, kind: type[_Record]) -> _Record:
    """A record of the given fields."""
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as problem:
        raise InputError(f"the request has a wrong field: {problem}") from None


def _token_ids(prompt: Any, tokenizer: Tokenizer, most_characters: int | None) -> tuple[tuple[int, ...], ...]:
    """One sequence of ids per prompt: the prompt may be a text, texts, ids, or lists of ids."""
    if prompt == []:
        raise InputError("prompt is an empty list; give a text, texts, token ids, or lists of token ids")
    several = isinstance(prompt, list) and isinstance(prompt[0], str | list)
    prompts = prompt if several else [prompt]
    if all(isinstance(one, str) for one in prompts):
        check_characters(prompts, most_characters)
        return tuple(tuple(tokenizer.encode(one)) for one in prompts)
    try:
        lists = msgspec.convert(prompts, tuple[tuple[int, ...], ...])
    except msgspec.ValidationError:
        said = "prompt must be a text, a list of texts, a list of token ids or a list of such lists, not a mixture"
        raise InputError(said) from None
    for token in (token for ids in lists for token in ids if not 0 <= token < tokenizer.size):
        raise InputError(f"token ids of this model are 0 to {tokenizer.size - 1}, got {token}")
    return lists
