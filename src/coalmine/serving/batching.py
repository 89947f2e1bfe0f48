"""How requests that come at the same time are computed at the same time: a queue, and one thread that asks the model."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from coalmine.serving.requests import RefusedError

MOST_WAITING = 512

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Batcher(Generic[Asked, Answer]):
    """Hands what waits, up to `most` requests at a time, to a function of batches that keeps their order."""

    def __init__(self, answer: Callable[[Sequence[Asked]], list[Answer]], *, most: int) -> None:
        self._answer = answer
        self._most = most
        self._waiting: queue.Queue[tuple[Asked, Future[Answer]] | None] = queue.Queue()
        self._door = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="coalmine-model", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether requests are still answered."""
        return self._thread.is_alive() and not self._closed

    def ask(self, request: Asked) -> Answer:
        """Wait for the answer; what the model raises is raised here."""
        future: Future[Answer] = Future()
        with self._door:  # so that nothing enters behind the sign that ends the queue
            if self._closed:
                raise RefusedError(503, "closing", "the server is closing; ask another one")
            if self._waiting.qsize() >= MOST_WAITING:
                raise RefusedError(
                    503, "overloaded", f"{MOST_WAITING} requests wait already; ask again in a moment"
                )
            self._waiting.put((request, future))
        return future.result()

    def close(self, *, patience: float) -> None:
        """Answer what waits already, for up to `patience` seconds, and take nothing more."""
        with self._door:
            self._closed = True
            self._waiting.put(None)
        self._thread.join(patience)

    def _work(self) -> None:
        while batch := self._next_batch():
            self._settle(batch)

    def _next_batch(self) -> list[tuple[Asked, Future[Answer]]]:
        """One request, waited for, and what else has come meanwhile; nothing when the queue has ended."""
        batch: list[tuple[Asked, Future[Answer]]] = []
        while len(batch) < self._most:
            try:
                one = self._waiting.get(block=not batch)
            except queue.Empty:
                break
            if one is None:
                self._waiting.put(None)  # for the next time this is called, which then ends
                break
            batch.append(one)
        return batch

    def _settle(self, batch: Sequence[tuple[Asked, Future[Answer]]]) -> None:
        try:
            answers = self._answer([request for request, _ in batch])
        except Exception as problem:  # noqa: BLE001 - raised again where the request was made
            if len(batch) == 1:
                batch[0][1].set_exception(problem)
                return
            # One of them is at fault: the others are answered as if it had not been there.
            for one in batch:
                self._settle([one])
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            future.set_result(answer)
