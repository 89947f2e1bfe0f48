"""The command line in processes of their own, without the seconds in which each would import everything."""

import pytest


@pytest.fixture(scope="session")
def coalmine(fork_server):
    """Runs a command to its end: its exit code, and what is on which stream."""

    def run(*arguments, cwd=None, check=True):
        ended = fork_server.run(arguments, cwd=cwd)
        assert ended.code == 0 or not check, ended.err
        return ended

    return run
