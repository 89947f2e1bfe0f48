"""A command that is killed, at whatever moment and however often, ends with the bytes of one that never was, and leaves nothing else."""

import pytest

from faults.kill_cases import LONG, SHORT, cases, short_cases
from faults.kill_runs import Sweep, spread

KILLS = 20


@pytest.mark.parametrize("name", LONG)
def test_a_long_command(fork_server, inputs, tmp_path, name):
    """Each run is killed, also right after each file that took its name or went, and resumes what the one before it has left."""
    case = cases(inputs)[name]
    swept = Sweep(fork_server, case, tmp_path).through(spread(KILLS))
    assert len(swept.kills) >= KILLS
    assert (swept.resumed >= KILLS // 4) == case.resumes
    if case.argv[0] == "train":
        assert swept.work < 2 * swept.whole_work, (
            "all these runs together learned less than two whole ones would"
        )


@pytest.mark.parametrize("name", SHORT)
def test_a_short_command(fork_server, inputs, tmp_path, name):
    case = short_cases(inputs)[name]
    swept = Sweep(fork_server, case, tmp_path).through(spread(KILLS))
    assert len(swept.kills) >= 5
