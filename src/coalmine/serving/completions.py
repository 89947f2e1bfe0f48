"""Completions: choices while they are written, and the one thread that asks the model, for all requests that wait together."""

from __future__ import annotations

import asyncio
import codecs
import math
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from coalmine.errors import ModelOutputError, NotMeasurableError, TooLongError
from coalmine.models.endpoints.token_texts import TokenTexts
from coalmine.models.inference.sampling import continue_prompts, draw
from coalmine.models.protocols import (
    FloatArray,
    Lister,
    Model,
    Scorer,
    Stepper,
    TokenSequence,
    max_length,
)
from coalmine.randomness import arrays
from coalmine.serving.requests import Completion

ABOVE_ZERO_BITS = 1e-3  # what rounding may make of a log-probability of 0
NATS = math.log(2)  # in a bit

Answered = tuple[list[dict[str, Any]], int]
MOST_SCORED = 32  # texts at a time, between which it is seen whether a client has left


class _Queued(NamedTuple):
    request: Completion
    future: Future[Answered]
    left: threading.Event  # the client has


def check_possible(model: Model, request: Completion) -> None:
    """Refuse a request that this model cannot answer, and say why."""
    most, longest = max_length(model), max(map(len, request.prompts), default=0)
    if most is not None and longest > most:
        raise TooLongError(f"a text of {longest} tokens is longer than the {most} that the model can read")
    if request.logprobs is not None and not isinstance(model, Scorer):
        raise NotMeasurableError("this model does not give the probabilities of tokens; ask without logprobs")
    if request.logprobs and not isinstance(model, Lister):
        raise NotMeasurableError("this model does not list its most likely tokens; ask with logprobs=0")
    if request.max_tokens and not isinstance(model, Stepper):
        raise NotMeasurableError("this model cannot continue a text; ask with max_tokens=0 and echo")


class Batcher:
    """Computes up to `most` of the requests that wait together; each must be possible."""

    def __init__(self, model: Any, texts: TokenTexts, *, most: int) -> None:
        self._model, self._texts, self._most = model, texts, most
        self._waiting: queue.SimpleQueue[_Queued | None] = queue.SimpleQueue()
        # A daemon, so that a model that computes for hours does not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name="coalmine-model", daemon=True)
        self._thread.start()

    async def ask(self, request: Completion) -> Answered:
        """The choices, in OpenAI's shape, and how many tokens were generated; what the model raises is raised here."""
        one = _Queued(request, Future(), threading.Event())
        self._waiting.put(one)
        try:
            return await asyncio.wrap_future(one.future)
        except asyncio.CancelledError:
            one.left.set()
            raise

    def close(self, *, patience: float) -> None:
        """End the thread, after what it computes, if that takes no more than `patience` seconds."""
        self._waiting.put(None)
        self._thread.join(patience)

    @property
    def is_computing(self) -> bool:
        """Whether the thread still runs, after `close` with an answer that took longer than the patience."""
        return self._thread.is_alive()

    def _work(self) -> None:
        for first in iter(self._waiting.get, None):
            batch = [first]
            while len(batch) < self._most and not self._waiting.empty():
                if (one := self._waiting.get()) is None:
                    self._waiting.put(None)  # for the loop above, which it ends
                    break
                batch.append(one)
            # A request whose client has left, or waits no longer, is not computed.
            self._settle([one for one in batch if one.future.set_running_or_notify_cancel()])

    def _settle(self, batch: Sequence[_Queued]) -> None:
        try:
            answers = _complete(self._model, self._texts, batch)
        except Exception as problem:  # noqa: BLE001 - raised again where the request was made
            if len(batch) == 1:
                batch[0].future.set_exception(problem)
            else:  # one of them is at fault: the others are answered as if it had not been there
                for one in batch:
                    self._settle([one])
        else:
            for one, answer in zip(batch, answers, strict=True):
                one.future.set_result(answer)


def _complete(model: Any, texts: TokenTexts, batch: Sequence[_Queued]) -> list[Answered]:
    """The answers to several requests, which are computed together; what a client that has left gets is not complete."""
    rows = [
        [
            Draft(one, *which, texts)
            for which in product(range(len(one.request.prompts)), range(one.request.n))
        ]
        for one in batch
    ]
    choices = [choice for its in rows for choice in its]
    if writing := [choice for choice in choices if choice.request.max_tokens]:
        continue_prompts(
            model,
            [choice.request.context(model) + choice.prompt for choice in writing],
            lambda row, log2: writing[row].extend(log2, writing[row].request.ends(model)),
            length=max(choice.request.max_tokens for choice in writing),
        )
    scored = [choice for choice in choices if choice.shown and choice.request.logprobs is not None]
    for begin in range(0, len(scored), MOST_SCORED):
        _score(model, [one for one in scored[begin : begin + MOST_SCORED] if not one.left.is_set()])
    return [
        ([], 0)
        if one.left.is_set()
        else (
            [draft.answer(index) for index, draft in enumerate(its)],
            sum(len(draft.written) for draft in its),
        )
        for one, its in zip(batch, rows, strict=True)
    ]


def _score(model: Any, scored: Sequence[Draft]) -> None:
    """Give choices their numbers."""
    if scored:
        for choice, score in zip(scored, model.score([one.text(model) for one in scored]), strict=True):
            _check_bits(score.log2_probabilities)
            choice.bits = score.log2_probabilities.tolist()
    if listed := [choice for choice in scored if choice.request.logprobs]:
        most = max(choice.request.logprobs or 0 for choice in listed)
        tops = model.likeliest([choice.text(model) for choice in listed], k=most)
        for choice, its in zip(listed, tops, strict=True):
            choice.listed = its


