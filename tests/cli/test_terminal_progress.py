"""Progress as a terminal and a log show it."""

import contextlib
import io
from typing import ClassVar

import pytest

from coalmine import CanarySet, Format, ScriptedModel, expose, extract
from coalmine.cli.output import ShownProgress
from coalmine.progress import Silent


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


def shown(total, work, stream):
    """What is written where `work` is (seconds until it is done, amount) in order."""
    clock = Clock()
    with contextlib.redirect_stderr(stream):
        progress = ShownProgress(clock)
        progress.start("a task", total)
        for seconds, amount in work:
            clock.seconds += seconds
            progress.advance(amount)
        progress.finish()
    return stream.getvalue()


@pytest.mark.parametrize(
    ("total", "work", "lines"),
    [
        (1000, [(0, 0), (10, 50), (10, 150)], ["5%, 3.2 minutes left", "20%, 1.3 minutes left", "done in 20 seconds"]),
        # 900 of 1,000 come from before a stop; the remaining 100 are done at 5 per second.
        (1000, [(0, 900), (10, 50)], ["95%, 10 seconds left", "done in 10 seconds"]),
        (None, [(1, 32), (10, 500)], ["532 in 11 seconds", "done in 11 seconds"]),
    ],
)  # fmt: skip
def test_time_left_is_by_the_measured_rate(total, work, lines):
    log = shown(total, work, io.StringIO()).splitlines()
    assert log == ["a task ...", *(f"a task: {line}" for line in lines)]


def test_a_terminal_has_one_line_for_a_task():
    drawn = shown(1000, [(0, 0), (10, 50)], Terminal())
    assert drawn == (
        "\ra task ...\x1b[K\ra task: 5%, 3.2 minutes left\x1b[K\ra task: done in 10 seconds\x1b[K\n"
    )


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
