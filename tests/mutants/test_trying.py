"""A mutant of a small project is tried for real: copied, changed, forked, run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mutants.results import Row, missed_without_reason, read_rows, summary, write_rows

ROOT = Path(__file__).parents[2]

SOURCE = """\
def countdown(n):
    steps = 0
    while n > 0:
        n = n - 1
        steps = steps + 1
    return steps


def halves(n):
    return n // 2 == n / 2
"""
TESTS = """\
from coalmine.statistics.counting import countdown, halves


def test_countdown():
    assert countdown(3) == 3


def test_halves():
    assert halves(4)
"""
# Forks must find the package not imported, which it is here: a process of its own.
PROGRAM = """
import json, sys
from pathlib import Path
from mutants import trying
from mutants.places import mutants_of
from mutants.selecting import Test

snapshot = Path(sys.argv[1])
trying.import_libraries(["hypothesis"])
trying.TIMES_AS_LONG, trying.SECONDS_MORE = 1, 3
tree = trying.Tree(snapshot, snapshot.with_name("copy"))
file = "src/coalmine/statistics/counting.py"
source = (snapshot / file).read_text()
tests = [Test(f"tests/statistics/test_counting.py::{name}", 0.0) for name in ("test_countdown", "test_halves")]
found = {}
for mutant in mutants_of(file, source):
    key = f"{mutant.marked_line} > {mutant.new}"
    if key in sys.argv[2:]:
        trial = tree.try_mutant(mutant, tests)
        found[key] = [trial.outcome, trial.test.split("::")[-1]]
        assert (tree.root / file).read_text() == source
found["none"] = [tree.run(tests).outcome, ""]
found["no tests"] = [tree.try_mutant(mutants_of(file, source)[0], []).outcome, ""]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    snapshot = tmp_path_factory.mktemp("project") / "snapshot"
    for file, text in {
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\nfilterwarnings = ["error"]\n',
        "src/coalmine/__init__.py": "",
        "src/coalmine/integrations/pytest_plugin.py": "",
        "src/coalmine/statistics/__init__.py": "",
        "src/coalmine/statistics/counting.py": SOURCE,
        "tests/statistics/test_counting.py": TESTS,
    }.items():
        (snapshot / file).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / file).write_text(text)
    mutants = [
        "steps = steps «+» 1 > -",
        "return n «//» 2 == n / 2 > *",
        "return n // «2» == n / 2 > 3",
        "while n > «0»: > (-1)",
        "n = n - «1» > 0",
    ]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(snapshot), *mutants],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert (snapshot / "src/coalmine/statistics/counting.py").read_text() == SOURCE
    return json.loads(ended.stdout)


def test_the_first_test_that_fails_catches_a_mutant(tried):
    assert tried["steps = steps «+» 1 > -"] == ["caught", "test_countdown"]
    assert tried["while n > «0»: > (-1)"] == ["caught", "test_countdown"]
    assert tried["return n «//» 2 == n / 2 > *"] == ["caught", "test_halves"]


def test_a_mutant_that_never_ends_is_stopped(tried):
    assert tried["n = n - «1» > 0"][0] == "timeout"


def test_what_is_not_changed_survives_and_what_no_test_runs_is_said_to_be_so(tried):
    assert tried["none"] == ["survived", ""]
    assert tried["no tests"] == ["untested", ""]


def row(outcome, reason=""):
    return Row(
        room="search",
        file="src/coalmine/search/walks/beam.py",
        line=3,
        column=4,
        kind="number",
        source="a = «1», ü",
        new="2",
        outcome=outcome,
        test="",
        reason=reason,
    )


def test_rows_are_read_as_they_were_written(tmp_path):
    rows = [row("caught"), row("survived", "equivalent")]
    write_rows(rows, tmp_path / "rows.csv")
    assert read_rows(tmp_path / "rows.csv") == rows


def test_a_survivor_without_a_reason_is_told_apart_and_a_timeout_counts_as_caught():
    rows = [row("caught"), row("timeout"), row("survived", "equivalent"), row("untested")]
    assert missed_without_reason(rows) == [rows[3]]
    assert summary(rows).endswith("2 of 4 mutants caught: 50.0%, 95% interval 6.8% to 93.2%")
