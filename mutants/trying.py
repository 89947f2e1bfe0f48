"""Tests run against one changed file, in a forked process that finds the libraries imported already.

The change is made in a copy of the tree, never in the tree itself, and the process imports the package from there. Importing
the libraries takes longer than most tests, so one process imports them and nothing of the package, and forks for each mutant.
"""

from __future__ import annotations

import compileall
import contextlib
import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mutants.places import Mutant
from mutants.rooms import test_files
from mutants.selecting import Test

LIBRARIES = (
    "altair", "automata.fa.dfa", "httpcore", "hypothesis", "hypothesis.extra.numpy", "interegular", "mpmath", "msgspec", "numpy",
    "pyarrow.parquet", "rich.console", "safetensors.torch", "scipy.integrate", "scipy.interpolate", "scipy.optimize",
    "scipy.signal", "scipy.special", "scipy.stats", "tokenizers", "torch", "transformers", "click.testing",
)  # fmt: skip

# A mutant that runs for so many times what its tests took is caught: a suite that does not end is noticed.
TIMES_AS_LONG, SECONDS_MORE = 5, 30
MOST_BYTES = 6 << 30
# Most mutants are caught by the first few tests; files of tests are only collected when it comes to them.
FIRST_BATCH = 8.0


@dataclass(frozen=True)
class Trial:
    """How a mutant fared: caught, timeout, survived, or untested where no test runs its line."""

    outcome: str
    test: str = ""
    error: str = ""
    seconds: float = 0.0


def import_libraries(libraries: Sequence[str] = LIBRARIES) -> None:
    """Once, before the first fork."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for library in libraries:
            importlib.import_module(library)
    if "coalmine" in sys.modules:
        raise RuntimeError(
            "the package was imported before any mutant was made; its processes would not see the change"
        )


def take_snapshot(root: Path, copy: Path) -> None:
    """Copy all files of the project that git does not ignore, so that nothing changes under a run that takes an hour."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=root, capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (root / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, copy / name)


