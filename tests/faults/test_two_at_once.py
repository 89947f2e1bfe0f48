"""Two processes with the same output directory: the second is refused with one sentence, and the first finishes as if it were alone."""

import os
import signal

import pytest

from faults import moments
from faults.kill_cases import LONG, cases
from faults.kill_runs import Sweep
from waiting import wait_until


@pytest.mark.parametrize(
    "name", [name for name in LONG if name not in {"index --overwrite", "plant --overwrite"}]
)
def test_a_second_process_is_refused(fork_server, inputs, tmp_path, name):
    sweep = Sweep(fork_server, cases(inputs)[name], tmp_path)
    lines = sweep.learn()
    sweep.fresh()
    stop = [next(line for line in lines if line.startswith("after open .")), 1]
    first = sweep.start(stop, signal.SIGSTOP)  # in the middle of its first file
    wait_until(lambda: stop[0] in moments.of(sweep.record))
    second = fork_server.run(sweep.case.argv, cwd=sweep.folder)
    assert (second.code, second.out) == (2, "")
    assert (
        second.err
        == "coalmine: another process is writing to out; wait until it has finished, or choose another directory\n"
    )
    os.kill(first.pid, signal.SIGCONT)
    assert fork_server.wait(first).code == 0
    sweep.check_whole("beside another process")
