"""Every call with which a command writes fails in turn: the old file stays, or the new one is complete, and a sentence says why."""

import json
import os

import pytest

from faults.write_cases import cases, endpoint_cases, reading_cases

# `make fuzz-writes` tries all.
HOW_MANY = os.environ.get("COALMINE_FAULTS", "some")
NAMES = [case.name for case in cases()]
# Others of these read and find their places in the same way as one that is here.
DIFFERENT = [
    name
    for name in NAMES
    if not name.startswith(("plant .", "expose ")) or name in {"plant .txt", "plant .parquet", "expose exact"}
]


def sweep(server, inputs, name, what):
    """Try some faults of one case in a child process."""
    ended = server.run([inputs, name, HOW_MANY], call=f"faults.{what}:sweep")
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    assert told["faults"] > 0
    assert not told["wrong"], "\n".join(told["wrong"])
    return told["calls"]


@pytest.mark.parametrize("name", NAMES)
def test_a_failing_disk_leaves_the_old_or_the_new_and_a_sentence(fork_server, write_inputs, name):
    assert sweep(fork_server, write_inputs, name, "write_faults") >= 15


@pytest.mark.parametrize("name", [case.name for case in endpoint_cases()])
@pytest.mark.usefixtures("endpoint")
def test_a_failing_disk_loses_no_answer_of_an_endpoint(fork_server, write_inputs, name):
    assert sweep(fork_server, write_inputs, name, "write_faults") >= 15


@pytest.mark.parametrize("name", [*DIFFERENT, *(case.name for case in reading_cases())])
def test_an_input_that_cannot_be_read_is_a_sentence_and_never_another_result(fork_server, write_inputs, name):
    assert sweep(fork_server, write_inputs, name, "read_faults") >= 2


def test_a_demo_whose_report_has_no_place_does_not_begin(fork_server, tmp_path):
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / "report.html")
    ended = fork_server.run(["demo", "-o", "out", "--quiet"], cwd=tmp_path)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert ended.err.startswith("coalmine: out/report.html is a device, pipe or socket")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.html"]
