"""Ctrl-C and SIGTERM at any moment: one sentence, the exit code of the signal, and the same command resumes as after a kill."""

import signal

import pytest

from faults.kill_cases import LONG, cases
from faults.kill_runs import Sweep, spread

STOPS = 4


@pytest.mark.parametrize("name", LONG)
def test_a_command_that_is_asked_to_stop(fork_server, inputs, tmp_path, name):
    number = (signal.SIGINT, signal.SIGTERM)[LONG.index(name) % 2]

    def some(lines):
        """The last moment of all, and some before it."""
        points = spread(3 * STOPS, seed=name)(lines)
        return points[-1 - 3 * (STOPS - 1) :: 3]

    Sweep(fork_server, cases(inputs)[name], tmp_path).through(some, number, code=128 + number)
