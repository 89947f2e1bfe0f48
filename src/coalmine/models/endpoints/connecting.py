"""Models behind an OpenAI-compatible endpoint, as audits see them: by what the server was seen to do.

    from coalmine.models.endpoints.connecting import connect
    model = connect("http://127.0.0.1:8000/v1", cache="answers.sqlite")
    model.describe()["capability"]

A server that gives the log-probabilities of a prompt is a Scorer, one that gives the likeliest next tokens a Ranker, and one that
gives only text a Generator. The key comes from an environment variable, and goes to the server and nowhere else.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from coalmine.errors import InputError, ModelError
from coalmine.models.endpoints.adapters import EndpointGenerator, EndpointRanker, EndpointScorer
from coalmine.models.endpoints.address import KEY_VARIABLE, checked_url, key_from_environment
from coalmine.models.endpoints.cache import AnswerCache
from coalmine.models.endpoints.client import Client, model_names
from coalmine.models.endpoints.http import Connection
from coalmine.models.endpoints.identity import Identity
from coalmine.models.endpoints.limits import Budget, RateLimit
from coalmine.models.endpoints.probing import PROBE_TEXTS, probe
from coalmine.models.endpoints.probing_scores import MOST_NOISE_BITS
from coalmine.models.endpoints.tokens import LocalTokenizer
from coalmine.progress import Progress

__all__ = ["EndpointGenerator", "EndpointRanker", "EndpointScorer", "connect"]


def connect(
    url: str,
    *,
    model: str | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    context: str = "",
    key_variable: str = KEY_VARIABLE,
    concurrency: int = 4,
    requests_per_second: float | None = None,
    most_requests: int | None = None,
    most_cost: float | None = None,
    cost_per_million_tokens: float | None = None,
    cache: str | os.PathLike[str] | None = None,
    retries: int = 6,
    timeout: float = 60.0,
    back_off: float = 0.5,
    request_fields: Mapping[str, Any] | None = None,
    noise_bits: float = 0.0,
    probe_texts: Sequence[str] = PROBE_TEXTS,
    progress: Progress | None = None,
) -> EndpointScorer | EndpointRanker | EndpointGenerator:
    """A model behind an OpenAI-compatible endpoint, by what it is seen to do when it is asked about `probe_texts`.

    Args:
        url: the base of the API, such as http://127.0.0.1:8000/v1.
        model: its name at the server; None takes the only one there is.
        tokenizer: a directory with the tokenizer.json of the model; None takes the tokens that the server shows.
        context: a text that is put before each text and not scored, such as the model's document separator.
        key_variable: the environment variable with the key. No other is read.
        concurrency: how many requests may be under way at a time.
        requests_per_second: how many may begin in a second.
        most_requests: how many may be sent in all, retries among them.
        most_cost: what they may cost, in the currency of `cost_per_million_tokens`.
        cost_per_million_tokens: the price of a million tokens, read or written.
        cache: a file in which answers are kept, so that nothing is asked twice. It holds the texts: mode 0600.
        retries: how often a request that failed is sent again.
        timeout: how many seconds an answer may take.
        back_off: how many seconds to wait before the first retry; the wait doubles from one to the next.
        request_fields: what else to send with each request, such as {"repeat_penalty": 1.0} where a server has a penalty.
        noise_bits: how far apart the server's answers to one question are, where that is known to be more than is seen when it is tried.
        probe_texts: what to try the server with; the first that it can read is used.
        progress: is told of batches of requests.
    """
    if not 0 <= noise_bits <= MOST_NOISE_BITS:
        raise InputError(
            f"noise_bits must be from 0 to {MOST_NOISE_BITS}, got {noise_bits}; a server with more noise than that measures nothing"
        )
    address = checked_url(url)
    connection = Connection(
        address,
        key_from_environment(key_variable, address),
        retries=retries,
        timeout=timeout,
        back_off=back_off,
        rate=RateLimit(requests_per_second),
        budget=Budget(most_requests, most_cost, cost_per_million_tokens),
    )
    local = None if tokenizer is None else LocalTokenizer(tokenizer)
    name = model if model is not None else _only_model(connection)
    client = Client(
        connection,
        name,
        AnswerCache(cache, url=address, model=name, request_fields=request_fields),
        request_fields=request_fields,
        concurrency=concurrency,
        progress=progress,
    )
    capability = probe(client, context=context, texts=probe_texts)
    finest = max(capability.resolution_bits, 2 * noise_bits)
    capability = msgspec.structs.replace(capability, resolution_bits=finest)
    identity = Identity(client, capability, context=context)
    identity.check_cache()
    client.watch_with(identity)
    capability = msgspec.structs.replace(capability, identity_sha256=identity.sha256)
    for kept, problem in (
        (capability.deterministic, "continues the same prompt in different ways"),
        (capability.greedy, "does not continue a prompt by its likeliest tokens"),
    ):
        if not kept:
            warnings.warn(
                f"{name!r} at {address} {problem}, though it was asked to be greedy; what it generates shows less than it knows",
                stacklevel=2,
            )
    adapter = {"scorer": EndpointScorer, "ranker": EndpointRanker, "generator": EndpointGenerator}[
        capability.level
    ]
    return adapter(client, capability, context=context, local=local)


def _only_model(connection: Connection) -> str:
    names = model_names(connection)
    if len(names) != 1:
        listed = ", ".join(repr(name) for name in names[:20]) or "none"
        raise ModelError(f"the server has {len(names)} models, so one must be named (model): {listed}")
    return names[0]
