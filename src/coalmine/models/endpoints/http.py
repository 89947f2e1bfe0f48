"""Requests to one server: within its limits, again where something failed, and with an error that says what failed last."""

from __future__ import annotations

import email.utils
import threading
import time
import unicodedata
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, TypeVar

import msgspec

from coalmine import randomness
from coalmine.errors import InputError, MissingExtraError, ModelError, ModelOutputError, NotMeasurableError
from coalmine.models.endpoints.address import Key
from coalmine.models.endpoints.answers import UnusableAnswerError
from coalmine.models.endpoints.limits import Budget, RateLimit

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

MOST_BYTES = 64_000_000
LONGEST_BACK_OFF_SECONDS = 60.0
LONGEST_RETRY_AFTER_SECONDS = 600.0
LONGEST_TIMEOUT_SECONDS = 86_400.0
# Statuses that another try may mend, besides 5xx.
WORTH_RETRYING = {408, 409, 425, 429}


class RefusedError(ModelError):
    """The server understood the request and will not answer it; `status` is HTTP's, `reason` is short."""

    def __init__(self, message: str, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class NoAnswerError(NotMeasurableError):
    """No usable answer came in all tries; `kind` and `reason` say what was wrong with the last one."""

    def __init__(self, message: str, kind: str = "network", reason: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.reason = reason


class StoppedError(NotMeasurableError):
    """Another request failed for good, or Ctrl-C was pressed: this one is not tried any more."""


class Connection:
    """Sends requests to `url`, with the key, from any thread.

    `retries` is how often a request is sent again after a first try that failed; `timeout` is how many seconds one try may take
    in all; the wait between tries grows from `back_off` seconds by doubling, with jitter, and is as long as the server asks.
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
        self._timeout = timeout
        self._back_off = back_off
        self._rate = rate
        self._http = _http_client(key, timeout, encrypted=url.startswith("https:"))
        self.close = weakref.finalize(self, self._http.close)

    def send(
        self,
        path: str,
        body: bytes | None,
        read: Callable[[bytes], tuple[T, int | None]],
        *,
        most_tokens: int = 0,
        stop: threading.Event | None = None,
        hide: str = "",
    ) -> T:
        """POST a body, or GET where there is none, until `read` accepts the answer.

        `read` gives what it read and how many tokens the server counted, or raises UnusableAnswerError. `most_tokens` is what the request can cost at most. When `stop` is set, no further try begins. `hide` is a text that errors must not show.
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
                return self._once(path, body, read, most_tokens, hide)
            except UnusableAnswerError as problem:
                last = problem
                self._rate.pause(problem.wait_seconds)
        raise NoAnswerError(
            f"{self.url} gave no usable answer in {self._retries + 1} tries, the last time because {last}; nothing can be "
            "concluded from it: try again later, or raise retries or timeout",
            last.kind,
            str(last),
        )

    def _once(
        self,
        path: str,
        body: bytes | None,
        read: Callable[[bytes], tuple[T, int | None]],
        most_tokens: int,
        hide: str,
    ) -> T:
        self.budget.reserve(most_tokens)
        # What it cost is not known unless the server says so, or refuses.
        tokens = most_tokens
        try:
            status, headers, content = self._exchange(path, body)
            if status != 200:
                tokens = 0
                self._raise_for(status, headers, content, hide)
            if self._key.occurs_in(content):
                raise ModelOutputError(
                    f"{self.url} sent the key back in an answer, which is therefore not kept; do not use this server"
                )
            answer, counted = read(content)
            # A count below 0 would give room under the cap on cost that there is not.
            tokens = most_tokens if counted is None or counted < 0 else counted
        finally:
            self.budget.settle(most_tokens, tokens)
        return answer

    def _exchange(self, path: str, body: bytes | None) -> tuple[int, httpx.Headers, bytes]:
        import httpx

        ends = time.monotonic() + self._timeout
        content = bytearray()
        try:
            with self._http.stream(
                "GET" if body is None else "POST",
                self.url + path,
                content=body,
                headers={"Content-Type": "application/json"},
            ) as response:
                for part in response.iter_bytes():
                    content += part
                    if len(content) > MOST_BYTES:
                        raise UnusableAnswerError(f"the answer has more than {MOST_BYTES:,} bytes")
                    if time.monotonic() > ends:
                        raise UnusableAnswerError(f"the answer took over {self._timeout:g} s", "network")
                return response.status_code, response.headers, bytes(content)
        except httpx.TimeoutException:
            raise UnusableAnswerError(f"no answer came within {self._timeout:g} s", "network") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as problem:
            said = self._inert(str(problem)) or type(problem).__name__
            raise UnusableAnswerError(f"the connection failed ({said})", "network") from None

    def _raise_for(self, status: int, headers: httpx.Headers, content: bytes, hide: str) -> NoReturn:
        said = self._inert(_message(content).replace(hide, "[text]") if hide else _message(content))
        if status in WORTH_RETRYING or status >= 500:
            raise UnusableAnswerError(
                f"the server answered with status {status}{said and f' ({said})'}",
                "status",
                wait_seconds=_retry_after(headers),
            )
        advice = {
            401: "; put the right key into the environment variable that is read",
            403: "; check that the key may use this model",
            404: "; check the model's name, and that the url is the base of the API, which often ends in /v1",
            413: "; the text is too long for the server",
        }.get(status, "; the url may have moved" if 300 <= status < 400 else "")
        reason = f"status {status}{said and f': {said}'}"
        raise RefusedError(f"{self.url} refused with {reason}{advice}", status, reason)

    def _inert(self, text: str) -> str:
        """Text of a server, made safe to show: one short line, without control characters and without the key."""
        plain = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in self._key.hidden_in(text))
        line = " ".join(plain.split()).rstrip(".")
        return line if len(line) <= 300 else f"{line[:300]}…"


def _http_client(key: Key, timeout: float, *, encrypted: bool) -> httpx.Client:
    try:
        import httpx
    except ImportError:
        raise MissingExtraError("asking an endpoint", "httpx", "endpoints") from None
    import ssl

    # Nothing is taken from the environment: no proxy that would see the texts, no password file.
    return httpx.Client(
        headers={**key.headers(), "Accept-Encoding": "identity"},
        timeout=timeout,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        verify=ssl.create_default_context() if encrypted else False,
        trust_env=False,
        follow_redirects=False,
    )


def _message(content: bytes) -> str:
    """The sentence in an error of the OpenAI API, or the beginning of whatever it is."""
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Much more than is shown: a key or a text that is cut in two could not be hidden.
        return content[:100_000].decode("utf-8", "replace")
    for field in ("error", "message", "detail"):
        if isinstance(document, dict) and field in document:
            document = document[field]
    return str(document)


def _retry_after(headers: httpx.Headers) -> float:
    """How long the server asks to wait, in seconds: a number or a date, within reason."""
    said = headers.get("retry-after", "").strip()
    try:
        seconds = float(said)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(said).timestamp() - time.time()
        except (ValueError, TypeError, IndexError, OverflowError):
            return 0.0
    return min(LONGEST_RETRY_AFTER_SECONDS, max(0.0, seconds)) if seconds == seconds else 0.0  # noqa: PLR0124 - NaN
