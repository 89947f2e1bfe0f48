"""Requests to one server: within its limits, with retries, and with an error that says what failed last."""

from __future__ import annotations

import email.utils
import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar
from urllib.parse import urljoin, urlsplit

import msgspec

from coalmine import randomness
from coalmine.errors import InputError, ModelError, ModelOutputError, NotMeasurableError
from coalmine.models.endpoints.address import Key
from coalmine.models.endpoints.answers import UnusableAnswerError
from coalmine.models.endpoints.limits import Budget, RateLimit
from coalmine.models.endpoints.transport import MOST_BYTES, HttpReply, Transport

T = TypeVar("T")

MOST_READ_OF_AN_ERROR = 100_000
# What is shown of a server's error whatever was sent; its other words may be the key or the text in other letters.
WORDS_OF_THE_API = frozenset({
    "authentication_error", "billing_hard_limit_reached", "content_filter", "context_length_exceeded", "echo", "insufficient_quota",
    "invalid_api_key", "invalid_request_error", "logprobs", "max_completion_tokens", "max_tokens", "messages", "model", "model_not_found",
    "n", "not_found_error", "overloaded_error", "permission_error", "prompt", "rate_limit_exceeded", "seed", "server_error",
    "stop", "stream", "temperature", "top_logprobs", "top_p", "unsupported_parameter", "unsupported_value", "BadRequestError",
    "NotFoundError",
})  # fmt: skip
LONGEST_BACK_OFF_SECONDS = 60.0
LONGEST_RETRY_AFTER_SECONDS = 600.0
LONGEST_TIMEOUT_SECONDS = 86_400.0
# Statuses after which another try may succeed, besides 5xx.
_HOST = re.compile(r"[a-z0-9.:-]+")
WORTH_RETRYING = {408, 409, 425, 429}


