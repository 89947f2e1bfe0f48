"""The page of guarantees is true: each promise names the tests that hold it, and they exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "guarantees.md").read_text("utf-8")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
ROWS = [
    line.strip("| ").split(" | ")
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| promise"))
]


@cache
def names_in(name):
    """The names of a test module's tests, also of those in classes."""
    tree = ast.parse((ROOT / name).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("promise", "held_by"), ROWS, ids=[row[0][:60] for row in ROWS])
def test_each_promise_names_tests_that_exist(promise, held_by):
    named = TEST.findall(held_by)
    assert named, f"no test holds: {promise}"
    for module, test in named:
        assert test.startswith("test_")
        assert test in names_in(module), f"{module} has no {test}"


def test_the_page_names_nothing_else_for_a_test():
    assert len(TEST.findall(PAGE)) == len(re.findall(r"::", PAGE)) > 20
