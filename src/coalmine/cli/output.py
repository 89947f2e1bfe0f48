"""Output of a command: progress on standard error, and on standard output either tables or one JSON document."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from coalmine.cli.progress import LineProgress, TerminalProgress
from coalmine.progress import Progress, Silent
from coalmine.visible import visible, visible_json, visible_lines

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


class Output:
    """The output of one run of a command.

    Attributes:
        held: what ends with the command, such as a progress bar; the command runs in a `with` of it.
    """

    def __init__(self, *, json: bool, quiet: bool) -> None:
        self.json, self.quiet = json, quiet
        self._progress: TerminalProgress | LineProgress | None = None
        self.held = ExitStack()

    def progress(self) -> Progress:
        """Progress on standard error: a bar on a terminal, lines elsewhere, nothing if quiet."""
        if self.quiet:
            return Silent()
        if self._progress is None:
            self._progress = TerminalProgress() if sys.stderr.isatty() else LineProgress()
            self.held.callback(self._progress.close)
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