class Draft:
    """One choice while it is written: its tokens, and the text that they make."""

    def __init__(self, one: _Queued, prompt: int, number: int, texts: TokenTexts) -> None:
        """Choice `number` for prompt number `prompt` of a request."""
        request = one.request
        self.request, self.left, self.prompt = request, one.left, request.prompts[prompt]
        self.written: list[int] = []
        self.shown: list[int] = []
        self.bits: list[float] = []  # the log2 probability of each token that is shown
        self.listed: list[list[tuple[int, float]]] = []  # the likeliest tokens in its place, with theirs
        self._offsets: list[int] = []  # where each token begins in the text, in characters
        self._text, self._finish_reason = "", "length"
        self._texts, self._begins = texts, request.echo or not self.prompt
        # A character whose last byte has not come yet is not in the text yet.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # A stream of its own, so that what is sampled here does not depend on any other choice, prompt or request.
        self._random = arrays(request.seed, "serve", prompt, number)
        for token in self.prompt if request.echo else ():
            self._show(token)
        self._echoed, self._start = len(self.shown), len(self._text)

    def extend(self, log2_probabilities: FloatArray, ends: frozenset[int]) -> int | None:
        """Choose the next token; `ends` are tokens that end a document or a turn. Returns it if more are to come."""
        if self.left.is_set():
            return None
        request = self.request
        _check_bits(log2_probabilities.max())  # NaN where any is; minus infinity is allowed elsewhere
        token = draw(log2_probabilities, request.temperature, request.top_p, self._random.random())
        if token in ends:
            self._finish_reason = "stop"
            if request.in_chat:
                self.shown.append(token)
                self._offsets.append(len(self._text))
            return None
        self.written.append(token)
        self._show(token)
        found = [self._text.find(stop, self._start) for stop in request.stop]
        if places := [place for place in found if place >= 0]:
            self._stop(min(places))
        return None if places or len(self.written) == request.max_tokens else token

    def text(self, model: Model) -> TokenSequence:
        """What is shown, after all that comes before it."""
        context = self.request.context(model)
        before = context if self.request.echo else context + self.prompt
        return TokenSequence(before, tuple(self.shown))

    def answer(self, index: int) -> dict[str, Any]:
        """In OpenAI's shape for completions, or what chat completions are made of."""
        if self.request.in_chat:
            return self._turn(index)
        tops = [self._top(place, listed) for place, listed in enumerate(self.listed)]
        logprobs = {
            "tokens": [self._spelled(place, token) for place, token in enumerate(self.shown)],
            "token_logprobs": [bits * NATS for bits in self.bits],
            "top_logprobs": tops if self.request.logprobs else None,
            "text_offset": self._offsets,
        }
        return {
            "text": self._text + self._decoder.decode(b"", final=True),
            "index": index,
            "finish_reason": self._finish_reason,
            "logprobs": None if self.request.logprobs is None else logprobs,
        }

    def _turn(self, index: int) -> dict[str, Any]:
        """A turn of a chat: its text, whole and token by token, and the log-probabilities in each place."""
        text = self._text + self._decoder.decode(b"", final=True)
        ends = [*self._offsets[1:], len(text)] if self._offsets else []
        places = [
            self._number(place, token, bits)
            | {
                "top_logprobs": [
                    self._number(place, *one)
                    for one in (self.listed[place][: self.request.logprobs] if self.listed else ())
                    if math.isfinite(one[1])
                ]
            }
            for place, (token, bits) in enumerate(
                zip(self.shown, self.bits, strict=self.request.logprobs is not None)
            )
        ]
        return {
            "text": text,
            "deltas": [text[begin:end] for begin, end in zip(self._offsets, ends, strict=True)],
            "places": None if self.request.logprobs is None else places,
            "index": index,
            "finish_reason": self._finish_reason,
        }

    def _number(self, place: int, token: int, bits: float) -> dict[str, Any]:
        piece = self._texts.piece(token, first=self._begins and place == 0)
        return {"token": self._spelled(place, token), "logprob": bits * NATS, "bytes": list(piece)}

    def _show(self, token: int) -> None:
        piece = self._texts.piece(token, first=self._begins and not self.shown)
        self.shown.append(token)
        self._offsets.append(len(self._text))
        self._text += self._decoder.decode(piece)

    def _stop(self, length: int) -> None:
        """Keep the first `length` characters, and the tokens that begin within them."""
        kept = max(self._echoed, sum(offset < length for offset in self._offsets))
        del self.shown[kept:], self._offsets[kept:]
        self._text, self._finish_reason = self._text[:length], "stop"
        self._decoder.reset()

    def _spelled(self, place: int, token: int) -> str:
        return self._texts.written(token, first=self._begins and place == 0)

    def _top(self, place: int, listed: list[tuple[int, float]]) -> dict[str, float]:
        """The most likely tokens in one place and the token that is there, with the same number as it has alone."""
        own, bits, top = self.shown[place], self.bits[place], dict[str, float]()
        for token, its in [*listed[: self.request.logprobs], (own, bits)]:
            # Of two tokens with the same text the more likely is listed; impossible ones have no number in JSON.
            if math.isfinite(its):
                top.setdefault(self._spelled(place, token), (bits if token == own else its) * NATS)
        return top


def _check_bits(bits: FloatArray) -> None:
    """Refuse numbers that are not the log-probabilities of something possible."""
    if not (np.isfinite(bits) & (bits <= ABOVE_ZERO_BITS)).all():
        said = "the model gave a log-probability that is not a finite number below 0, so there is no answer"
        raise ModelOutputError(said)
