"""A watch that kills the worker of the training that it watches, once; the process of the tests it spares."""

import os
import signal
from pathlib import Path


class DeadlyWatch:
    every = 3

    def __init__(self, folder):
        self._folder, self._home = str(folder), os.getpid()

    def measure(self, model):  # noqa: ARG002 - what it looks at is not the model
        died = Path(self._folder, "died")
        if os.getpid() != self._home and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return []

    def describe(self):
        return {"kind": "deadly"}
