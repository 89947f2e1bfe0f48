"""Which test runs which lines, and how long it takes: one run of the tests under coverage, kept file by file.

What a test ran is kept under the hash of the file it is in, so that only new and changed tests are traced again. The sources
at that time are kept too: where one has changed since, lines are found again by the function they are in.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

from mutants.rooms import mutated_files


def digest(path: Path) -> str:
    """The hash that a version of a file is kept under."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:24]


def record_of(cache: Path, root: Path, file: str) -> Path:
    """Where the trace of the tests in `file` is kept, as `file` is today."""
    return cache / "traces" / f"{file.replace('/', '.')}.{digest(root / file)}.json"


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Tracer:
    """A plugin of pytest that writes one record per file of tests."""

    def __init__(self, root: Path, cache: Path) -> None:
        self._root = root
        self._cache = cache
        self._versions = {file: digest(root / file) for file in mutated_files(root)}
        self._coverage = self._new_coverage()
        self._context: list[str] = []
        self._seconds: dict[str, float] = {}
        self._fixtures: dict[str, list[str]] = {}
        self._failed: set[str] = set()
        (cache / "sources").mkdir(parents=True, exist_ok=True)
        (cache / "traces").mkdir(parents=True, exist_ok=True)
        for file, version in self._versions.items():
            (cache / "sources" / f"{version}.py").write_bytes((root / file).read_bytes())

    def _new_coverage(self) -> coverage.Coverage:
        sources = [str(self._root / file) for file in self._versions]
        made = coverage.Coverage(data_file=None, config_file=False, include=sources)
        made.set_option("run:disable_warnings", ["no-data-collected"])  # a file may test other rooms only
        return made

    def pytest_collection_finish(self) -> None:
        """Trace from here on: what importing runs is not of a single test."""
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        """Everything one test runs, its set-up included."""
        _clear_caches()
        before = _cpu_seconds()
        self._enter(item.nodeid)
        try:
            return (yield)
        finally:
            self._leave()
            self._seconds[item.nodeid] = _cpu_seconds() - before
            self._fixtures[item.nodeid] = [_shared_name(fixture) for fixture in _shared_fixtures(item)]
            if nextitem is None or nextitem.path != item.path:
                self._write(item.path.relative_to(self._root).as_posix())

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """What several tests share is of each of them, and not of the one that came first."""
        shared = fixturedef.scope != "function"
        if shared:
            self._enter(_shared_name(fixturedef))
        try:
            return (yield)
        finally:
            if shared:
                self._leave()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that fails or is skipped without a mutant tells nothing about mutants."""
        if report.outcome != "passed":
            self._failed.add(report.nodeid)

    def _enter(self, context: str) -> None:
        self._context.append(context)
        self._coverage.switch_context(context)

    def _leave(self) -> None:
        self._context.pop()
        self._coverage.switch_context(self._context[-1] if self._context else "")

    def _write(self, file: str) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        ran: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))  # by context, by file
        for source in self._versions:
            for line, contexts in data.contexts_by_lineno(str(self._root / source)).items():
                for context in contexts:
                    ran[context][source].append(line)
        tests = {
            test: {
                "seconds": round(seconds, 3),
                "lines": _merged([ran[test], *(ran[name] for name in self._fixtures[test])]),
            }
            for test, seconds in self._seconds.items()
            if test not in self._failed
        }
        record = {"versions": self._versions, "tests": tests}
        record_of(self._cache, self._root, file).write_text(json.dumps(record), "utf-8")
        self._seconds.clear()
        self._coverage = self._new_coverage()
        self._coverage.start()


def _merged(parts: list[dict[str, list[int]]]) -> dict[str, list[int]]:
    lines: dict[str, set[int]] = defaultdict(set)
    for part in parts:
        for file, numbers in part.items():
            lines[file].update(numbers)
    return {file: sorted(numbers) for file, numbers in sorted(lines.items())}


def _shared_fixtures(item: pytest.Item) -> list[pytest.FixtureDef[Any]]:
    info = getattr(item, "_fixtureinfo", None)
    definitions = info.name2fixturedefs.values() if info else []
    return [fixtures[-1] for fixtures in definitions if fixtures[-1].scope != "function"]


def _shared_name(fixture: pytest.FixtureDef[Any]) -> str:
    return f"fixture {fixture.baseid} {fixture.argname}"


def _clear_caches() -> None:
    """What a function has remembered of an earlier test would hide that this one needs its lines."""
    for name, module in list(sys.modules.items()):
        if name.startswith("coalmine."):
            for value in list(vars(module).values()):
                if callable(getattr(value, "cache_clear", None)):
                    value.cache_clear()


def trace(root: Path, cache: Path, files: list[str]) -> int:
    """Run the tests of some files below `root`, and keep what each of them ran; returns pytest's exit code."""
    return int(pytest.main(["-q", "--hypothesis-seed=0", *files], plugins=[Tracer(root, cache)]))


if __name__ == "__main__":
    sys.exit(trace(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
