"""Ctrl-C and SIGTERM, handled between two steps, so that what is saved is never half a step."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_Handler = Callable[[int, FrameType | None], object]


class LastSignal:
    """The signal that stopped this process, if any, for its exit code."""

    number: int | None = None


def treat_sigterm_as_ctrl_c() -> None:
    """Make SIGTERM, with which a scheduler asks a process to end, act like Ctrl-C; by default it kills. Both are noted."""
    LastSignal.number = None
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell may have it ignored
            signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    LastSignal.number = number
    signal.default_int_handler(number, frame)


@contextlib.contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Only note the first Ctrl-C within the block; the function that the block gets returns whether there was one.

    The same holds for SIGTERM after `treat_sigterm_as_ctrl_c`. A second signal interrupts at once, and one that the block did not act on
    interrupts at its end. Outside the main thread, where signals cannot be handled, nothing is deferred.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    noted: list[int] = []
    before: dict[int, _Handler] = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM)
        if callable(handler := signal.getsignal(number))
    }

    def note(number: int, frame: FrameType | None) -> None:
        if noted:
            before[number](number, frame)
        LastSignal.number = number
        noted.append(number)

    for number in before:
        signal.signal(number, note)
    try:
        yield lambda: bool(noted)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if noted:
        before[noted[0]](noted[0], None)
