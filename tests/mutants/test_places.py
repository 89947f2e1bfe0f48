"""Which changes are made to a file: each kind, nothing that people read, one place at a time, and the same for the same seed."""

import ast
import random
from collections import Counter
from pathlib import Path

import pytest

from mutants.places import drawn, mutants_of
from mutants.rooms import FILES, FOLDERS, PACKAGE, mutated_files

ROOT = Path(__file__).parents[2]


def changes(source):
    return {(mutant.kind, mutant.marked_line, mutant.new) for mutant in mutants_of("a.py", source)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a + b", {("arithmetic", "a «+» b", "-")}),
        ("(a) // (b)", {("arithmetic", "(a) «//» (b)", "*")}),
        ("a -= b", {("arithmetic", "a «-=» b", "+=")}),
        ("a < b", {("boundary", "a «<» b", "<="), ("comparison", "a «<» b", ">=")}),
        ("a == b", {("comparison", "a «==» b", "!=")}),
        ("a not in b", {("comparison", "a «not in» b", "in")}),
        ("a is not b", {("comparison", "a «is not» b", "is")}),
        ("a and b and c", {("boolean", "a «and» b and c", "or"), ("boolean", "a and b «and» c", "or")}),
        ("not a", {("boolean", "«not »a", "")}),
        ("-a", {("sign", "«-»a", "")}),
        ("f(3)", {("number", "f(«3»)", "4"), ("number", "f(«3»)", "2")}),
        ("f(0.5)", {("number", "f(«0.5»)", "1.5"), ("number", "f(«0.5»)", "(-0.5)")}),
        ("f(True)", {("flag", "f(«True»)", "False")}),
        ("min(a)", {("extreme", "«min»(a)", "max")}),
        ("np.maximum(a, b)", {("extreme", "np.«maximum»(a, b)", "minimum")}),
        ("a.any()", {("extreme", "a.«any»()", "all")}),
        ("np.clip(a, low, high)", {("clip", "np.clip(a, «low, high»)", "high, low")}),
        ("größe = 'é' + a + b", {("arithmetic", "größe = 'é' + a «+» b", "-")}),
    ],
)
def test_each_kind_of_change(source, expected):
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""One of 2 + 2."""',
        "def f(a: tuple[int, 3] | None = None) -> dict[1, 2]: ...",
        "raise ValueError(f'{1 + 2} is not {x < 3}', 4)",
        "print(f'{1 + 2}')",
        "@cache(maxsize=3)\ndef f(): ...",
        "zip(a, b, strict=True)",
        "self.progress.advance(1, note=str(2))",
        "a + 'text'",
        "1e300",  # one more is the same number
    ],
)
def test_what_people_read_and_what_only_guards_is_left_alone(source):
    assert not changes(source)


def test_one_place_is_changed_and_no_line_moves():
    source = "total = (\n    # why\n    first\n    + second\n)\n"
    [mutant] = mutants_of("a.py", source)
    assert (mutant.line, mutant.column) == (4, 4)
    assert mutant.applied(source) == source.replace("+", "-")


def test_every_change_to_the_project_can_be_parsed():
    mutants = [m for file in mutated_files(ROOT) for m in mutants_of(file, (ROOT / file).read_text("utf-8"))]
    assert len(mutants) > 5_000
    for mutant in random.Random(0).sample(mutants, 50):
        source = (ROOT / mutant.file).read_text("utf-8")
        changed = mutant.applied(source)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
        assert changed.splitlines()[: mutant.line - 1] == source.splitlines()[: mutant.line - 1]


def test_the_same_seed_draws_the_same_mutants_in_whatever_order_they_come():
    mutants = mutants_of("a.py", "f(1, a < b, c + d, not e, g == h)")
    assert drawn(mutants, 3, seed=1) == drawn(mutants[::-1], 3, seed=1)
    assert len({tuple(drawn(mutants, 3, seed)) for seed in range(20)}) > 5


def test_a_change_elsewhere_leaves_the_sample_as_it_is():
    def lines(source):
        return {(one.marked_line, one.new) for one in drawn(mutants_of("a.py", source), 20, seed=1)}

    before = [f"x{number} = a{number} < b + {number}" for number in range(30)]
    after = ["import nothing", *before[:10], *before[11:]]
    taken, still = lines("\n".join(before)), lines("\n".join(after))
    gone = {one for one in taken if one[0].startswith("x10 ")}
    assert taken - gone <= still
    # A line that comes twice is two places.
    twice = drawn(mutants_of("a.py", "a < b\na < b"), 2, seed=1)
    assert [one.line for one in twice] == [1, 2]


def test_places_are_drawn_evenly_however_many_changes_each_allows():
    mutants = mutants_of("a.py", "f(1, a < b, c + d, not e)")
    times = Counter(one.line * 100 + one.column for seed in range(4_000) for one in drawn(mutants, 1, seed))
    assert len(times) == 4
    assert all(abs(count - 1_000) < 150 for count in times.values())  # five standard deviations are 137


def test_every_room_that_mutants_are_made_of_is_there():
    """A file or a folder that was renamed would be left out without a word."""
    root = Path(__file__).parents[2]
    assert all((root / PACKAGE / name).exists() for name in (*FOLDERS, *FILES))
