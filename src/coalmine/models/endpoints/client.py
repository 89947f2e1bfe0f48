"""Questions to one model of a server: many at a time, answered in order, and never asked twice."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from coalmine.errors import CoalmineError, InputError
from coalmine.models.endpoints.answers import Answer, Question, UnusableAnswerError, read_answer
from coalmine.models.endpoints.cache import AnswerCache
from coalmine.models.endpoints.http import Connection
from coalmine.models.endpoints.standing import ANSWERS_PER_CHECK, Standing
from coalmine.models.endpoints.transport import MOST_BYTES
from coalmine.progress import Progress, Silent

Check = Callable[[Question, Answer], object]

IDS_REMEMBERED = 10_000
ROUNDS_PER_CHECK = 16
MOST_CONCURRENCY = 256
# How long an answer may be: so much, and so much for each token that it tells of, which is many times what servers write.
BYTES_OF_AN_ANSWER, BYTES_OF_A_TOKEN = 1_000_000, 4_000


class Client:
    """Asks one model of one server, up to `concurrency` questions at a time.

    A `check` raises UnusableAnswerError for an answer that does not fit its question. Only answers that passed it are kept.

    Attributes:
        vouch: raises ModelChangedError unless the server still is the model that it was, given the questions that were asked since
            that was last known, those of them whose answers are in doubt, and some that were asked earlier. No answer is handed out
            before it was called; only while the server is tried there is none.
        ids_are_unique: whether the server gives each answer an id of its own, so that the answer to another question can be told by it.
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
        self.vouch: Callable[[Sequence[Question], Sequence[Question], Sequence[Question]], None] | None = None
        self.ids_are_unique = False
        self.standing = Standing(connection, model)
        self._cache = cache
        self._concurrency = concurrency
        self._progress: Progress = progress or Silent()
        self._ids: dict[str, Question] = {}
        self._ids_lock = threading.Lock()
        self._together: set[Question] = set()
        self._doubted: set[Question] = set()
        self._tried: set[Question] = set()

    def close(self) -> None:
        """Close connections and cache."""
        self.connection.close()
        self._cache.close()

    def ask(self, question: Question, check: Check) -> Answer:
        """One answer that passed the check."""
        return self.ask_all([question], check)[0]

    def ask_now(self, question: Question, check: Check) -> Answer:
        """As `ask`, but neither from the cache nor kept."""
        with self.throwing_away():
            return self._asked(question, check)

    def ask_all_now(self, questions: Sequence[Question], check: Check) -> list[Answer]:
        """As `ask_all`, but neither from the cache nor kept; questions that differ in `again` are all asked."""
        with self.throwing_away():
            answers = self._concurrently(questions, check, keep=False)
            for question in self._doubted.intersection(questions):
                answers[question] = self._asked(question, check)
            self._doubted.clear()
        return [answers[question] for question in questions]

    def keep(self, question: Question, answer: Answer) -> None:
        """Keep an answer that was examined in another way, unless it is the one that is kept."""
        if self._cache.get(question) is None:
            self._tried.add(question)
            self._cache.put(question, answer)
            self.standing.add([question])

    def cached(self, question: Question) -> Answer | None:
        """What was answered before, if anything was."""
        return self._cache.get(question)

    def was_tried(self, question: Question) -> bool:
        """Whether a question was first asked when this run tried the server."""
        return question in self._tried

    def has_confirmed_answers(self) -> bool:
        """Whether the cache holds answers of this server that are known to be of one model."""
        return self._cache.has_confirmed()

    def ask_all(
        self, questions: Sequence[Question], check: Check, *, provisional: bool = False
    ) -> list[Answer]:
        """Answers in the order of the questions; equal questions are asked once.

        At the first failure no further question is begun, and those under way are waited for, so that their answers are kept. With
        `provisional`, the server may not have been recognized since; it is before any other answers are handed out.
        """
        with self.throwing_away():
            answers, waiting = self._from_cache(questions)
            if len(waiting) > 1:
                self._progress.start("asking the endpoint", len(waiting))
            # Waiting for the last of many costs little time.
            step = max(ANSWERS_PER_CHECK, ROUNDS_PER_CHECK * self._concurrency)
            try:
                for start in range(0, len(waiting), step):
                    part = waiting[start : start + step]
                    answers.update(self._answered(part, check))
                    self.standing.add(part)
                    if len(self.standing.unconfirmed) >= step:
                        self._confirm()
            finally:
                if len(waiting) > 1:
                    self._progress.finish()
            if not provisional:
                self._confirm()
        return [answers[question] for question in questions]

    @contextlib.contextmanager
    def throwing_away(self) -> Iterator[None]:
        """Forget what was answered since the server was last recognized, if it turns out to be another model; nothing is asked then."""
        self.standing.check()
        try:
            yield
        except CoalmineError as problem:
            if self.standing.error is None:
                raise
            self._cache.remove_unconfirmed()
            if problem is self.standing.error:
                raise
            # Several threads may have failed, each for a reason of its own.
            raise self.standing.error from None

    def _from_cache(self, questions: Sequence[Question]) -> tuple[dict[Question, Answer], list[Question]]:
        """The answers that are kept, and the questions that have none."""
        answers: dict[Question, Answer] = {}
        waiting: list[Question] = []
        for question in dict.fromkeys(questions):
            kept = self._cache.get(question)
            if kept is None:
                waiting.append(question)
            else:
                answers[question] = kept
                if not self._cache.is_confirmed(question):
                    # A run that was stopped left it, or another one that shares the file.
                    self.standing.add([question])
                elif self.vouch is not None:
                    self.standing.remember([question])
        self.answered_from_cache += len(answers)
        return answers, waiting

    def _answered(self, waiting: Sequence[Question], check: Check) -> dict[Question, Answer]:
        if len(waiting) == 1:
            answers = {waiting[0]: self._ask(waiting[0], check)}
        else:
            answers = self._concurrently(waiting, check)
        for question in self._doubted.intersection(waiting):
            # One at a time: with nothing else under way, there is nothing that it could be mixed up with.
            answers[question] = self._ask(question, check)
        self._doubted.clear()
        return answers

    def _confirm(self) -> None:
        """Ask whether the server still is the model that it was, if anything was answered since that was known."""
        asked = list(self.standing.unconfirmed)
        if self.vouch is None or not asked:
            return
        self.vouch(asked, list(self.standing.doubtful), self.standing.earlier)
        self._cache.confirm(asked)
        self.standing.confirm()

    def _concurrently(
        self, questions: Sequence[Question], check: Check, *, keep: bool = True
    ) -> dict[Question, Answer]:
        ask = self._ask if keep else self._asked
        stop = threading.Event()
        waiting: queue.SimpleQueue[Question] = queue.SimpleQueue()
        done: queue.SimpleQueue[tuple[Question, Answer | BaseException]] = queue.SimpleQueue()
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
        answers: dict[Question, Answer] = {}
        self._together = set(questions)
        try:
            for thread in threads:
                thread.start()
            for _ in questions:
                question, answer = done.get()
                if isinstance(answer, BaseException):
                    stop.set()
                    for thread in threads:
                        thread.join()
                    raise answer
                answers[question] = answer
                if keep:
                    self._progress.advance()
        finally:
            stop.set()
            self._together = set()
            for question in list(self._doubted):
                self._cache.remove(question)
        return answers

    def _ask(self, question: Question, check: Check, stop: threading.Event | None = None) -> Answer:
        answer = self._asked(question, check, stop)
        if self.vouch is None:
            self._tried.add(question)
        self._cache.put(question, answer)
        return answer

    def _asked(self, question: Question, check: Check, stop: threading.Event | None = None) -> Answer:
        body = msgspec.json.encode(question.body(self.model, self.request_fields))
        # A token stands for at least one byte of the prompt, but for those that some servers put before it.
        most_tokens = len(question.prompt.encode()) + 2 + question.most_tokens

        def read(content: bytes) -> tuple[Answer, int | None]:
            answer = read_answer(content)
            check(question, answer)
            self._refuse_stale(question, answer)
            self.standing.read(question, answer)
            return answer, answer.tokens_used

        return self.connection.send(
            "/completions",
            body,
            read,
            most_tokens=most_tokens,
            most_bytes=min(MOST_BYTES, BYTES_OF_AN_ANSWER + BYTES_OF_A_TOKEN * most_tokens),
            stop=stop,
            hide=question.prompt,
        )

    def _refuse_stale(self, question: Question, answer: Answer) -> None:
        """Refuse an answer with the id of the answer to another prompt; some servers make ids from requests, so they may recur.

        If the other question was settled before, it is this answer that is wrong. If both are asked at the same time, it cannot
        be told which of the two is, and both are asked again.
        """
        if answer.answer_id is None:
            return
        with self._ids_lock:
            other = self._ids.setdefault(answer.answer_id, question)
            if self.ids_are_unique and other.prompt != question.prompt:
                if other in self._together:
                    del self._ids[answer.answer_id]
                    self._doubted.add(other)
                    self._cache.remove(other)
                raise UnusableAnswerError("the answer has the id of the answer to another question")
            if len(self._ids) > IDS_REMEMBERED:
                del self._ids[next(iter(self._ids))]


def model_names(connection: Connection) -> list[str]:
    """The names of the models that a server has."""

    def read(content: bytes) -> tuple[list[str], int | None]:
        try:
            return [str(entry["id"]) for entry in msgspec.json.decode(content)["data"]], 0
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
            raise UnusableAnswerError("the list of models is not in the shape of the OpenAI API") from None

    return connection.send("/models", None, read)
