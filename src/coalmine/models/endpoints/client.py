"""The client for one model of a server: many questions at a time, answers in order, and nothing asked twice."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from coalmine.errors import CoalmineError, InputError
from coalmine.models.endpoints.answers import (
    EndpointAnswer,
    EndpointQuestion,
    UnusableAnswerError,
    read_answer,
)
from coalmine.models.endpoints.cache import AnswerCache
from coalmine.models.endpoints.detection import Checks
from coalmine.models.endpoints.http import Connection, EndpointRefusedError
from coalmine.models.endpoints.probe_schedule import ProbeSchedule
from coalmine.models.endpoints.recognition import ANSWERS_PER_CHECK, Recognition
from coalmine.models.endpoints.streams import is_stream, joined_stream
from coalmine.models.endpoints.transport import MOST_BYTES
from coalmine.progress import Progress, Silent

Check = Callable[[EndpointQuestion, EndpointAnswer], object]

IDS_REMEMBERED = 10_000
ROUNDS_PER_CHECK = 16
MOST_CONCURRENCY = 256
# The most bytes of an answer: a fixed number, and a number for each token or for each of many that are listed in its place, which is many
# times what servers write.
BYTES_OF_AN_ANSWER, BYTES_OF_A_TOKEN, BYTES_OF_A_LISTED_ONE = 1_000_000, 4_000, 100


class RecognitionRequests(NamedTuple):
    """The requests that recognized a server at the end of a window: probes, and random questions of the window that were repeated."""

    probes: int
    repeats: int


class Recognizer(Protocol):
    """Finds out whether a server is still the same model; each method raises a ModelChangedError if it is not."""

    @property
    def noise_bits(self) -> float:
        """Differences up to this many bits are taken for noise."""

    def next_probe(self, earlier: Sequence[EndpointQuestion]) -> EndpointQuestion | None:
        """A question whose answer is known, different from all others that were asked; None if no answer would show anything."""

    def hear(self, probe: EndpointQuestion, said: EndpointAnswer | EndpointRefusedError, place: int) -> bool:
        """Whether the answer is as expected; if not, `check` looks into it. `place` is how many answers came before it."""

    def check(
        self,
        asked: Sequence[EndpointQuestion],
        doubtful: Sequence[EndpointQuestion],
        earlier: Sequence[EndpointQuestion],
    ) -> RecognitionRequests:
        """Repeat some questions, given those asked since the last check, those of them in doubt, and those asked earlier."""


class Client:
    """Asks one model of one server, up to `concurrency` questions at a time.

    A `check` raises UnusableAnswerError for an answer that does not fit its question. Only answers that passed it are kept.

    Attributes:
        recognizer: supplies probes, which go among the questions, and checks before any answer is returned that the server is still
            the same model. It is None while the server is first tested.
        ids_are_unique: whether the server gives each answer its own id, which then identifies the answer to another question.
    """

    def __init__(
        self,
        connection: Connection,
        model: str,
        cache: AnswerCache,
        *,
        request_fields: Mapping[str, Any] | None = None,
        concurrency: int = 4,
        progress: Progress | None = None,
    ) -> None:
        if not 1 <= concurrency <= MOST_CONCURRENCY:
            raise InputError(f"concurrency must be from 1 to {MOST_CONCURRENCY}, got {concurrency}")
        self.connection = connection
        self.model = model
        self.request_fields = dict(request_fields or {})
        self.answered_from_cache = 0
        self.recognizer: Recognizer | None = None
        # Set while the server is tested, with texts that are no secret.
        self.quotes_errors = False
        self.ids_are_unique = False
        self.recognition = Recognition(connection, model)
        self._schedule = ProbeSchedule()
        self._stretches: list[int] = []
        self._odd = False
        self._cache = cache
        self._cache.remove_unbracketed()
        self._concurrency = concurrency
        self._progress: Progress = progress or Silent()
        self._ids: dict[str, EndpointQuestion] = {}
        self._ids_lock = threading.Lock()
        self._together: set[EndpointQuestion] = set()
        self._doubted: set[EndpointQuestion] = set()
        self._tried: set[EndpointQuestion] = set()
        self._of_trial: set[EndpointQuestion] = set()

    def close(self) -> None:
        """Close connections and cache."""
        self.connection.close()
        self._cache.close()

    def ask(self, question: EndpointQuestion, check: Check) -> EndpointAnswer:
        """One answer that passed the check."""
        return self.ask_all([question], check)[0]

    def ask_now(self, question: EndpointQuestion, check: Check) -> EndpointAnswer:
        """As `ask`, but without the cache."""
        with self.throwing_away():
            return self._asked(question, check)

    def ask_all_now(self, questions: Sequence[EndpointQuestion], check: Check) -> list[EndpointAnswer]:
        """As `ask_all`, but without the cache; questions that differ in `again` are all asked."""
        with self.throwing_away():
            answers = self._concurrently(questions, check, keep=False)
            for question in self._doubted.intersection(questions):
                answers[question] = self._asked(question, check)
            self._doubted.clear()
        return [answers[question] for question in questions]

    def keep(self, question: EndpointQuestion, answer: EndpointAnswer) -> None:
        """Store an answer that was examined elsewhere, unless the question has one already."""
        self._of_trial.add(question)
        if self._cache.get(question) is None:
            self._tried.add(question)
            self._cache.put(question, answer)
            self.recognition.add([question])

    def cached(self, question: EndpointQuestion) -> EndpointAnswer | None:
        """The stored answer, if there is one."""
        return self._cache.get(question)

    def was_tried(self, question: EndpointQuestion) -> bool:
        """Whether a question was first asked when this run tested the server."""
        return question in self._tried

    def has_confirmed_answers(self) -> bool:
        """Whether the cache holds answers of this server that are known to come from one model."""
        return self._cache.has_confirmed()

    def ask_all(
        self, questions: Sequence[EndpointQuestion], check: Check, *, provisional: bool = False
    ) -> list[EndpointAnswer]:
        """Answers in the order of the questions; equal questions are asked once.

        After the first failure no further question is sent, and those in flight are waited for, so that their answers are stored. With
        `provisional`, the server may not have been recognized since; it will be before any other answers are returned.
        """
        if self.recognizer is None:
            self._of_trial.update(questions)
        with self.throwing_away():
            answers, waiting = self._from_cache(questions)
            if len(waiting) > 1:
                self._progress.start("asking the endpoint", len(waiting))
            # Waiting for the last of many takes little time.
            step = max(ANSWERS_PER_CHECK, ROUNDS_PER_CHECK * self._concurrency)
            try:
                for start in range(0, len(waiting), step):
                    part = waiting[start : start + step]
                    # While the server is first tested, errors say so.
                    self.recognition.under_way = part if self.recognizer is not None else ()
                    answers.update(self._answered(part, check))
                    self.recognition.add(part)
                    if len(self.recognition.unconfirmed) >= step:
                        self._confirm()
            finally:
                self.recognition.under_way = ()
                if len(waiting) > 1:
                    self._progress.finish()
            if not provisional:
                self._confirm()
        return [answers[question] for question in questions]

    @contextlib.contextmanager
    def throwing_away(self) -> Iterator[None]:
        """Remove what was answered since the server was last recognized, if it turns out to be another model; nothing is asked then."""
        self.recognition.check()
        try:
            yield
        except CoalmineError as problem:
            if self.recognition.error is None:
                raise
            self._cache.remove_unconfirmed()
            if problem is self.recognition.error:
                raise
            # Several threads may have failed, each for its own reason.
            raise self.recognition.error from None

    def _from_cache(
        self, questions: Sequence[EndpointQuestion]
    ) -> tuple[dict[EndpointQuestion, EndpointAnswer], list[EndpointQuestion]]:
        """The stored answers, and the questions that have none."""
        answers: dict[EndpointQuestion, EndpointAnswer] = {}
        waiting: list[EndpointQuestion] = []
        for question in dict.fromkeys(questions):
            kept = self._cache.get(question)
            if kept is None:
                waiting.append(question)
            else:
                answers[question] = kept
                if not self._cache.is_confirmed(question):
                    # It comes from a run that was stopped, or from another one that shares the file.
                    self.recognition.add([question])
                elif self.recognizer is not None:
                    self.recognition.remember([question])
        self.answered_from_cache += len(answers)
        return answers, waiting

    def _answered(
        self, waiting: Sequence[EndpointQuestion], check: Check
    ) -> dict[EndpointQuestion, EndpointAnswer]:
        sent = self._schedule.mixed(waiting, self._next_probe)
        alone = len(sent) == 1
        answers = {sent[0]: self._ask(sent[0], check)} if alone else self._concurrently(sent, check)
        for question in self._doubted.intersection(waiting):
            # One at a time: with nothing else in flight, it cannot be mixed up with anything.
            answers[question] = self._ask(question, check)
        self._doubted.clear()
        return answers

    def _next_probe(self) -> EndpointQuestion | None:
        return None if self.recognizer is None else self.recognizer.next_probe(self.recognition.earlier)

    def _heard(self, probe: EndpointQuestion, said: EndpointAnswer | BaseException) -> BaseException | None:
        """Examine the answer to a probe in the middle of a window; returns the error if nothing more can be asked.

        Up to the first odd one, the answers before a probe are worth keeping.
        """
        if self.recognizer is None or not isinstance(said, EndpointAnswer | EndpointRefusedError):
            return said if isinstance(said, BaseException) else None
        try:
            as_expected = self.recognizer.hear(probe, said, self._schedule.place_of(probe))
        except CoalmineError as problem:
            return problem
        stretch, whole = self._schedule.close_stretch(probe)
        self._odd = self._odd or not as_expected
        if self._odd:
            self._stretches.append(stretch)
        else:
            self._cache.bracket(whole, [stretch])
        return None

    def watch_with(self, recognizer: Recognizer) -> None:
        """From now on, no answer is returned before the recognizer has checked the server. The first test does not count as measured."""
        self.recognizer = recognizer
        self._cache.bracket(self._tried)
        self._schedule.start_window()

    def checks(self) -> Checks:
        """The requests so far that tested the server's identity, including those of earlier runs with the same cache."""
        return self._cache.checks()

    def _confirm(self) -> None:
        """Check whether the server is still the same model, if anything was answered since the last check."""
        asked = list(self.recognition.unconfirmed)
        if self.recognizer is None or not asked:
            return
        stretches = [*self._stretches, self._schedule.close_window()]
        told = self.recognizer.check(asked, list(self.recognition.doubtful), self.recognition.earlier)
        measured = sum(question not in self._of_trial for question in asked)
        self._cache.confirm(asked, stretches, measured=measured, probes=told.probes, repeats=told.repeats)
        self.recognition.confirm()
        self._schedule.start_window()
        self._stretches, self._odd = [], False

    def _concurrently(
        self, questions: Sequence[EndpointQuestion], check: Check, *, keep: bool = True
    ) -> dict[EndpointQuestion, EndpointAnswer]:
        ask = self._ask if keep else self._asked
        stop = threading.Event()
        waiting: queue.SimpleQueue[EndpointQuestion] = queue.SimpleQueue()
        done: queue.SimpleQueue[tuple[EndpointQuestion, EndpointAnswer | BaseException]] = queue.SimpleQueue()
        for question in questions:
            waiting.put(question)

        def work() -> None:
            with contextlib.suppress(queue.Empty):
                while not stop.is_set():
                    question = waiting.get_nowait()
                    try:
                        done.put((question, ask(question, check, stop)))
                    except BaseException as problem:  # noqa: BLE001 - it is raised in the thread that asked
                        done.put((question, problem))

        # Daemons, so that Ctrl-C does not wait for a slow server.
        threads = [
            threading.Thread(target=work, daemon=True) for _ in range(min(self._concurrency, len(questions)))
        ]
        answers: dict[EndpointQuestion, EndpointAnswer] = {}
        several = sum(not self._schedule.is_probe(question) for question in questions) > 1
        self._together = set(questions)
        try:
            for thread in threads:
                thread.start()
            for _ in questions:
                question, answer = done.get()
                is_probe = keep and self._schedule.is_probe(question)
                problem = self._heard(question, answer) if is_probe else answer
                if isinstance(problem, BaseException):
                    stop.set()
                    for thread in threads:
                        thread.join()
                    raise problem
                if isinstance(answer, EndpointAnswer) and not is_probe:
                    answers[question] = answer
                    if keep and several:
                        self._progress.advance()
        finally:
            stop.set()
            self._together = set()
            for question in list(self._doubted):
                self._cache.remove(question)
        return answers

    def _ask(
        self, question: EndpointQuestion, check: Check, stop: threading.Event | None = None
    ) -> EndpointAnswer:
        """An answer, which is stored unless it answers a probe."""
        is_probe = self._schedule.is_probe(question)
        self._schedule.begin(question)
        try:
            answer = self._asked(question, _anything if is_probe else check, stop)
        finally:
            self._schedule.end(question)
        if self.recognizer is None:
            self._tried.add(question)
        if not is_probe:
            self._cache.put(question, answer)
        return answer

    def _asked(
        self, question: EndpointQuestion, check: Check, stop: threading.Event | None = None
    ) -> EndpointAnswer:
        body = msgspec.json.encode(question.body(self.model, self.request_fields))
        most_tokens = question.most_read + question.most_tokens
        bytes_of_a_token = max(BYTES_OF_A_TOKEN, BYTES_OF_A_LISTED_ONE * (question.top or 0))

        def read(content: bytes) -> tuple[EndpointAnswer, int | None]:
            chat = question.chat is not None
            answer = read_answer(
                joined_stream(content) if chat and is_stream(content) else content, chat=chat
            )
            check(question, answer)
            self._refuse_stale(question, answer)
            self.recognition.read(question, answer)
            return answer, answer.tokens_used

        return self.connection.send(
            question.path,
            body,
            read,
            most_tokens=most_tokens,
            most_bytes=min(MOST_BYTES, BYTES_OF_AN_ANSWER + bytes_of_a_token * most_tokens),
            stop=stop,
            hide="" if self.quotes_errors else question.prompt,
        )

    def _refuse_stale(self, question: EndpointQuestion, answer: EndpointAnswer) -> None:
        """Refuse an answer with the id of the answer to another prompt; some servers make ids from requests, so they may recur.

        If the other question was settled before, this answer is wrong. If both are asked at the same time, it is unclear which of the
        two is wrong, and both are asked again.
        """
        if answer.answer_id is None:
            return
        with self._ids_lock:
            other = self._ids.setdefault(answer.answer_id, question)
            if self.ids_are_unique and other.asked != question.asked:
                if other in self._together:
                    del self._ids[answer.answer_id]
                    self._doubted.add(other)
                    self._cache.remove(other)
                raise UnusableAnswerError("the answer has the id of the answer to another question")
            if len(self._ids) > IDS_REMEMBERED:
                del self._ids[next(iter(self._ids))]


def _anything(question: EndpointQuestion, answer: EndpointAnswer) -> None:
    """The sender of a probe examines its answer."""


def model_names(connection: Connection) -> list[str]:
    """The names of the models that a server has."""

    def read(content: bytes) -> tuple[list[str], int | None]:
        try:
            return [str(entry["id"]) for entry in msgspec.json.decode(content)["data"]], 0
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
            raise UnusableAnswerError("the list of models is not in the shape of the OpenAI API") from None

    return connection.send("/models", None, read)
