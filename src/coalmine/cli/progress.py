"""Progress on standard error: a bar on a terminal, lines in a log, and the time that is left."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from coalmine.cli.output import write_stderr
from coalmine.visible import visible

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

SECONDS_BETWEEN_LINES = 10.0
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


class Pace:
    """The progress of one task, measured by a clock in seconds.

    Measuring begins with the first report, because a task that resumes first reports what was done before it was stopped, which takes
    no time. The time left is the remaining work divided by the measured rate; a task without a known end has none.
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
        """Units of work per second, or None before it can be measured."""
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
    """Seconds in the two largest units that matter.

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


class TerminalProgress:
    """A bar with the time left; each task has its own, so that a new one never repaints finished ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bar: Bars | None = None

    def start(self, task: str, total: int | None) -> None:
        """Show a new bar below the finished ones."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
        from rich.text import Text

        pace = Pace(total, self._clock)

        class PaceColumn(ProgressColumn):
            def render(self, task: Task) -> Text:  # noqa: ARG002 - the pace knows
                return Text(str(pace))

        self.close()
        self._pace = pace
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            PaceColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=Console(file=sys.stderr),
            refresh_per_second=4,
        )
        self._task = self._bar.add_task(visible(task), total=total, note="")
        with contextlib.suppress(OSError):  # a terminal that is gone is not a reason to stop
            self._bar.start()

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Move the bar; it is drawn a few times a second, however often this is called."""
        if self._bar is not None:
            self._pace.advance(amount)
            self._bar.update(self._task, advance=amount, note=visible(note))

    def finish(self) -> None:
        """Leave the bar as it is."""
        self.close()

    def close(self) -> None:
        """Stop drawing, also in the middle of a task."""
        if self._bar is not None:
            with contextlib.suppress(OSError):
                self._bar.stop()
        self._bar = None


class LineProgress:
    """For logs: a line when a task starts, every few seconds, and when it ends."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._task = ""

    def start(self, task: str, total: int | None) -> None:
        """Begin a task."""
        self._task, self._note = task, ""
        self._pace = Pace(total, self._clock)
        self._reported = self._clock()
        _write_line(f"{task} ...")

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Count, and write a line if it is time for one."""
        if not self._task:
            return
        self._pace.advance(amount)
        self._note = note or self._note
        now = self._clock()
        if now - self._reported >= SECONDS_BETWEEN_LINES:
            self._reported = now
            _write_line(f"{self._task}: {self._pace}{self._noted()}")

    def finish(self) -> None:
        """End the task."""
        if self._task:
            _write_line(f"{self._task}: done in {duration(self._pace.elapsed)}{self._noted()}")
        self.close()

    def close(self) -> None:
        """Write no more about the task; one that was stopped is not reported as done."""
        self._task = ""

    def _noted(self) -> str:
        return f", {self._note}" if self._note else ""


def _write_line(line: str) -> None:
    write_stderr(visible(line) + "\n")
