"""A queue in which requests that arrive at the same time wait to be computed together, and the one thread that asks the model."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from coalmine.serving.completions import Answered
from coalmine.serving.requests import Completion, RefusedError

MOST_WAITING = 512
_Waiting = tuple[Completion, "Future[Answered]"]


class Batcher:
    """Hands up to `most` waiting requests at a time to a function of batches that keeps their order."""

    def __init__(self, answer: Callable[[Sequence[Completion]], list[Answered]], *, most: int) -> None:
        self._answer, self._most = answer, most
        self._waiting: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        # A daemon, so that a model that computes for hours does not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name="coalmine-model", daemon=True)
        self._thread.start()

    async def ask(self, request: Completion) -> Answered:
        """Wait for the answer; what the model raises is raised here."""
        if not self._thread.is_alive() or self._waiting.qsize() >= MOST_WAITING:
            said = f"{MOST_WAITING} requests are waiting already; ask again in a moment"
            raise RefusedError(503, "overloaded", said)
        future: Future[Answered] = Future()
        self._waiting.put((request, future))
        return await asyncio.wrap_future(future)

    def close(self, *, patience: float) -> None:
        """Answer what is waiting, for up to `patience` seconds, and end the thread."""
        self._waiting.put(None)
        self._thread.join(patience)

    def _work(self) -> None:
        while (first := self._waiting.get()) is not None:
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
