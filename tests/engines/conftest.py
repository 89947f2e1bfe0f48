"""A Ray cluster for the tests of a module."""

import os
import shutil
import tempfile

import pytest

from engines.clusters import TOKEN, Machines


@pytest.fixture(scope="module")
def machines(request):
    ours = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # else its workers wait for all other tests
    }
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    folder = tempfile.mkdtemp(prefix="ray-")
    try:
        found = Machines(folder, getattr(request.module, "CORES", 3))
        try:
            yield found
        finally:
            found.cluster.shutdown()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
