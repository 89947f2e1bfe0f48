"""The guide to interpretation says what really comes out."""

import doctest
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "explanation" / "interpretation.md"


def test_every_example_of_the_guide_runs_and_gives_what_it_says():
    found = doctest.testfile(str(GUIDE), module_relative=False)
    assert found.failed == 0
    assert found.attempted > 25
