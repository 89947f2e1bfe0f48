"""Ctrl-C, or being asked to end, at a moment of our choosing, so that what is saved is never half a step."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_Handler = Callable[[int, FrameType | None], object]


class SignalNoted:
    """Which signal stopped this process, for its exit code; none so far."""

    last: int | None = None


def end_as_by_ctrl_c() -> None:
    """From now on SIGTERM, by which a scheduler asks a process to end, acts as Ctrl-C does; by default it kills."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    SignalNoted.last = number
    signal.default_int_handler(number, frame)


@contextlib.contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Within the block the first Ctrl-C is only noted; the function that the block gets tells whether there was one.

    So is SIGTERM where it was made to act as Ctrl-C does. A second one interrupts at once, and one that the block did not act on
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
        SignalNoted.last = number
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
