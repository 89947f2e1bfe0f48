"""What a command shows: progress on standard error, and on standard output either a table or one JSON document."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from coalmine.cli.pace import Pace, duration
from coalmine.cli.streams import tell
from coalmine.progress import Progress, Silent
from coalmine.visible import visible, visible_json, visible_lines

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress as Bars

SECONDS_BETWEEN_LINES = 10.0


class Output:
    """Where one run of a command writes. Use it in a `with`, so that a progress bar never outlives the command."""

    def __init__(self, *, json: bool, quiet: bool) -> None:
        self.json, self.quiet = json, quiet
        self._progress: TerminalProgress | LineProgress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.close()

    def progress(self) -> Progress:
        """Progress on standard error: a bar on a terminal, a line now and then elsewhere, nothing if quiet."""
        if self.quiet:
            return Silent()
        if self._progress is None:
            self._progress = TerminalProgress() if sys.stderr.isatty() else LineProgress()
        return self._progress

    def say(self, *shown: RenderableType) -> None:
        """For people: nothing with --json or --quiet."""
        if not self.json and not self.quiet:
            console = make_console()
            for one in shown:
                console.print(one)

    def document(self, document: Any) -> None:
        """For machines: the one JSON document, with --json only."""
        if self.json:
            print_json(document)


def print_json(document: Any, *, one_line: bool = False) -> None:
    """One JSON document on standard output, in UTF-8 whatever the locale, without a byte that a terminal would act on."""
    import msgspec

    from coalmine.storage.files import to_json

    written = to_json(document)
    if one_line:
        written = msgspec.json.format(written, indent=-1)
    unicode = (sys.stdout.encoding or "utf-8").lower().replace("_", "-") in {"utf-8", "utf8"}
    sys.stdout.write(visible_json(written.decode(), ascii_only=not unicode) + "\n")
    sys.stdout.flush()


def make_console(file: TextIO | None = None, width: int | None = None) -> Console:
    """Standard output, or another file. Elsewhere than on a terminal, lines are wide enough that tables are not cut."""
    from rich.console import Console
    from rich.text import Text

    class Plain(Console):
        """Shows strings as they are: nothing in them is markup, an emoji's name or an escape sequence."""

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


class TerminalProgress:
    """A bar with the time left; one for each task, so that a new one never repaints those that are done."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bar: Bars | None = None

    def start(self, task: str, total: int | None) -> None:
        """Show a new bar below those that are done."""
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
        with contextlib.suppress(OSError):  # a terminal that is gone is no reason to stop
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
        """Give the terminal back, also in the middle of a task."""
        if self._bar is not None:
            with contextlib.suppress(OSError):
                self._bar.stop()
        self._bar = None


class LineProgress:
    """For logs: a line at the start of a task, now and then, and at its end."""

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
        """Count, and write a line if it is time to."""
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
        """Say no more of the task; what was stopped is not called done."""
        self._task = ""

    def _noted(self) -> str:
        return f", {self._note}" if self._note else ""


def _write_line(line: str) -> None:
    tell(visible(line) + "\n")
