"""A model behind an endpoint, in a process of its own."""

import contextlib
import json
import os
import signal
import time


@contextlib.contextmanager
def served(server, model, *more):
    """The address of a server that computes one text at a time, so that its numbers do not depend on what else is asked."""
    child = server.start(["serve", model, "--port", "0", "--batch", "1", "--json", *more])
    deadline = time.monotonic() + 60
    while not (said := child.out.read_text()).endswith("\n"):
        assert time.monotonic() < deadline, child.err.read_text()
        time.sleep(0.01)
    yield json.loads(said)["url"]
    os.kill(child.pid, signal.SIGTERM)
    assert server.wait(child).code == 0
