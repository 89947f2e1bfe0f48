"""Questions asked since a server was last recognized as the same model, and the errors for a server that changed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from coalmine.errors import ModelChangedError
from coalmine.models.endpoints.answers import EndpointAnswer, EndpointQuestion
from coalmine.models.endpoints.http import Connection

# The server's identity is tested after this many answers, and before any of them is used.
ANSWERS_PER_CHECK = 128
FINGERPRINTS_REMEMBERED = 1000
EARLIER_REMEMBERED = 64


class Recognition:
    """What is known of the identity of one model of one server during a run; the threads that read answers share it.

    Attributes:
        unconfirmed: the questions that were answered since the server was last recognized.
        under_way: those in flight.
        doubtful: those whose answers came with a fingerprint that was not seen before.
        earlier: the first questions of the run, whose answers were confirmed.
        error: why nothing from this server can be used anymore.
    """

    def __init__(self, connection: Connection, model: str) -> None:
        self.unconfirmed: dict[EndpointQuestion, None] = {}
        self.under_way: Sequence[EndpointQuestion] = ()
        self.doubtful: dict[EndpointQuestion, None] = {}
        self.earlier: list[EndpointQuestion] = []
        self.error: ModelChangedError | None = None
        self._connection = connection
        self._model = model
        self._name: str | None = None
        self._fingerprints: set[str] = set()
        self._recognized_at = 0
        self._recognized = False
        self._lock = threading.Lock()

    def add(self, questions: Iterable[EndpointQuestion]) -> None:
        """Record that these were answered."""
        self.unconfirmed.update(dict.fromkeys(questions))

    def remember(self, questions: Iterable[EndpointQuestion]) -> None:
        """Record that these have confirmed answers. The first ones of a run are remembered: audits begin with planted canaries."""
        for question in questions:
            if len(self.earlier) >= EARLIER_REMEMBERED:
                return
            if question not in self.earlier:
                self.earlier.append(question)

    def check(self) -> None:
        """Raise the error if there is one: after it, the server gives no more answers."""
        if self.error is not None:
            raise self.error

    def confirm(self) -> None:
        """Record that the server was recognized after the last answer."""
        self.remember(self.unconfirmed)
        self.unconfirmed.clear()
        self.doubtful.clear()
        self.recognize()

    def recognize(self) -> None:
        """Record that the server is the same model as of this request."""
        self._recognized_at, self._recognized = self._connection.budget.requests, True

    def read(self, question: EndpointQuestion, answer: EndpointAnswer) -> None:
        """Note which model an answer names; a ModelChangedError if it is another one than before.

        A fingerprint changes with the server's software as well as with the model, so a new one is only a reason to ask again.
        """
        with self._lock:
            if answer.model is not None:
                self._name = self._name or answer.model
                if answer.model != self._name:
                    raise self.changed(self.other_name(self._name, answer.model))
            if answer.fingerprint is not None and answer.fingerprint not in self._fingerprints:
                if self._fingerprints and len(self._fingerprints) < FINGERPRINTS_REMEMBERED:
                    self.doubtful[question] = None
                self._fingerprints.add(answer.fingerprint)

    def other_name(self, before: str, now: str) -> str:
        """The evidence of a change in answers that name their model."""
        old, new = (self._connection.inert(name) for name in (before, now))
        return f"its answers name the model {new!r}, and named {old!r} before"

    def changed(self, what: str) -> ModelChangedError:
        """The error that says when the server became another model, and what happens to its answers."""
        since = f"between its requests {self._recognized_at} and {self._connection.budget.requests}"
        if not self._recognized:
            since = f"within its first {self._connection.budget.requests} requests"
        doing = "while it was tested"
        asked = [*self.unconfirmed, *self.under_way]
        if asked:
            doing = (
                "while texts were scored"
                if any(question.echo for question in asked)
                else "while prompts were continued"
            )
        self.error = ModelChangedError(
            f"the model {self._model!r} at {self._connection.url} became another one {since} of this run, {doing}: {what}; its "
            "answers since then are discarded and no result is written, and its earlier answers stay in the cache: run the same command "
            "again when the earlier model is back, or measure the new one with another directory or cache"
        )
        return self.error

    def not_that_of_the_cache(self, what: str) -> ModelChangedError:
        """The error for a server that changed since an earlier run."""
        self.error = ModelChangedError(
            f"the model {self._model!r} at {self._connection.url} no longer gives the answers that are in the cache ({what}): another "
            "model may be served under this name; use another cache or directory for it"
        )
        return self.error
