"""Which tests a mutant is tried on, by made-up traces of a made-up project."""

import json

import pytest

from mutants.places import mutants_of
from mutants.selecting import BUDGET, SLOW, Selection
from mutants.tracing import digest, record_of

FILE = "src/coalmine/statistics/sums.py"
SOURCE = """\
LIMIT = 7


def total(a, b=1):
    c = a + b
    return c


def clipped(a):
    return min(a, LIMIT)
"""


@pytest.fixture
def project(tmp_path):
    for name in ("following", "gaps", "incremental", "likeliest", "resolution", "token_scores"):
        path = tmp_path / "src/coalmine/models" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / FILE).parent.mkdir(parents=True)
    (tmp_path / FILE).write_text(SOURCE)
    return tmp_path


def trace(project, file, tests):
    """Say what the tests of a file ran: by name, the seconds and the lines."""
    cache = project / ".mutants"
    path = project / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# {file}\n")
    version = digest(project / FILE)
    for folder in ("traces", "sources"):
        (cache / folder).mkdir(parents=True, exist_ok=True)
    (cache / "sources" / f"{version}.py").write_text((project / FILE).read_text())
    found = {
        f"{file}::{name}": {"seconds": seconds, "lines": {FILE: lines}}
        for name, (seconds, lines) in tests.items()
    }
    record_of(cache, project, file).write_text(json.dumps({"versions": {FILE: version}, "tests": found}))


def chosen(project, line):
    mutant = next(one for one in mutants_of(FILE, (project / FILE).read_text()) if one.line == line)
    return [test.name.split("::")[1] for test in Selection(project, project / ".mutants").tests(mutant)]


def test_tests_of_the_room_come_first_and_the_fastest_of_them(project):
    trace(project, "tests/audits/test_a.py", {"other_room": (0.01, [5])})
    trace(
        project,
        "tests/statistics/test_b.py",
        {"slow": (3.0, [5, 6]), "fast": (0.01, [5]), "not": (0.01, [6])},
    )
    assert chosen(project, 5) == ["fast", "slow", "other_room"]


def test_no_more_than_the_budget_and_slow_ones_only_where_there_are_no_others(project):
    many = {f"t{place}": (SLOW, [5]) for place in range(20)}
    trace(project, "tests/statistics/test_a.py", {**many, "too_slow": (SLOW + 1, [5, 10])})
    assert len(chosen(project, 5)) == BUDGET // SLOW
    assert chosen(project, 10) == ["too_slow"]


def test_a_constant_is_tried_on_what_runs_the_lines_that_use_it(project):
    trace(project, "tests/statistics/test_a.py", {"uses": (0.1, [10]), "does_not": (0.1, [5, 6])})
    assert chosen(project, 1) == ["uses"]


def test_a_default_is_tried_on_what_runs_its_function(project):
    trace(project, "tests/statistics/test_a.py", {"runs": (0.1, [5, 6]), "does_not": (0.1, [10])})
    assert chosen(project, 4) == ["runs"]


def test_lines_of_a_file_that_has_changed_since_are_found_by_their_function(project):
    trace(project, "tests/statistics/test_a.py", {"total": (0.1, [5, 6]), "clipped": (0.1, [10])})
    (project / FILE).write_text("# A line more.\n" + SOURCE.replace("a + b", "2 * a + b"))
    assert chosen(project, 6) == ["total"]


def test_a_test_that_has_changed_since_is_traced_again_before_it_is_used(project):
    trace(project, "tests/statistics/test_a.py", {"total": (0.1, [5])})
    (project / "tests/statistics/test_a.py").write_text("# changed\n")
    assert chosen(project, 5) == []


def test_what_runs_on_import_is_tried_on_the_tests_of_it_first(project):
    trace(project, "tests/statistics/test_a.py", {"runs": (0.1, [5, 10])})
    trace(project, "tests/test_defaults.py", {"defaults": (0.1, [])})
    assert chosen(project, 1) == chosen(project, 4) == ["defaults", "runs"]
    assert chosen(project, 5) == ["runs"]