class Tree:
    """A copy of a snapshot, to be changed."""

    def __init__(self, snapshot: Path, copy: Path) -> None:
        self.root = copy
        shutil.copytree(snapshot, copy)

    def warm_up(self) -> None:
        """Compile everything once; processes for mutants write no bytecode, so that none of a mutant is left behind."""
        compileall.compile_dir(self.root / "src", quiet=1)
        _Run(self.root, ["--collect-only", *test_files(self.root)], {}, writes_bytecode=True).outcome(600.0)

    @contextlib.contextmanager
    def changed(self, mutant: Mutant | None) -> Iterator[None]:
        """The tree with one change."""
        if mutant is None:
            yield
            return
        path = self.root / mutant.file
        source = path.read_text("utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()
        path.write_text(mutant.applied(source), "utf-8")
        try:
            yield
        finally:
            path.write_text(source, "utf-8")

    def run(self, tests: Sequence[Test]) -> Trial:
        """The tests in this order, up to the first that fails."""
        limit = TIMES_AS_LONG * sum(test.seconds for test in tests) + SECONDS_MORE
        files = list(dict.fromkeys(test.file for test in tests))
        return _Run(self.root, ["-x", *files], {test.name: test.most_seconds for test in tests}).outcome(
            limit
        )

    def try_mutant(self, mutant: Mutant, tests: Sequence[Test]) -> Trial:
        """What becomes of a mutant: first a few tests, then the rest."""
        if not tests:
            return Trial("untested")
        first, spent = 1, tests[0].seconds
        while first < len(tests) and (spent := spent + tests[first].seconds) <= FIRST_BATCH:
            first += 1
        seconds = 0.0
        with self.changed(mutant):
            for part in (tests[:first], tests[first:]):
                if part:
                    trial = self.run(part)
                    seconds += trial.seconds
                    if trial.outcome != "survived":
                        return Trial(trial.outcome, trial.test, trial.error, seconds)
        return Trial("survived", seconds=seconds)


class _Run:
    """One forked pytest."""

    def __init__(
        self, root: Path, arguments: list[str], tests: Mapping[str, float], *, writes_bytecode: bool = False
    ) -> None:
        self._root, self._arguments, self._tests = root, arguments, tests
        self._writes_bytecode = writes_bytecode
        self._answer = root.parent / f"{root.name}.answer.json"
        self._temporary = root.parent / f"{root.name}.temporary"

    def outcome(self, limit: float) -> Trial:
        """Fork, wait, and read what the process wrote; `limit` is in seconds of one core."""
        self._answer.unlink(missing_ok=True)
        shutil.rmtree(self._root / ".hypothesis", ignore_errors=True)
        before = time.monotonic()
        process = os.fork()
        if not process:
            self._inside(limit)
        # A process that waits uses no core, so the clock has a limit too: the machine may be busy with other work.
        ended = _wait(process, 5 * limit)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)  # servers and the like that tests have started
        shutil.rmtree(self._temporary, ignore_errors=True)
        seconds = time.monotonic() - before
        if not self._answer.exists():
            if ended is None or (
                os.WIFSIGNALED(ended)
                and os.WTERMSIG(ended) in {signal.SIGXCPU, signal.SIGPROF, signal.SIGKILL}
            ):
                return Trial("timeout", seconds=seconds)
            return Trial("caught", "the process ended", f"status {ended}", seconds)
        answer = json.loads(self._answer.read_text("utf-8"))
        if answer["code"] == pytest.ExitCode.NO_TESTS_COLLECTED:
            return Trial("untested", seconds=seconds)
        if answer["code"] == pytest.ExitCode.OK:
            return Trial("survived", seconds=seconds)
        return Trial("caught", answer["test"] or "on import", answer["error"], seconds)

    def _inside(self, limit: float) -> None:
        """Never returns: the rest of the program is the parent's."""
        code = 70
        try:
            os.setsid()
            seconds = int(limit) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
            log = os.open(f"{self._root}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(self._root)
            source = str(self._root / "src")
            sys.path[:] = [source, *(path for path in sys.path if not (Path(path) / "coalmine").exists())]
            os.environ["PYTHONPATH"] = source
            sys.dont_write_bytecode = not self._writes_bytecode
            os.environ["PYTHONDONTWRITEBYTECODE"] = "" if self._writes_bytecode else "1"
            self._answer_with(_Choice(self._tests))
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)

    def _answer_with(self, choice: _Choice) -> None:
        from hypothesis import Phase, settings

        # What fails is not made small, and nothing fails for being slow on a busy machine.
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", phases=phases, deadline=None, database=None, print_blob=False)
        os.environ["COALMINE_HYPOTHESIS_PROFILE"] = "mutants"
        fixed = ["-q", "--tb=line", "--hypothesis-seed=0", f"--basetemp={self._temporary}"]
        # The libraries were imported before pytest could rewrite the assertions of its plugins.
        fixed += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        code = pytest.main([*fixed, *self._arguments], plugins=[choice])
        imported = sys.modules["coalmine"].__file__ or ""
        if not imported.startswith(str(self._root)):
            raise RuntimeError(
                f"the package was imported from {imported} and not from the copy with the change"
            )
        answer = {"code": int(code), "test": choice.failed, "error": choice.error}
        self._answer.write_text(json.dumps(answer), "utf-8")


class _Choice:
    """A plugin of pytest that runs the tests of a list, in its order, and notes the first that fails."""

    def __init__(self, tests: Mapping[str, float]) -> None:
        self._seconds = tests
        self._order = {name: place for place, name in enumerate(tests)}
        self.failed = ""
        self.error = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Only those of the list."""
        if self._order:
            items[:] = sorted(
                (i for i in items if i.nodeid in self._order), key=lambda i: self._order[i.nodeid]
            )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Each test by itself has a limit too: a loop without end is known for one long before all are over their time."""
        limit = TIMES_AS_LONG * self._seconds.get(item.nodeid, 0.0) + SECONDS_MORE
        signal.setitimer(signal.ITIMER_PROF, limit)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test failed, or what it needs."""
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file of tests could not be imported."""
        self._note(report)

    def _note(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid
            self.error = (report.longreprtext.strip().splitlines() or [""])[-1][:200]


def _wait(process: int, seconds: float) -> int | None:
    """The status that a process ended with, or None if it was stopped because the time was up."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.02)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None
