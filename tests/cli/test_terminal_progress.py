"""Progress as a terminal and a log show it."""

import contextlib
import io

import pytest

from coalmine.cli.output import ShownProgress


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
