"""Waiting for a condition, with a limit that not even a very busy machine reaches."""

import time

PATIENCE_SECONDS = 300


def wait_until(condition, explain=lambda: "the condition did not come true"):
    """Return what `condition` returns once that is true."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, explain()
        time.sleep(0.01)
    return found
