"""What was asked of a server since it was last known to be the same model, and what its answers say of which model they are from."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from coalmine.errors import ModelChangedError
from coalmine.models.endpoints.answers import EndpointAnswer, EndpointQuestion
from coalmine.models.endpoints.http import Connection

# The server is asked who it is after so many answers, and before any of them is used.
ANSWERS_PER_CHECK = 128
FINGERPRINTS_REMEMBERED = 1000
EARLIER_REMEMBERED = 64


class Recognition:
    """Of one run with one model of one server; the threads that read answers share it.

    Attributes:
        unconfirmed: the questions that were answered since the server was last recognized.
        under_way: those that are being asked.
        doubtful: those of them whose answers came with a fingerprint that was not seen before.
        earlier: the first questions of the run, whose answers were confirmed.
        error: why nothing of this server can be used any more.
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
        """These were answered."""
        self.unconfirmed.update(dict.fromkeys(questions))

    def remember(self, questions: Iterable[EndpointQuestion]) -> None:
        """These have answers that were confirmed. The first ones of a run are remembered: audits begin with what was planted."""
        for question in questions:
            if len(self.earlier) >= EARLIER_REMEMBERED:
                return
            if question not in self.earlier:
                self.earlier.append(question)

    def check(self) -> None:
        """Raise the error if there is one: whoever caught it gets nothing more."""
        if self.error is not None:
            raise self.error

    def confirm(self) -> None:
        """The server was recognized after the last answer."""
        self.remember(self.unconfirmed)
        self.unconfirmed.clear()
        self.doubtful.clear()
        self.recognize()

    def recognize(self) -> None:
        """The server is the model that it was, as of this request."""
        self._recognized_at, self._recognized = self._connection.budget.requests, True

    def read(self, question: EndpointQuestion, answer: EndpointAnswer) -> None:
        """Note what an answer says of itself; a ModelChangedError where it names another model than those before it.

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
        """What shows a change where answers name their model."""
        old, new = (self._connection.inert(name) for name in (before, now))
        return f"its answers name the model {new!r}, and named {old!r} before"

    def changed(self, what: str) -> ModelChangedError:
        """The error that says where the server became another model, and what became of what it said."""
        since = f"between its requests {self._recognized_at} and {self._connection.budget.requests}"
        if not self._recognized:
            since = f"within its first {self._connection.budget.requests} requests"
        doing = "while it was tried"
        asked = [*self.unconfirmed, *self.under_way]
        if asked:
            doing = (
                "while texts were scored"
                if any(question.echo for question in asked)
                else "while prompts were continued"
            )
        self.error = ModelChangedError(
            f"the model {self._model!r} at {self._connection.url} became another one {since} of this run, {doing}: {what}; what it "
            "answered in between is thrown away and no result is written, and what it answered before stays in the cache: run the same "
            "command again when the earlier model is back, or measure the new one with another directory or cache"
        )
        return self.error

    def not_that_of_the_cache(self, what: str) -> ModelChangedError:
        """The error where the server changed since an earlier run."""
        self.error = ModelChangedError(
            f"the model {self._model!r} at {self._connection.url} no longer gives the answers that are in the cache ({what}): another "
            "model may be served under this name; use another cache or directory for it"
        )
        return self.error
