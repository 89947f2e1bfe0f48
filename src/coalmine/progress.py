"""Progress of long work: a small protocol that a terminal or a notebook can implement, and an implementation that shows nothing."""

from __future__ import annotations

from typing import Protocol


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(642.0), duration(120.0), duration(60.0), duration(3.0)
    ('10.7 minutes', '2 minutes', '1 minute', '3 seconds')
    """
    if seconds < 60:
        return f"{seconds:.2g} seconds"
    minutes = round(seconds / 60, 1)
    return f"{minutes:,g} {'minute' if minutes == 1 else 'minutes'}"


class Progress(Protocol):
    """Receives the progress of tasks, one after the other."""

    def start(self, task: str, total: int | None) -> None:
        """A task begins; `total` is in units of work, or None if it is not known.

        A budget that may not be used up is not a total: the time left would include work that is never done.
        """

    def advance(self, amount: int = 1, note: str = "") -> None:
        """`amount` more units are done; `note` is a few words to show next to the bar, such as the loss.

        A task that resumes first reports what was done before it was stopped.
        """

    def finish(self) -> None:
        """The current task is over."""


class Silent:
    """Shows nothing: the default in Python, and `--quiet` on the command line."""

    def start(self, task: str, total: int | None) -> None:
        """Ignore."""

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Ignore."""

    def finish(self) -> None:
        """Ignore."""
