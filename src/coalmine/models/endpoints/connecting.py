"""`connect`: a model at an OpenAI-compatible endpoint, described by a URL, a TOML file or an `Endpoint`, as what it was seen to do.

A server that gives the log-probabilities of a prompt is a scorer, one that gives the likeliest next tokens a ranker, and one that
gives only text a generator. A chat endpoint is a scorer of turns if it lists the likeliest tokens and continues a turn that it is given.
The key comes from an environment variable, and goes to the server and nowhere else.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from coalmine.errors import InputError, ModelError
from coalmine.models.endpoints.adapters import EndpointGenerator, EndpointRanker, EndpointScorer
from coalmine.models.endpoints.address import KEY_VARIABLE, checked_url, key_from_environment
from coalmine.models.endpoints.answers import Conversation
from coalmine.models.endpoints.cache import AnswerCache
from coalmine.models.endpoints.chat import ChatEndpointGenerator, ChatEndpointRanker
from coalmine.models.endpoints.chat_scoring import ChatEndpointScorer
from coalmine.models.endpoints.client import Client, model_names
from coalmine.models.endpoints.http import Connection, EndpointRefusedError
from coalmine.models.endpoints.identity import Identity
from coalmine.models.endpoints.limits import Budget, RateLimit
from coalmine.models.endpoints.probing import PROBE_TEXTS, Capability, probe
from coalmine.models.endpoints.probing_chat import probe_prefill
from coalmine.models.endpoints.probing_scores import MOST_NOISE_BITS
from coalmine.models.endpoints.tokens import LocalTokenizer
from coalmine.progress import Progress
from coalmine.storage.decoding import UndecodableError, decode_toml
from coalmine.storage.files import read_bytes

# What a server says that has no such path or method.
_NOT_THERE = {404, 405, 501}
_CHAT_PATH = "/chat/completions"
_ADAPTERS: dict[str, type[EndpointGenerator]] = {
    "scorer": EndpointScorer,
    "ranker": EndpointRanker,
    "generator": EndpointGenerator,
    "chat scorer": ChatEndpointScorer,
    "chat ranker": ChatEndpointRanker,
    "chat generator": ChatEndpointGenerator,
}

__all__ = [
    "ChatEndpointGenerator",
    "ChatEndpointRanker",
    "ChatEndpointScorer",
    "Endpoint",
    "EndpointGenerator",
    "EndpointRanker",
    "EndpointScorer",
    "connect",
    "read_endpoint",
]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach a model at an OpenAI-compatible endpoint, and how much may be asked. A TOML file may have the same fields.

    The key itself is never one of them: `key_variable` names the environment variable that holds it.

    >>> Endpoint(url="http://127.0.0.1:8000/v1", most_requests=1000).timeout
    60.0

    Attributes:
        url: the base of the API, such as http://127.0.0.1:8000/v1.
        model: its name at the server; None takes the only one there is.
        api: what the server is asked for: "completions", "chat" (chat completions), or "auto": completions where the server has them. A
            URL that ends in /chat/completions means "chat".
        tokenizer: a directory with the tokenizer.json of the model; None takes the tokens that the server shows.
        context: a text that is put before each text and not scored, such as the model's document separator.
        key_variable: the environment variable with the key. No other is read.
        concurrency: how many requests may be in flight at a time.
        requests_per_second: how many may begin per second.
        most_requests: how many may be sent in all, retries included.
        most_cost: what they may cost, in the currency of `cost_per_million_tokens`.
        cost_per_million_tokens: the price of a million tokens, read or written.
        request_fields: further fields for each request, such as {"repeat_penalty": 1.0} where a server has a penalty.
        noise_bits: how far apart the server's answers to one question are, in bits, where that is known to be more than the first
            test shows.
        retries: how often a request that failed is sent again.
        timeout: how many seconds an answer may take.
    """

    url: str
    model: str | None = None
    api: Literal["auto", "completions", "chat"] = "auto"
    tokenizer: str | None = None
    context: str = ""
    key_variable: str = KEY_VARIABLE
    concurrency: int = 4
    requests_per_second: float | None = None
    most_requests: int | None = None
    most_cost: float | None = None
    cost_per_million_tokens: float | None = None
    request_fields: dict[str, Any] = {}
    noise_bits: float = 0.0
    retries: int = 6
    timeout: float = 60.0


