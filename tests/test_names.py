"""Every option has one name, that of the parameter or of the field of a record that it fills in Python; and every class has its own."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import coalmine
from coalmine.cli.main import DATA, EVERYTHING, LAB, app, every_command
from coalmine.cli.taking import bytes_in
from coalmine.errors import InputError

COMMANDS = dict(every_command())


def test_options_are_spelled_as_their_names():
    for command in COMMANDS.values():
        for one in command.params:
            if one.param_type_name == "option":
                assert "--" + one.name.rstrip("_").replace("_", "-") in one.opts


def test_the_line_of_each_command_is_whole_in_eighty_columns():
    shown = [app.get_help(app.make_context("coalmine", [], resilient_parsing=True))]
    for name in ("data", "lab"):
        group = app.get_command(None, name)
        shown.append(group.get_help(group.make_context(name, [], resilient_parsing=True)))
    for group in (EVERYTHING, DATA, LAB):
        for line in (line for commands in group.values() for _, line in commands.values()):
            assert any(line in one for one in shown), line


@pytest.mark.parametrize("size", ["500", "2 giga", "-1MB", "MB", "1e3MB"])
def test_a_size_without_its_unit_is_refused(size):
    with pytest.raises(InputError, match="takes a size with its unit, such as 500MB or 2GB"):
        bytes_in(size, "--memory")


def test_no_two_classes_have_one_name():
    places = defaultdict(list)
    for path in Path(coalmine.__file__).parent.rglob("*.py"):
        for one in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(one, ast.ClassDef):
                places[one.name].append(path.name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
