"""Output of a command: standard streams that may be closed or full, progress, and tables or one JSON document."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from coalmine.errors import InputError
from coalmine.visible import visible, visible_json, visible_lines

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from coalmine.progress import Progress
# What was said of strings of the corpus that were passed over, for run.json.
UNREAD: list[str] = []


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


class Output:
    """The output of one run of a command.

    Attributes:
        held: what ends with the command, such as a progress bar; the command runs in a `with` of it.
    """

    def __init__(self, *, json: bool, quiet: bool) -> None:
        self.json, self.quiet = json, quiet
        self._progress: Progress | None = None
        self.held = contextlib.ExitStack()

    def progress(self) -> Progress:
        """Progress on standard error: a bar on a terminal, lines elsewhere, nothing if quiet."""
        from coalmine.cli.progress import LineProgress, TerminalProgress
        from coalmine.progress import Silent

        if self._progress is None and self.quiet:
            self._progress = Silent()
        if self._progress is None:
            self._progress = shown = TerminalProgress() if sys.stderr.isatty() else LineProgress()
            self.held.callback(shown.close)
        return self._progress

    def say(self, *shown: RenderableType | None) -> None:
        """Print for people, what there is of it; nothing with --json or --quiet."""
        if not self.json and not self.quiet:
            console = make_console()
            for one in shown:
                if one is not None:
                    console.print(one)

    def document(self, document: Any) -> None:
        """Print the one JSON document for programs, with --json only."""
        if self.json:
            print_json(document)


def placed(what: str, path: Path) -> str:
    r"""A line that says where something is.

    >>> print(placed("Results", Path("a\nb")))
    Results: a\nb
    """
    return f"{what}: {visible(str(path))}"


def noted(notes: Iterable[str]) -> list[str]:
    """Lines of notes, in which hostile text is inert."""
    return [f"Note: {visible(note)}." for note in notes]


def print_json(document: Any, *, one_line: bool = False) -> None:
    """Print one JSON document on standard output, without a character that a terminal would act on."""
    import msgspec

    from coalmine.storage.files import to_json

    written = to_json(document)
    if one_line:
        written = msgspec.json.format(written, indent=-1)
    unicode = (sys.stdout.encoding or "utf-8").lower().replace("_", "-") in {"utf-8", "utf8"}
    sys.stdout.write(visible_json(written.decode(), ascii_only=not unicode) + "\n")
    sys.stdout.flush()


def make_console(file: TextIO | None = None, width: int | None = None) -> Console:
    """A console for standard output or another file; outside of a terminal, lines are wide enough for tables."""
    from rich.console import Console
    from rich.text import Text

    class Plain(Console):
        """Shows strings as they are: markup, names of emoji and escape sequences in them have no effect."""

        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(visible_lines(text), **options)

    stream = file or sys.stdout
    return Plain(
        file=stream,
        width=width or (None if stream.isatty() else 100),
        highlight=False,
        soft_wrap=False,
        markup=False,
        emoji=False,
    )