def connect(
    endpoint: str | Endpoint,
    *,
    cache: str | os.PathLike[str] | None = None,
    back_off: float = 0.5,
    probe_texts: Sequence[str] = PROBE_TEXTS,
    progress: Progress | None = None,
    **settings: Any,
) -> EndpointScorer | EndpointRanker | EndpointGenerator:
    """Connect to a model at an OpenAI-compatible endpoint; what it can do is found out by asking about `probe_texts`.

    >>> with connect("http://127.0.0.1:8000/v1", cache="answers.sqlite") as model:  # doctest: +SKIP
    ...     model.describe()["capability"]
    'scorer'

    Args:
        endpoint: the base URL of the API, or an `Endpoint`.
        cache: a file that keeps the answers, so that nothing is asked twice. It holds the texts: mode 0600.
        back_off: how many seconds to wait before the first retry; the wait doubles from one to the next.
        probe_texts: what to test the server with; the first text that it can read is used.
        progress: is informed of batches of requests.
        settings: the other fields of an `Endpoint`, such as `context`, `concurrency` or `most_requests`.
    """
    described = Endpoint(url=endpoint) if isinstance(endpoint, str) else endpoint
    told = _with_api(msgspec.structs.replace(described, **settings))
    if not 0 <= told.noise_bits <= MOST_NOISE_BITS:
        raise InputError(
            f"noise_bits must be from 0 to {MOST_NOISE_BITS}, got {told.noise_bits}; a server with more noise than that measures nothing"
        )
    connection = _connection(told, back_off)
    local = None if told.tokenizer is None else LocalTokenizer(told.tokenizer)
    name = told.model if told.model is not None else _only_model(connection)
    client = Client(
        connection,
        name,
        # Completions and chats of one model are recognized by different answers.
        AnswerCache(
            cache,
            url=connection.url + (_CHAT_PATH if told.api == "chat" else ""),
            model=name,
            request_fields=told.request_fields,
        ),
        request_fields=told.request_fields,
        concurrency=told.concurrency,
        progress=progress,
    )
    client.quotes_errors = True
    found = _probed(client, told, probe_texts)
    client.quotes_errors = False
    capability = _recognized(client, found, told)
    _warn_unless_greedy(capability, f"{name!r} at {connection.url}")
    return _ADAPTERS[capability.name](client, capability, context=told.context, local=local)


def read_endpoint(where: str | os.PathLike[str]) -> Endpoint:
    """The endpoint at a URL, or the one that a TOML file describes."""
    text = os.fspath(where)
    if text.lower().startswith(("http://", "https://")):
        return Endpoint(url=text)
    try:
        return msgspec.convert(decode_toml(read_bytes(Path(text), "the endpoint's file")), Endpoint)
    except (UndecodableError, msgspec.ValidationError) as problem:
        raise InputError(
            f"{text} does not describe an endpoint ({problem}); see docs/guides/endpoints.md"
        ) from None


def _with_api(told: Endpoint) -> Endpoint:
    """The same endpoint, with the base of the API as its URL."""
    if told.api not in {"auto", "completions", "chat"}:
        raise InputError(f"api must be one of auto, completions and chat, got {told.api!r}")
    url = told.url.rstrip("/")
    if url.endswith(_CHAT_PATH):
        told = msgspec.structs.replace(told, url=url.removesuffix(_CHAT_PATH), api="chat")
    if told.api == "chat" and told.context:
        raise InputError(
            "a chat endpoint puts its template before a text, so there is no context to choose; leave out context"
        )
    return told


def _probed(client: Client, told: Endpoint, texts: Sequence[str]) -> Capability:
    """What the server can do, with completions where it has them and may be asked for them."""
    if told.api != "chat":
        try:
            return probe(client, context=told.context, texts=texts)
        except EndpointRefusedError as problem:
            if told.api != "auto" or told.context or problem.status not in _NOT_THERE:
                raise
            refused = problem
    try:
        return probe_prefill(client, probe(client, texts=texts, chat=Conversation()))
    except EndpointRefusedError as problem:
        if told.api == "auto" and problem.status in _NOT_THERE:
            raise refused from None
        raise


def _connection(told: Endpoint, back_off: float) -> Connection:
    address = checked_url(told.url)
    return Connection(
        address,
        key_from_environment(told.key_variable, address),
        retries=told.retries,
        timeout=told.timeout,
        back_off=back_off,
        rate=RateLimit(told.requests_per_second),
        budget=Budget(told.most_requests, told.most_cost, told.cost_per_million_tokens),
    )


def _recognized(client: Client, capability: Capability, told: Endpoint) -> Capability:
    """What a server can do, once it is known to be the one that filled the cache; from now on it is tested for being the same."""
    finest = max(capability.resolution_bits, 2 * told.noise_bits)
    capability = msgspec.structs.replace(capability, resolution_bits=finest)
    identity = Identity(client, capability, context=told.context)
    identity.check_cache()
    client.watch_with(identity)
    return msgspec.structs.replace(capability, identity_sha256=identity.sha256)


def _warn_unless_greedy(capability: Capability, model: str) -> None:
    for kept, problem in (
        (capability.deterministic, "continues the same prompt in different ways"),
        (capability.greedy, "does not continue a prompt with its likeliest tokens"),
    ):
        if not kept:
            warnings.warn(
                f"{model} {problem}, although it was asked to be greedy; what it generates shows less than it knows",
                stacklevel=3,
            )


def _only_model(connection: Connection) -> str:
    names = model_names(connection)
    if len(names) != 1:
        listed = ", ".join(repr(name) for name in names[:20]) or "none"
        raise ModelError(f"the server has {len(names)} models, so one must be named (model): {listed}")
    return names[0]
