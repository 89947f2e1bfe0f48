"""Answers to completion requests: a queue in which they wait for each other, and the one thread that asks the model."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from itertools import product
from typing import Any

from coalmine.errors import NotMeasurableError
from coalmine.models.protocols import Lister, Model, Scorer, Stepper, TokenSequence
from coalmine.serving.generation import Choice, TokenTexts, check_bits, generate
from coalmine.serving.requests import Completion

Answered = tuple[list[dict[str, Any]], int]
_Waiting = tuple[Completion, "Future[Answered]"]


def check_possible(model: Model, request: Completion) -> None:
    """Refuse a request that this model cannot answer, and say why."""
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
        self._waiting: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        # A daemon, so that a model that computes for hours does not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name="coalmine-model", daemon=True)
        self._thread.start()

    async def ask(self, request: Completion) -> Answered:
        """The choices, in OpenAI's shape, and how many tokens were generated; what the model raises is raised here."""
        future: Future[Answered] = Future()
        self._waiting.put((request, future))
        return await asyncio.wrap_future(future)

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
            # A request whose client the server has stopped waiting for is not computed.
            self._settle([one for one in batch if one[1].set_running_or_notify_cancel()])

    def _settle(self, batch: Sequence[_Waiting]) -> None:
        try:
            answers = _complete(self._model, self._texts, [request for request, _ in batch])
        except Exception as problem:  # noqa: BLE001 - raised again where the request was made
            if len(batch) == 1:
                batch[0][1].set_exception(problem)
            else:  # one of them is at fault: the others are answered as if it had not been there
                for one in batch:
                    self._settle([one])
        else:
            for (_, future), answer in zip(batch, answers, strict=True):
                future.set_result(answer)


def _complete(model: Any, texts: TokenTexts, requests: Sequence[Completion]) -> list[Answered]:
    """The answers to several requests, which are computed together."""
    rows = [
        [Choice(request, *which, texts) for which in product(range(len(request.prompts)), range(request.n))]
        for request in requests
    ]
    choices = [choice for its in rows for choice in its]
    if writing := [choice for choice in choices if choice.request.max_tokens]:
        generate(model, writing)
    scored = _texts_of(model, (choice for choice in choices if choice.request.logprobs is not None))
    listed = _texts_of(model, (choice for choice in choices if choice.request.logprobs))
    most = max((choice.request.logprobs or 0 for choice in choices), default=0)
    for text, score in zip(scored, model.score(list(scored)) if scored else (), strict=True):
        check_bits(score.log2_probabilities)
        for choice in scored[text]:
            choice.bits = score.log2_probabilities.tolist()
    for text, tops in zip(listed, model.likeliest(list(listed), k=most) if listed else (), strict=True):
        for choice in listed[text]:
            choice.listed = tops
    return [
        (
            [choice.answer(index) for index, choice in enumerate(its)],
            sum(len(choice.written) for choice in its),
        )
        for its in rows
    ]


def _texts_of(model: Model, choices: Iterable[Choice]) -> dict[TokenSequence, list[Choice]]:
    """What the choices show, after all that comes before it; a text that several choices show is there once."""
    texts: dict[TokenSequence, list[Choice]] = {}
    for choice in choices:
        before = model.context if choice.request.echo else model.context + choice.prompt
        if choice.shown:
            texts.setdefault(TokenSequence(before, tuple(choice.shown)), []).append(choice)
    return texts
