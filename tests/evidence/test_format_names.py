"""Formats have names that people know, and no two formats the same one."""

import pytest

from coalmine import CanarySet, ScriptedModel, expose
from coalmine.evidence.words import format_names
from coalmine.formats import format_name


def test_names_come_from_the_formats_of_results():
    canaries = CanarySet.of("pin {digits:2}", ["pin 12"])
    results = expose(ScriptedModel("pin 0123456789"), canaries)
    names = format_names(results.formats)
    assert names == {"f0": "pin {digits:2}"}
    assert names["f7"] == "f7"


def test_nothing_in_a_name_acts_on_a_terminal():
    assert "\x1b" not in format_name("\x1b[2Jpin {digits:2}")


@pytest.mark.parametrize("width", [12, 48])
def test_formats_that_differ_only_in_the_middle_are_told_apart(width):
    templates = {f"f{i}": f"{'x' * 60}{i}{'y' * 60}{{digits:4}}" for i in range(12)}
    names = format_names(templates, width)
    assert len(set(names.values())) == 12
    assert all(len(name) <= max(width, 8) for name in names.values())
