"""Compile the tests with their assertions rewritten, as pytest does, once for all processes that then run them.

Pytest compiles each file of tests in every process, which is a third of the time until the first test begins, unless the result is kept;
and where Python is told not to keep what it compiles, it never is.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import (
    PYC_TAIL,
    _read_pyc,
    _rewrite_test,
    _write_pyc,
    assertstate_key,
    get_cache_dir,
)

TESTS = Path(__file__).resolve().parents[1] / "tests"


class Compiling:
    """A plugin that compiles, and lets nothing be run."""

    @staticmethod
    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(config: pytest.Config) -> int:
        """Keep what is not there yet or has changed."""
        for path in sorted([*TESTS.rglob("test_*.py"), *TESTS.rglob("conftest.py")]):
            folder = get_cache_dir(path)
            kept = folder / (path.name[:-3] + PYC_TAIL)
            if _read_pyc(path, kept) is None:
                folder.mkdir(parents=True, exist_ok=True)
                source_hash, code = _rewrite_test(path, config)
                _write_pyc(config.stash[assertstate_key], code, source_hash, kept)
        return 0


if __name__ == "__main__":
    sys.exit(pytest.main([], plugins=[Compiling()]))
