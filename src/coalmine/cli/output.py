"""Output of a command: standard streams that may be closed or full, progress, and tables or one JSON document."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from coalmine.errors import InputError
from coalmine.progress import duration
from coalmine.visible import visible, visible_json, visible_lines

if TYPE_CHECKING:
    import msgspec
    from rich.console import Console

# What was said of strings of the corpus that were passed over, for run.json.
UNREAD: list[str] = []
# Seconds between lines of a log, and between drawings of the line on a terminal.
LOGGED, DRAWN = 10.0, 0.25


class OutputError(InputError):
    """Standard output cannot be written, so the result cannot be shown."""


class ReaderGoneError(Exception):
    """The reader of our output has gone, as `head` does."""


def open_closed_streams() -> None:
    """Open each closed stream as one that discards: otherwise the next file to be opened would get its number, and our output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    # Despite the types, these are None for a stream that was closed when Python started.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def write_stdout(text: str) -> None:
    """Write to standard output; after an error, nothing more is written there."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        _give_up(sys.stdout)
        if isinstance(error, BrokenPipeError):
            raise ReaderGoneError from error
        why = os.strerror(error.errno or 0)
        raise OutputError(f"standard output cannot be written: {why}; redirect it, or use --quiet") from error


def write_stderr(text: str) -> None:
    """Write to standard error; if that fails, the work continues without it."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _give_up(sys.stderr)


def _give_up(stream: TextIO) -> None:
    """Discard what is left and everything that follows: another attempt would only fail again."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class ShownProgress:
    """Progress on standard error: one line that is drawn again and again on a terminal, and a line every few seconds elsewhere.

    The time left is the remaining work divided by the measured rate. Measuring begins with the first report, because a task that resumes
    first reports what was done before it was stopped, which takes no time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._task, self._on_terminal = clock, "", sys.stderr.isatty()

    def start(self, task: str, total: int | None) -> None:
        """Begin a task."""
        self.close()
        self._task, self._total, self._done, self._note = task, total, 0, ""
        self._began = self._shown = self._clock()
        self._first: tuple[float, int] | None = None
        self._show(" ...")

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Count, and show it if it is time to."""
        if self._task:
            self._done += amount
            self._note = note or self._note
            now = self._clock()
            self._first = self._first or (now, self._done)
            if now - self._shown >= (DRAWN if self._on_terminal else LOGGED):
                self._shown = now
                self._show(f": {self._pace(now)}")

    def finish(self) -> None:
        """End the task."""
        if self._task:
            self._show(f": done in {duration(round(self._clock() - self._began))}")
        self.close()

    def close(self) -> None:
        """Show no more of the task; one that was stopped is not reported as done."""
        if self._task and self._on_terminal:
            write_stderr("\n")
        self._task = ""

    def _pace(self, now: float) -> str:
        since, before = self._first or (now, self._done)
        rate = (self._done - before) / (now - since) if now > since else 0.0
        if not self._total:
            return f"{self._done:,} in {duration(round(now - self._began))}"
        left = f", {duration(round(max(0, self._total - self._done) / rate))} left" if rate else ""
        return f"{100 * min(1.0, self._done / self._total):.0f}%{left}"

    def _show(self, line: str) -> None:
        line = visible(f"{self._task}{line}{self._note and ', '}{self._note}")
        if self._on_terminal:
            write_stderr(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K")
        else:
            write_stderr(f"{line}\n")


def placed(what: str, path: Path) -> str:
    r"""A line that says where something is.

    >>> print(placed("Results", Path("a\nb")))
    Results: a\nb
    """
    return f"{what}: {visible(str(path))}"


def noted(notes: Iterable[str]) -> list[str]:
    """Lines of notes, in which hostile text is inert."""
    return [f"Note: {visible(note)}." for note in notes]


def facts(result: msgspec.Struct) -> list[str]:
    """The numbers and words of a result, a line for each, without its hashes and the options that it was made with.

    >>> import msgspec
    >>> facts(msgspec.defstruct("Made", [("documents_left", int), ("sha256", str)])(1200, "77"))
    ['documents left: 1,200']
    """
    import msgspec

    from coalmine.evidence.tables import cell_text

    lines = []
    for name, value in msgspec.structs.asdict(result).items():
        if name in {"schema", "settings", "options", "fields"} or "sha256" in name:
            continue
        if isinstance(value, msgspec.Struct | int | float | str):
            shown = ", ".join(facts(value)) if isinstance(value, msgspec.Struct) else cell_text(value)
            lines.append(f"{name.replace('_', ' ')}: {visible(shown)}")
    return lines


def table_of_records(rows: Iterable[Any], *names: str) -> Any:
    """A table of some fields of records."""
    from coalmine.evidence.tables import table_of

    heads = [name.replace("_", " ") for name in names]
    return table_of(heads, ([getattr(row, name) for name in names] for row in rows))


def print_json(document: Any, *, one_line: bool = False) -> None:
    """Print one JSON document on standard output, without a character that a terminal would act on."""
    import msgspec

    from coalmine.storage.files import to_json

    written = to_json(document)
    if one_line:
        written = msgspec.json.format(written, indent=-1)
    unicode = (sys.stdout.encoding or "utf-8").lower().replace("_", "-") in {"utf-8", "utf8"}
    write_stdout(visible_json(written.decode(), ascii_only=not unicode) + "\n")


def make_console(file: TextIO, width: int | None = None) -> Console:
    """A console that writes into a file what is for standard output; outside of a terminal, lines are wide enough for tables."""
    from rich.console import Console
    from rich.text import Text

    class Plain(Console):
        """Shows strings as they are: markup, names of emoji and escape sequences in them have no effect."""

        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(visible_lines(text), **options)

    terminal = sys.stdout.isatty()
    width = width or (None if terminal else 100)
    return Plain(file=file, force_terminal=terminal, width=width, highlight=False, markup=False, emoji=False)
