"""A child of the fork server is a process like any other: what it says, how it ends, and that it can be ended."""

import os
import signal


def test_a_child_runs_the_command_in_its_place_and_says_what_the_command_says(fork_server, tmp_path):
    run = fork_server.run(["--version"], cwd=tmp_path)
    assert (run.code, run.err) == (0, "")
    assert run.out.startswith("coalmine ")
    refused = fork_server.run(["train", "nowhere", "-o", "model"], cwd=tmp_path)
    assert refused.code == 2
    assert refused.err.startswith("coalmine: ")
    made = fork_server.run(["policy", "init", "mine.toml"], cwd=tmp_path)
    assert (made.code, (tmp_path / "mine.toml").is_file()) == (0, True)


def test_what_is_to_be_done_first_is_done_in_the_child_alone(fork_server):
    assert fork_server.run(call="gc:isenabled", before=["gc:disable", {}]).code == 0
    assert fork_server.run(call="gc:isenabled").code == 1, "it is on in all others"


def test_a_child_can_be_killed_and_its_end_is_told(fork_server):
    child = fork_server.start(call="signal:pause")
    os.kill(child.pid, signal.SIGKILL)
    assert fork_server.wait(child).code == -signal.SIGKILL
    assert fork_server.run(call="os:abort").code == -signal.SIGABRT
