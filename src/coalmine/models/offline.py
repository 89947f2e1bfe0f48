"""`offline`: no network connection while a local model is loaded; `without_hub`: no request to the hub."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

# The audit events that Python raises before it looks up a host or sends anything to one; creating a socket alone connects to nothing.
_REACHES_OUT = frozenset({
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostbyaddr",
    "socket.gethostbyname",
    "socket.getnameinfo",
    "socket.sendmsg",
    "socket.sendto",
})  # fmt: skip


class OfflineError(ConnectionError):
    """A library tried to reach the network while a local model was loaded."""


class _OfThread(threading.local):
    """The number of blocks that this thread is in."""

    depth = 0


_thread = _OfThread()
_lock = threading.Lock()
_blocks = 0  # of all threads
_hub_was_offline = False
_watching = False


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Refuse every connection of this thread, and switch off the hub's client for the whole process.

    There are two switches, because neither is enough. The hub's client reads its own setting on each call, so that libraries use what
    is on disk instead of failing, even in threads that they start. And the interpreter itself refuses lookups and connections of
    this thread, whichever library makes them. Threads that load nothing keep their connections, except those to the hub. The
    setting is restored when the last block ends, and no environment variable is changed.
    """
    global _watching  # noqa: PLW0603 - one hook per process: it cannot be taken out again
    with _lock:
        if not _watching:
            sys.addaudithook(_refuse)
            _watching = True
    with without_hub():
        _thread.depth += 1
        try:
            yield
        finally:
            _thread.depth -= 1


@contextlib.contextmanager
def without_hub() -> Iterator[None]:
    """Switch off the hub's client for the whole process and those forked from it, whenever it was imported."""
    with _lock:
        _switch_hub(+1)
    try:
        yield
    finally:
        with _lock:
            _switch_hub(-1)


def _refuse(event: str, _: tuple[Any, ...]) -> None:
    if event in _REACHES_OUT and _thread.depth:
        raise OfflineError(f"{event} was refused: local models are loaded without the network")


def _switch_hub(step: int) -> None:
    """Switch off the hub's client for the first block, and restore it after the last."""
    global _blocks, _hub_was_offline  # noqa: PLW0603 - the setting is one for the process, and so is its count
    try:
        from huggingface_hub import constants
    except ImportError:  # no installed library uses a hub
        return
    if step > 0 and _blocks == 0:
        _hub_was_offline = constants.HF_HUB_OFFLINE
        constants.HF_HUB_OFFLINE = True
    _blocks += step
    if _blocks == 0:
        constants.HF_HUB_OFFLINE = _hub_was_offline
