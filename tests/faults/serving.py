"""A model at an endpoint, in a process of its own."""

import contextlib
import json
import os
import signal

from waiting import wait_until


@contextlib.contextmanager
def served(server, model, *more):
    """The address of a server that computes one text at a time, so that its numbers do not depend on what else is asked."""
    child = server.start(["serve", model, "--port", "0", "--batch", "1", "--json", *more])
    wait_until(lambda: child.out.read_text().endswith("\n"), child.err.read_text)
    yield json.loads(child.out.read_text())["url"]
    os.kill(child.pid, signal.SIGTERM)
    assert server.wait(child).code == 0
