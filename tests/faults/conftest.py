"""One warm process for all tests here, and what their commands read."""

import pytest

from faults.fork_server import ForkServer
from faults.kill_cases import make_inputs


@pytest.fixture(scope="session")
def fork_server():
    with ForkServer() as started:
        yield started


@pytest.fixture(scope="session")
def inputs(fork_server, tmp_path_factory):
    return make_inputs(fork_server, tmp_path_factory.mktemp("inputs"))
