"""A command that is killed, at any moment and any number of times, ends with the same bytes as one that was not, and leaves nothing else."""

import os

import pytest

from faults.kill_cases import LONG, SHORT, cases, short_cases
from faults.kill_runs import Sweep, spread

# `make fuzz-kills` takes more.
KILLS = int(os.environ.get("COALMINE_KILLS", "20"))


@pytest.mark.parametrize("name", LONG)
def test_a_long_command(fork_server, inputs, tmp_path, name):
    """Each run is killed, also right after a file takes its name or is removed, and resumes from what the previous one left."""
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
