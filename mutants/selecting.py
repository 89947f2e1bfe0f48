"""Which tests to try a mutant on, and in which order: those that run its line, of its own room first, the fastest first."""

from __future__ import annotations

import ast
import json
import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mutants.places import Mutant
from mutants.rooms import ON_IMPORT, mutated_files, room, test_files
from mutants.tracing import digest, record_of

# Seconds of one core, as traced. Tests beyond the budget are not run: a mutant that only they would catch counts as missed.
BUDGET = 60.0
SLOW = 15.0
# Tests about as fast as each other run file by file, because fixtures are set up again whenever the file changes.
PACES = (0.05, 0.5, 5.0)

Lines = dict[str, set[int]]


@dataclass(frozen=True)
class Test:
    """One test, by its name in pytest, with the time that it took."""

    name: str
    seconds: float
    # The most that any test of its file took: one of them pays for what they share, and which one depends on the order.
    most_seconds: float = 0.0

    @property
    def file(self) -> str:
        return self.name.split("::")[0]


class Selection:
    """What the traces say of the tree as it is."""

    def __init__(self, root: Path, cache_directory: Path) -> None:
        self._cache = cache_directory
        self._sources = {file: (root / file).read_text("utf-8") for file in mutated_files(root)}
        self._versions = {file: digest(root / file) for file in self._sources}
        self._records = []
        for file in test_files(root):
            path = record_of(cache_directory, root, file)
            if path.exists():
                self._records.append(json.loads(path.read_text("utf-8")))

    def tests(self, mutant: Mutant) -> list[Test]:
        """The tests for a mutant, in the order in which they are tried."""
        lines = self._lines(mutant)
        on_import = _statement(self._sources[mutant.file], mutant.line)[1] is None
        found = {}
        for record in self._records:
            here = {
                file: self._at_that_time(file, numbers, record["versions"]) for file, numbers in lines.items()
            }
            most = _most_seconds(record)
            for name, test in record["tests"].items():
                runs = any(not here[file].isdisjoint(test["lines"].get(file, ())) for file in here)
                if runs or (on_import and name.split("::")[0] in ON_IMPORT):
                    found[name] = Test(name, test["seconds"], most)
        own = room(mutant.file)
        ordered = sorted(
            found.values(),
            key=lambda test: (
                # What defaults are is asked of all modules, by a few fast tests, which run no line of theirs.
                not (on_import and test.file in ON_IMPORT),
                room(test.file) != own,
                bisect_right(PACES, test.seconds),
                test.file,
                test.seconds,
            ),
        )
        return _within_budget(ordered)

    def named(self, names: set[str]) -> list[Test]:
        """Tests by their names, file by file."""
        found = [
            Test(name, test["seconds"], _most_seconds(record))
            for record in self._records
            for name, test in record["tests"].items()
            if name in names
        ]
        return sorted(found, key=lambda test: test.file)

    def _lines(self, mutant: Mutant) -> Lines:
        """The lines that run what is changed: the statement it is in, or those that use what a module or class defines with it."""
        source = self._sources[mutant.file]
        statement, owner = _statement(source, mutant.line)
        if owner is not None:
            return {mutant.file: statement}
        function, names = _defined(source, mutant.line)
        if function:  # a default value: whatever runs the function
            return {mutant.file: set(function)}
        users: Lines = defaultdict(set)
        for file, text in self._sources.items():
            for number, line in enumerate(text.splitlines(), 1):
                if any(re.search(rf"\b{re.escape(name)}\b", line) for name in names):
                    users[file].add(number)
        users[mutant.file] -= statement
        # A line that uses it at the level of the module runs when the module is imported; the functions of the file stand in.
        inside = {
            file: {n for n in numbers if _statement(self._sources[file], n)[1]}
            for file, numbers in users.items()
        }
        inside = {file: numbers for file, numbers in inside.items() if numbers}
        return inside or {mutant.file: set(range(1, source.count("\n") + 2))}

    def _at_that_time(self, file: str, lines: set[int], versions: dict[str, str]) -> set[int]:
        """The same lines in the version of the file that was traced; where that is another, all lines of their functions."""
        version = versions.get(file)
        if version == self._versions[file] or version is None:
            return lines
        old = (self._cache / "sources" / f"{version}.py").read_text("utf-8")
        functions = {_statement(self._sources[file], line)[1] for line in lines}
        spans = _functions(old)
        if not functions <= spans.keys():
            return set(range(1, old.count("\n") + 2))
        return {number for function in functions if function for number in spans[function]}


def _most_seconds(record: dict[str, Any]) -> float:
    return max((test["seconds"] for test in record["tests"].values()), default=0.0)


def _within_budget(tests: list[Test]) -> list[Test]:
    quick = [test for test in tests if test.seconds <= SLOW]
    if not quick:
        return tests[:1]
    taken: list[Test] = []
    spent = 0.0
    for test in quick:
        spent += test.seconds
        if taken and spent > BUDGET:
            break
        taken.append(test)
    return taken


@cache
def _functions(source: str) -> dict[str, range]:
    """The lines of each function, by its full name."""
    found: dict[str, range] = {}

    def visit(node: ast.AST, above: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = above
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{above}.{child.name}".lstrip(".")
                if not isinstance(child, ast.ClassDef):
                    found[name] = range(child.body[0].lineno, (child.end_lineno or child.lineno) + 1)
            visit(child, name)

    visit(ast.parse(source), "")
    return found


@cache
def _statements(source: str) -> list[range]:
    """The lines of each statement, without those of the statements in it; the innermost of a line comes last."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno
            found.append(range(node.lineno, max(last or 0, node.lineno) + 1))
    return sorted(found, key=lambda lines: -len(lines))


def _statement(source: str, line: int) -> tuple[set[int], str | None]:
    """The lines of the statement at a line, and the function it runs in, or None for what runs on import."""
    lines = set(
        next((lines for lines in reversed(_statements(source)) if line in lines), range(line, line + 1))
    )
    inside = [(len(span), name) for name, span in _functions(source).items() if line in span]
    return lines, min(inside)[1] if inside else None


def _defined(source: str, line: int) -> tuple[range, set[str]]:
    """What a line that runs on import defines: the lines of a function whose head it is in, and the names it gives to other code."""
    function, names = range(0), set[str]()
    for node in ast.walk(ast.parse(source)):  # from the outside in
        first, last = getattr(node, "lineno", line + 1), getattr(node, "end_lineno", line - 1)
        if not first <= line <= last:
            continue
        match node:
            case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
                function = range(body[0].lineno, last + 1)
            case ast.ClassDef(name=name):
                names = {name}
            case ast.Assign(targets=targets) if not names:
                names = {
                    name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
                }
            case ast.AnnAssign(target=ast.Name(id=name)) if not names:
                names = {name}
    return function, names
