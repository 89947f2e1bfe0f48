"""Standard streams that may be closed, full, or without a reader."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from coalmine.errors import InputError


class OutputError(InputError):
    """Standard output cannot be written, so the result cannot be shown."""


class ReaderGoneError(Exception):
    """The reader of our output has gone, as `head` does; not an OSError, which the command-line library would handle itself."""


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """Make standard streams writable, and their errors clear; afterwards nothing is left that would fail at exit."""
    _open_closed()
    out = sys.stdout
    sys.stdout = cast("TextIO", _CheckedOutput(out))
    try:
        yield
    finally:
        sys.stdout = out
        for stream in (out, sys.stderr):
            try:
                stream.flush()
            except OSError:
                _give_up(stream)


class _CheckedOutput:
    """Standard output with errors of its own, which cannot be taken for those of a file; after the first, every write fails."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._refused: OutputError | ReaderGoneError | None = None

    def write(self, text: str) -> int:
        with self._checked():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._checked():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _checked(self) -> Iterator[None]:
        # The command-line library tries the stream out, and misinterprets any error.
        if self._refused is not None:
            raise self._refused
        try:
            yield
        except OSError as error:
            _give_up(self._stream)
            why = "it is closed" if error.errno == errno.EBADF else os.strerror(error.errno or 0)
            self._refused = OutputError(
                f"standard output cannot be written: {why}; redirect it, or use --quiet"
            )
            if isinstance(error, BrokenPipeError):
                self._refused = ReaderGoneError()
            raise self._refused from error


def write_stderr(text: str) -> None:
    """Write to standard error; if that fails, the work continues without it."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _open_closed() -> None:
    """Open each closed stream: otherwise the next file to be opened would get its number, and the output would go into that file.

    Standard output is opened for reading only, so that writing to it fails instead of losing the output silently.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, mode)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
    # Despite the types, these are None for a stream that was closed when Python started.
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def _give_up(stream: TextIO) -> None:
    """Discard what is left and everything that follows: another attempt would only fail again."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
