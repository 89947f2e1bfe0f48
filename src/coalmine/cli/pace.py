"""How far a task has come, how fast it goes, and how long it has left, in words."""

from __future__ import annotations

from collections.abc import Callable

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


class Pace:
    """The progress of one task, measured by a clock in seconds.

    The first piece of work that is reported is where measuring begins: a task that resumes reports first what was done before it was
    stopped, at no cost in time. Time left is the work that remains over the measured rate. A task whose end is not known has none.
    """

    def __init__(self, total: int | None, clock: Callable[[], float]) -> None:
        self._total, self._clock, self._done = total, clock, 0
        self._began = clock()
        self._first: tuple[float, int] | None = None

    def advance(self, amount: int) -> None:
        """Count more work as done."""
        self._done += amount
        if self._first is None:
            self._first = self._clock(), self._done

    @property
    def elapsed(self) -> float:
        """Seconds since the task began."""
        return self._clock() - self._began

    @property
    def rate(self) -> float | None:
        """Units of work per second, or None before there is anything to measure it by."""
        if self._first is None:
            return None
        since, before = self._first
        seconds = self._clock() - since
        return (self._done - before) / seconds if seconds > 0 and self._done > before else None

    def __str__(self) -> str:
        rate = self.rate
        if not self._total:
            per_second = "" if rate is None else f" ({_rounded(rate)} per second)"
            return f"{self._done:,}{per_second} in {duration(self.elapsed)}"
        share = f"{100 * min(1.0, self._done / self._total):.0f}%"
        left = "" if rate is None else f", {duration(max(0, self._total - self._done) / rate)} left"
        return share + left


def duration(seconds: float) -> str:
    """Seconds in the two largest units that say something.

    >>> [duration(seconds) for seconds in (0.4, 59.6, 200, 7260, 200_000)]
    ['0 s', '1 min', '3 min 20 s', '2 h 1 min', '2 d 8 h']
    """
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return _two_units(whole, 1, "min", "s", 60)
    if whole < _DAY:
        return _two_units(whole, _MINUTE, "h", "min", 60)
    return _two_units(whole, _HOUR, "d", "h", 24)


def _two_units(seconds: int, small: int, large_name: str, small_name: str, small_per_large: int) -> str:
    many, rest = divmod(round(seconds / small), small_per_large)
    return f"{many:,} {large_name}" + (f" {rest} {small_name}" if rest else "")


def _rounded(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1g}"
