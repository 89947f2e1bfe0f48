"""Answers to a batch of completion requests: the one place where the server asks the model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from coalmine.errors import ModelOutputError, NotMeasurableError
from coalmine.models.protocols import FloatArray, Lister, Model, Scorer, Stepper, TokenSequence
from coalmine.serving.generation import ABOVE_ZERO_BITS, Continuation, generate
from coalmine.serving.requests import Completion
from coalmine.serving.token_text import TokenTexts, Transcript

NATS = math.log(2)  # in a bit

Answered = tuple[list[dict[str, Any]], int]
Tops = list[list[tuple[int, float]]]


def check_possible(model: Model, request: Completion) -> None:
    """Refuse a request that this model cannot answer, and say why."""
    if request.echo and request.logprobs is not None and not isinstance(model, Scorer):
        raise NotMeasurableError(
            "this model does not give the probabilities of a prompt's tokens; ask without logprobs"
        )
    lists = isinstance(model, Lister) if request.echo else isinstance(model, Stepper)
    if request.logprobs and not lists:
        raise NotMeasurableError(
            "this model does not list its most likely tokens, only the probability of given ones; ask with logprobs=0"
        )
    if request.max_tokens and not isinstance(model, Stepper):
        raise NotMeasurableError("this model cannot continue a text; ask with max_tokens=0 and echo")


def complete(model: Any, texts: TokenTexts, requests: Sequence[Completion]) -> list[Answered]:
    """The choices of each request, in OpenAI's shape, and how many tokens were generated for it; all are computed together.

    The model's context is put before each prompt and is not part of the answer.
    """
    for request in requests:
        check_possible(model, request)
    scores = _echo_scores(model, [request for request in requests if _scored(request)])
    tops = _echo_tops(model, [request for request in requests if _scored(request) and request.logprobs])
    rows = [
        [
            Continuation(request, prompt, choice, texts)
            for prompt in range(len(request.prompts))
            for choice in range(request.n)
        ]
        for request in requests
    ]
    writing = [row for request, its in zip(requests, rows, strict=True) if request.max_tokens for row in its]
    if writing:
        generate(model, writing)
    return [
        (
            [_choice(request, row, index, texts, scores, tops) for index, row in enumerate(its)],
            sum(len(row.tokens) for row in its),
        )
        for request, its in zip(requests, rows, strict=True)
    ]


def _scored(request: Completion) -> bool:
    return request.echo and request.logprobs is not None


def _echo_scores(model: Scorer, requests: Sequence[Completion]) -> dict[tuple[int, ...], FloatArray]:
    """The log2 probability of each token of each prompt."""
    prompts = sorted({prompt for request in requests for prompt in request.prompts if prompt})
    if not prompts:
        return {}
    scores = model.score([TokenSequence(context=model.context, target=prompt) for prompt in prompts])
    for score in scores:
        bits = score.log2_probabilities
        if not (np.isfinite(bits).all() and bits.max() <= ABOVE_ZERO_BITS):
            raise ModelOutputError(
                "the model gave a token of the prompt a log-probability that is not a finite number below 0, so there is no answer"
            )
    return {prompt: score.log2_probabilities for prompt, score in zip(prompts, scores, strict=True)}


def _echo_tops(model: Lister, requests: Sequence[Completion]) -> dict[tuple[int, ...], Tops]:
    """The most likely tokens at each position of each prompt."""
    most: dict[tuple[int, ...], int] = {}
    for request in requests:
        for prompt in request.prompts:
            most[prompt] = max(most.get(prompt, 0), request.logprobs or 0)
    tops: dict[tuple[int, ...], Tops] = {}
    for count in sorted(set(most.values())):
        alike = [prompt for prompt in most if most[prompt] == count]
        texts = [TokenSequence(context=model.context, target=prompt) for prompt in alike]
        tops |= zip(alike, model.likeliest(texts, k=count), strict=True)
    return tops


def _choice(
    request: Completion,
    row: Continuation,
    index: int,
    texts: TokenTexts,
    scores: dict[tuple[int, ...], FloatArray],
    tops: dict[tuple[int, ...], Tops],
) -> dict[str, Any]:
    echoed = Transcript(texts, first=True)
    if request.echo:
        for token in row.prompt:
            echoed.add(token)
        echoed.end()
    logprobs = None
    if request.logprobs is not None:
        kept = row.tokens[: len(row.transcript.tokens)]
        tokens = (*(row.prompt if request.echo else ()), *kept)
        own = [*(scores.get(row.prompt, ()) if request.echo else ()), *row.log2_probabilities]
        logprobs = {
            "tokens": echoed.tokens + row.transcript.tokens,
            "token_logprobs": [float(bits) * NATS for bits in own],
            "top_logprobs": None,
            "text_offset": echoed.offsets + [len(echoed.text) + offset for offset in row.transcript.offsets],
        }
        if request.logprobs:
            listed = [*(tops.get(row.prompt, []) if request.echo else []), *row.tops]
            begins = request.echo or not row.prompt  # whether the first listed token begins its text
            logprobs["top_logprobs"] = [
                _top(some[: request.logprobs], token, float(bits), texts, first=begins and place == 0)
                for place, (some, token, bits) in enumerate(zip(listed, tokens, own, strict=True))
            ]
    return {
        "text": echoed.text + row.transcript.text,
        "index": index,
        "finish_reason": row.finish_reason,
        "logprobs": logprobs,
    }


def _top(
    likeliest_tokens: list[tuple[int, float]], own: int, own_bits: float, texts: TokenTexts, *, first: bool
) -> dict[str, float]:
    """The most likely tokens at one position and the token that is there, with the same number as it has alone."""
    top: dict[str, float] = {}
    for token, bits in likeliest_tokens:
        # Of two tokens with the same text the more likely is listed; impossible ones have no number in JSON.
        if math.isfinite(bits):
            top.setdefault(texts.written(token, first=first), (own_bits if token == own else bits) * NATS)
    top.setdefault(texts.written(own, first=first), own_bits * NATS)
    return top
