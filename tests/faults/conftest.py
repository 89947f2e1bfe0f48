"""The inputs of the commands that are stopped and whose disk fails."""

import pytest

from faults import kill_cases, write_cases


@pytest.fixture(scope="session")
def inputs(fork_server, tmp_path_factory):
    return kill_cases.make_inputs(fork_server, tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="session")
def write_inputs(fork_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("writes") / "inputs"
    write_cases.make_inputs(fork_server, folder)
    return folder


@pytest.fixture(scope="session")
def endpoint(fork_server, write_inputs):
    """A server of one of the models, with the file that describes it among the inputs."""
    with write_cases.serving(fork_server, write_inputs):
        yield
