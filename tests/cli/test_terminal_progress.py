"""The bars as a terminal shows them."""

import contextlib
import io

from coalmine.cli.output import LineProgress, TerminalProgress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_new_bar_does_not_repaint_the_ones_before_it(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    with contextlib.redirect_stderr(Terminal()) as terminal:
        progress = TerminalProgress()
        progress.start("first task", 2)
        progress.advance(2)
        progress.finish()
        after_first = len(terminal.getvalue())
        progress.start("second task", 2)
        progress.advance(1, "half")
        progress.finish()
    assert "first task" in terminal.getvalue()
    assert "first task" not in terminal.getvalue()[after_first:]
    assert "second task" in terminal.getvalue()[after_first:]


def test_what_was_stopped_is_not_called_done():
    with contextlib.redirect_stderr(io.StringIO()) as log:
        progress = LineProgress()
        progress.start("a task", 10)
        progress.advance(3)
        progress.close()
        progress.start("another", 1)
        progress.advance(1)
        progress.finish()
    assert "a task: done" not in log.getvalue()
    assert "another: done" in log.getvalue()
