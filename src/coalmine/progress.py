"""How long work tells of itself: a small protocol that the terminal, a notebook or nothing at all can stand behind."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the progress of one or more tasks, one after the other."""

    def start(self, task: str, total: int | None) -> None:
        """A task begins; `total` is in units of work, or None where it is not known.

        A budget that may not be used up is not a total: the time left would be that of work that is never done.
        """

    def advance(self, amount: int = 1, note: str = "") -> None:
        """`amount` more units are done; `note` is a few words to show beside the bar, such as the loss.

        A task that resumes reports first what was done before it was stopped.
        """

    def finish(self) -> None:
        """The current task is over."""


class Silent:
    """Tells nothing: the default from Python, and `--quiet` on the command line."""

    def start(self, task: str, total: int | None) -> None:
        """Ignore."""

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Ignore."""

    def finish(self) -> None:
        """Ignore."""
