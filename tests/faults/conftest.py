"""One warm process for all tests here."""

import pytest

from faults.fork_server import ForkServer


@pytest.fixture(scope="session")
def fork_server():
    with ForkServer() as started:
        yield started