class EndpointRefusedError(ModelError):
    """The server understood the request and refuses to answer it; `status` is that of HTTP, `reason` is short."""

    def __init__(self, message: str, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    @property
    def is_about_question(self) -> bool:
        """Whether another question may be answered: the server refuses this text, or its length."""
        return self.status in {400, 413, 422}


class NoAnswerError(NotMeasurableError):
    """No try gave a usable answer; `kind` and `reason` say what was wrong with the last one."""

    def __init__(self, message: str, kind: str = "network", reason: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.reason = reason

    @property
    def is_about_question(self) -> bool:
        """Whether another question may be answered: the server answered this one, but not in a usable way."""
        return self.kind in {"status", "content"}


class StoppedError(NotMeasurableError):
    """Another request failed for good, or Ctrl-C was pressed: this one is not tried again."""


class Connection:
    """Sends requests to `url`, with the key, from any thread.

    `retries` is how often a request is sent again after its first try failed; `timeout` is how many seconds one try may take in all. The
    wait between tries starts at `back_off` seconds and doubles, with jitter, and is at least as long as the server asks.
    """

    def __init__(
        self,
        url: str,
        key: Key,
        *,
        retries: int,
        timeout: float,
        back_off: float,
        rate: RateLimit,
        budget: Budget,
    ) -> None:
        if retries < 0 or not 0 < timeout <= LONGEST_TIMEOUT_SECONDS or not back_off >= 0:
            raise InputError(
                f"retries and back_off must be at least 0, and timeout above 0 and at most {LONGEST_TIMEOUT_SECONDS:,.0f} seconds; "
                f"got {retries}, {back_off} and {timeout}"
            )
        self.url = url
        self.budget = budget
        self._key = key
        self._retries = retries
        self._back_off = back_off
        self._rate = rate
        self._transport = Transport(url, key, timeout=timeout)
        self.close = weakref.finalize(self, self._transport.close)

    def send(
        self,
        path: str,
        body: bytes | None,
        read: Callable[[bytes], tuple[T, int | None]],
        *,
        most_tokens: int = 0,
        most_bytes: int = MOST_BYTES,
        stop: threading.Event | None = None,
        hide: str = "",
    ) -> T:
        """POST a body, or GET where there is none, until `read` accepts the answer.

        `read` gives what it read and how many tokens the server counted, or raises UnusableAnswerError. `most_tokens` is what the
        request can cost at most, and `most_bytes` how long an answer may be. When `stop` is set, no further try begins. `hide` is
        a text that errors must not show: with it, or with a key, they show nothing that the server says but the words of the API.
        """
        stop = stop or threading.Event()
        jitter = randomness.integers(0, "endpoint", "back-off", path, hide)
        last = UnusableAnswerError("nothing was asked")
        for attempt in range(self._retries + 1):
            if attempt:
                wait = min(LONGEST_BACK_OFF_SECONDS, self._back_off * 2.0 ** min(attempt - 1, 60))
                stop.wait(max(wait * (0.5 + jitter.random()), last.wait_seconds))
            self._rate.wait(stop.wait)
            if stop.is_set():
                raise StoppedError("the request was not sent, because another one failed")
            try:
                return self._once(path, body, read, most_tokens, most_bytes, hide)
            except UnusableAnswerError as problem:
                last = problem
                self._rate.pause(problem.wait_seconds)
        raise NoAnswerError(
            f"{self.url} gave no usable answer in {self._retries + 1} tries, the last time because {last}; nothing can be "
            "concluded from it: try again later, or raise retries or timeout",
            last.kind,
            str(last),
        )

    def inert(self, text: str) -> str:
        """A server's text, made safe to show: one short line, without control characters and without the key."""
        return self._key.inert(text)

    def _once(
        self,
        path: str,
        body: bytes | None,
        read: Callable[[bytes], tuple[T, int | None]],
        most_tokens: int,
        most_bytes: int,
        hide: str,
    ) -> T:
        self.budget.reserve(most_tokens)
        # The cost is not known unless the server reports it, or refuses.
        tokens = most_tokens
        try:
            reply = self._transport.exchange(self.url + path, body, most_bytes=most_bytes)
            if reply.status != 200:
                tokens = 0
                self._raise_for(reply, hide)
            if self._key.occurs_in(reply.content):
                raise ModelOutputError(
                    f"{self.url} sent the key back in an answer, which is therefore not kept; do not use this server"
                )
            answer, counted = read(reply.content)
            # A count below 0 would lower the cost below what was spent.
            tokens = most_tokens if counted is None or counted < 0 else counted
        finally:
            self.budget.settle(most_tokens, tokens)
        return answer

    def _raise_for(self, reply: HttpReply, hide: str) -> NoReturn:
        status = reply.status
        message, words = _message(reply.content)
        said = ", ".join(words) if self._key or hide else self._key.inert(message)
        if status in WORTH_RETRYING or status >= 500:
            raise UnusableAnswerError(
                f"the server answered with status {status}{said and f' ({said})'}",
                "status",
                wait_seconds=_retry_after(reply.headers),
            )
        reason = f"status {status}{said and f': {said}'}"
        if 300 <= status < 400:
            # Anything else in the answer is for browsers.
            reason = f"status {status}, a redirect to {self._origin(reply.headers.get('location', ''), hide)}"
        advice = {
            401: "; put the right key into the environment variable that is read",
            403: "; check that the key may use this model",
            404: "; check the model's name, and that the url is the base of the API, which often ends in /v1",
            413: "; the text is too long for the server",
        }.get(status, "")
        if 300 <= status < 400:
            advice = "; redirects are not followed, and neither texts nor the key are sent there: give the url that is meant"
        raise EndpointRefusedError(f"{self.url} refused with {reason}{advice}", status, reason)

    def _origin(self, location: str, hide: str) -> str:
        """The target of a redirect, without the path and the query, which may contain anything."""
        try:
            parts = urlsplit(urljoin(self.url, location.strip()))
            host = parts.hostname or ""
            shown = f"[{host}]" if ":" in host else host
            port = "" if parts.port is None else f":{parts.port}"
        except ValueError:
            return "a place that cannot be read"
        elsewhere = host != urlsplit(self.url).hostname
        if not _HOST.fullmatch(host) or (elsewhere and (hide or self._key.occurs_in(host.encode()))):
            return "another place"
        return self._key.inert(f"{parts.scheme}://{shown}{port}")


def _message(content: bytes) -> tuple[str, list[str]]:
    """The message in an error of the OpenAI API, or the beginning of any other content, and what it says in words of the API."""
    try:
        document, words = msgspec.json.decode(content), []
        for field in ("error", "message", "detail"):
            if isinstance(document, dict) and field in document:
                words += [str(document.get(name)) for name in ("type", "code", "param")]
                document = document[field]
        return str(document), [word for word in dict.fromkeys(words) if word in WORDS_OF_THE_API]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Much more than is shown: a key that is cut off could not be hidden.
        return content[:MOST_READ_OF_AN_ERROR].decode("utf-8", "replace"), []


def _retry_after(headers: Mapping[str, str]) -> float:
    """How long the server asks to wait, in seconds, from a number or a date, up to a limit."""
    said = headers.get("retry-after", "").strip()
    try:
        seconds = float(said)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(said).timestamp() - time.time()
        except (ValueError, TypeError, IndexError, OverflowError):
            return 0.0
    return min(LONGEST_RETRY_AFTER_SECONDS, max(0.0, seconds)) if seconds == seconds else 0.0  # noqa: PLR0124 - NaN
