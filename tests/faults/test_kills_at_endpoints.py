"""Audits of a model behind an endpoint are killed: what was answered is not asked again, and the result is that of one that never was."""

import json
import os
import signal
import time

import pytest

from faults.kill_cases import PIN
from faults.kill_runs import Case, Sweep, spread

KILLS = 20


@pytest.fixture(scope="module")
def url(fork_server, inputs):
    """A server in a process of its own, which computes one text at a time, so that its numbers do not depend on what else is asked."""
    child = fork_server.start(["serve", inputs / "model", "--port", "0", "--batch", "1", "--json"])
    deadline = time.monotonic() + 60
    while not (said := child.out.read_text()).endswith("\n"):
        assert time.monotonic() < deadline, child.err.read_text()
        time.sleep(0.01)
    yield json.loads(said)["url"]
    os.kill(child.pid, signal.SIGTERM)
    assert fork_server.wait(child).code == 0


COMMANDS = {
    "expose references": ("expose", "URL", "imported", "--method", "references"),
    "expose splitting": ("expose", "URL", "imported", "--method", "splitting", "--samples", "16"),
    "recite": ("recite", "URL", "index", "--context", "8", "--suffix", "4", "--per-bucket", "6"),
    "extract": ("extract", "URL", "-f", PIN),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_what_was_answered_is_not_asked_again(fork_server, inputs, tmp_path, url, name):
    places = {"URL": url, **{name: inputs / name for name in ("imported", "index")}}
    argv = (*(places.get(word, word) for word in COMMANDS[name]), "-o", "out", "--quiet")
    case = Case(argv, ("no figures", "small questions"), counted="after request")
    swept = Sweep(fork_server, case, tmp_path).through(spread(KILLS))
    print(swept, len(swept.kills))
