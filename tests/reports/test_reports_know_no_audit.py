"""Reports ask the registry for audits: no module of theirs imports one by name, so a new audit changes none of them."""

import ast
from pathlib import Path

import pytest

import coalmine

ROOT = Path(coalmine.__file__).parent
MODULES = sorted(path for room in ("reports", "evidence") for path in (ROOT / room).rglob("*.py"))
ALLOWED = {"coalmine.audits.registry"}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_audit_is_imported_by_name(path):
    found = {name for name in imported(path) if name.startswith("coalmine.audits")}
    assert found <= (ALLOWED if path.is_relative_to(ROOT / "reports") else set())
