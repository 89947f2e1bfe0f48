"""Limits on requests to a server: a rate, a total number, and a total cost."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from coalmine.errors import InputError, NotMeasurableError

FEWEST_PER_SECOND = 1e-5  # about one per day


class RateLimit:
    """Requests begin at least 1 / `per_second` apart, over all threads; with None there is no limit.

    `clock` gives seconds.
    """

    def __init__(self, per_second: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        if per_second is not None and not per_second >= FEWEST_PER_SECOND:
            raise InputError(
                f"requests_per_second must be at least {FEWEST_PER_SECOND:g}, got {per_second}; leave it out for no limit"
            )
        self._between = 0.0 if per_second is None else 1 / per_second
        self._clock = clock
        self._next = float("-inf")
        self._lock = threading.Lock()

    def wait(self, sleep: Callable[[float], object]) -> None:
        """Return when the next request may begin."""
        with self._lock:
            begins = max(self._clock(), self._next)
            self._next = begins + self._between
        while (left := begins - self._clock()) > 0:
            sleep(left)

    def pause(self, seconds: float) -> None:
        """Begin no request for this many seconds, because the server asked to wait."""
        with self._lock:
            self._next = max(self._next, self._clock() + seconds)


class Budget:
    """Counts requests, retries included, and their cost; refuses the request that would exceed a cap.

    Tokens are counted as the server counts them. Until then, a request is assumed to cost `most_tokens`, which it cannot exceed, so that
    a cap also holds for requests that are in flight at the same time.
    """

    def __init__(
        self, most_requests: int | None, most_cost: float | None, cost_per_million_tokens: float | None
    ) -> None:
        for name, cap in (
            ("most_requests", most_requests),
            ("most_cost", most_cost),
            ("cost_per_million_tokens", cost_per_million_tokens),
        ):
            if cap is not None and not 0 <= cap < math.inf:
                raise InputError(f"{name} must be a number of at least 0, got {cap}; leave it out for no cap")
        if most_cost is not None and cost_per_million_tokens is None:
            raise InputError("most_cost needs the price: give cost_per_million_tokens, in the same currency")
        self._most_requests = most_requests
        self._most_cost = most_cost
        self._price = (cost_per_million_tokens or 0.0) / 1e6
        self._lock = threading.Lock()
        self._reserved = 0
        self.requests = 0
        self.tokens = 0

    @property
    def cost(self) -> float:
        """The cost so far, in the currency of the price."""
        return self.tokens * self._price

    def reserve(self, most_tokens: int) -> None:
        """Reserve tokens before a request; a NotMeasurableError if it could exceed a cap."""
        with self._lock:
            if self._most_requests is not None and self.requests + 1 > self._most_requests:
                raise NotMeasurableError(
                    f"the cap of {self._most_requests} requests is reached, and more are needed; what was answered is in the "
                    "cache, if there is one: raise most_requests to resume"
                )
            could = (self.tokens + self._reserved + most_tokens) * self._price
            if self._most_cost is not None and could > self._most_cost:
                raise NotMeasurableError(
                    f"the next request could bring the cost from {self.cost:.6g} to {could:.6g}, above the cap of "
                    f"{self._most_cost:.6g}; what was answered is in the cache, if there is one: raise most_cost to resume"
                )
            self.requests += 1
            self._reserved += most_tokens

    def settle(self, most_tokens: int, tokens: int) -> None:
        """Record that a request for which `most_tokens` were reserved took `tokens`."""
        with self._lock:
            self._reserved -= most_tokens
            self.tokens += tokens
