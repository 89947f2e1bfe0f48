"""Killed audits of a model at an endpoint: what was answered is not asked again, and the result is that of an audit that was not killed."""

import os

import pytest

from faults.kill_runs import Case, Sweep, spread
from faults.serving import served

KILLS = int(os.environ.get("COALMINE_KILLS", "20"))


@pytest.mark.parametrize(
    "method", [("references",), ("sampled", "--samples", "40")], ids=lambda method: method[0]
)
def test_exposure_through_an_endpoint(fork_server, inputs, tmp_path, method):
    with served(fork_server, inputs / "model") as url:
        argv = ("expose", url, inputs / "planted", "--method", *method, "-o", "out", "--quiet")
        case = Case(argv, counted="after request")
        swept = Sweep(fork_server, case, tmp_path).through(spread(KILLS))
    assert len(swept.kills) >= KILLS
    # Each kill loses what came after the last probe, and each run asks who the server is.
    assert swept.work < 2.5 * swept.whole_work, (
        "all these runs together asked less than three whole ones would"
    )
