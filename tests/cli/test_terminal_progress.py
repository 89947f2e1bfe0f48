"""The bars as a terminal shows them."""

import contextlib
import io
from typing import ClassVar

import pytest

from coalmine import CanarySet, Format, ScriptedModel, expose, extract
from coalmine.cli.progress import LineProgress, TerminalProgress
from coalmine.progress import Silent


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


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


def lines_of(total, work, *, task="a task"):
    """The lines of a log where `work` is (seconds until it is done, amount) in order."""
    clock = Clock()
    with contextlib.redirect_stderr(io.StringIO()) as log:
        progress = LineProgress(clock)
        progress.start(task, total)
        for seconds, amount in work:
            clock.seconds += seconds
            progress.advance(amount)
        progress.finish()
    return log.getvalue().splitlines()


def test_time_left_is_by_the_measured_rate():
    assert lines_of(1000, [(0, 0), (10, 50), (10, 150)]) == [
        "a task ...",
        "a task: 5%, 3 min 10 s left",
        "a task: 20%, 1 min 20 s left",
        "a task: done in 20 s",
    ]


def test_what_was_done_before_a_stop_does_not_count_for_the_rate():
    # 900 of 1,000 come from before; the remaining 100 are done at 5 per second.
    assert lines_of(1000, [(0, 900), (10, 50)])[1] == "a task: 95%, 10 s left"


def test_a_task_without_a_known_end_has_a_rate_and_no_time_left():
    shown = lines_of(None, [(1, 32), (10, 500), (5000, 40_000)])
    assert shown[1:] == [
        "a task: 532 (50 per second) in 11 s",
        "a task: 40,532 (8 per second) in 1 h 24 min",
        "a task: done in 1 h 24 min",
    ]


def test_the_bar_shows_the_same(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    clock = Clock()
    with contextlib.redirect_stderr(Terminal()) as terminal:
        progress = TerminalProgress(clock)
        for total in (None, 1000):
            progress.start("a task", total)
            progress.advance(100)
            clock.seconds += 3600
            progress.advance(36)
            progress.finish()
    assert "136 (0.01 per second) in 1 h" in terminal.getvalue()
    assert "14%, 1 d left" in terminal.getvalue()


@pytest.mark.parametrize("method", ["extract", "expose"])
def test_a_budget_is_not_taken_for_the_work_that_there_is(method):
    class Noted(Silent):
        totals: ClassVar = []

        def start(self, task, total):
            self.totals.append((task, total))

    model = ScriptedModel("0123456789 pin", memory={"pin 0412": 0.5})
    form = Format("pin {digits:4}")
    if method == "extract":
        extract(model, form, top=1, budget=10**9, progress=Noted())
    else:
        canaries = CanarySet.of(form, ["pin 0412"])
        expose(model, canaries, method="bounded", budget=10**9, progress=Noted())
    assert [total for task, total in Noted.totals if "1,000,000,000 expansions" in task] == [None]
