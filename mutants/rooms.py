"""Which files are mutated, which room each belongs to, and which tests are run against them."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path("src/coalmine")

# Rooms in which a wrong operator is a wrong number or a wrong verdict. Of models/ and reports/, the files that turn logits
# into numbers, and measures into findings and outcomes.
FOLDERS = (
    "formats",
    "search",
    "statistics",
    "evidence",
    "audits",
    "models/inference",
)
FILES = ("models/resolution.py", "reports/findings.py", "reports/gate.py")

# Tests of these folders, and the doctests of the mutated files. Others start processes, servers or a browser, train for
# long, or ask about other rooms: a mutant that they alone would catch counts as missed.
TESTS = (
    "tests/audits",
    "tests/evidence",
    "tests/formats",
    "tests/models",
    "tests/reports",
    "tests/search",
    "tests/statistics",
)
# Tests of what runs when a module is imported, such as defaults; no trace can say so.
ON_IMPORT = ("tests/test_defaults.py",)
LEFT_OUT = (
    "tests/models/endpoints/test_endpoint.py",
    "tests/models/endpoints/test_endpoint_capability.py",
    "tests/models/endpoints/test_endpoint_faults.py",
    "tests/models/endpoints/test_endpoint_key.py",
)


def mutated_files(root: Path) -> list[str]:
    """The files below `root` that mutants are made of, by their place in the tree."""
    files = [path for folder in FOLDERS for path in (root / PACKAGE / folder).rglob("*.py")]
    files += [path for name in FILES if (path := root / PACKAGE / name).is_file()]
    return sorted(path.relative_to(root).as_posix() for path in files if path.name != "__init__.py")


def test_files(root: Path) -> list[str]:
    """The files below `root` that hold the tests: those of the folders above, and the mutated files with doctests."""
    tests = [
        path.relative_to(root).as_posix() for folder in TESTS for path in (root / folder).rglob("test_*.py")
    ]
    doctests = [file for file in mutated_files(root) if ">>> " in (root / file).read_text("utf-8")]
    on_import = [file for file in ON_IMPORT if (root / file).exists()]
    return sorted({*tests, *on_import} - set(LEFT_OUT)) + doctests


def room(file: str) -> str:
    """The room that a file of the package or of its tests belongs to.

    >>> room("src/coalmine/reports/gate.py"), room("src/coalmine/search/walks/guided.py"), room("tests/search/walks/test_guided.py")
    ('reports', 'search', 'search')
    """
    return file.removeprefix("src/coalmine/").removeprefix("tests/").split("/")[0]
