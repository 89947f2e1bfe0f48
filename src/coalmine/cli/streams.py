"""Standard streams that are closed, full, or read by nobody."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from coalmine.errors import InputError


class OutputError(InputError):
    """Standard output takes nothing, so that what was found cannot be shown."""


class ReaderGoneError(Exception):
    """Whoever read our output has gone, as `head` does; not an OSError, which the command-line library would act on itself."""


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """Streams that can be written to, and that say what they refuse; afterwards nothing is left that would fail at exit."""
    _open_closed()
    out = sys.stdout
    sys.stdout = cast("TextIO", _Told(out))
    try:
        yield
    finally:
        sys.stdout = out
        for stream in (out, sys.stderr):
            try:
                stream.flush()
            except OSError:
                _give_up(stream)


class _Told:
    """Standard output, whose refusals are not taken for those of a file; what it refused once it refuses for good."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._refused: OutputError | ReaderGoneError | None = None

    def write(self, text: str) -> int:
        with self._told():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._told():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        # The command-line library tries a stream out, and takes whatever goes wrong for a sign of something else.
        if self._refused is not None:
            raise self._refused
        try:
            yield
        except OSError as error:
            _give_up(self._stream)
            why = "it is closed" if error.errno == errno.EBADF else os.strerror(error.errno or 0)
            self._refused = OutputError(
                f"standard output cannot be written: {why}; send it to another place, or use --quiet"
            )
            if isinstance(error, BrokenPipeError):
                self._refused = ReaderGoneError()
            raise self._refused from error


def tell(text: str) -> None:
    """Write to standard error; where that takes nothing, work goes on without it."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _open_closed() -> None:
    """Give each closed stream a file: the first that is opened would get its number, and what is printed would go into it.

    What is written to a standard output that is closed is refused, and not lost without a word.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, mode)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
    # Python has no object for a stream that was closed when it started, whatever the types say.
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def _give_up(stream: TextIO) -> None:
    """Send what is left, and all that follows, to nowhere: trying again would only fail again."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
