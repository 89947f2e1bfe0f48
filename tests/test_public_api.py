"""The public packages: what they export, that it explains itself, and that guides, examples and tests of behavior need nothing deeper."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PUBLIC = (
    "coalmine",
    "coalmine.audits",
    "coalmine.corpus",
    "coalmine.formats",
    "coalmine.integrations",
    "coalmine.models",
    "coalmine.statistics",
)
# Tests of behavior: what a user sees. The other tests are about the rooms themselves, and move with them.
BEHAVIOR = ("tests/cli", "tests/examples")
# What is imported besides: the errors that users catch, and the parts of the command line that its own tests replace.
ALLOWED = re.compile(r"coalmine\.(errors|cli|progress|integrations\.pytest_plugin)\b")
# Doctest, or an indented line of Python after a blank line.
_EXAMPLE = re.compile(r">>> |\n\n +(?:\w+ = |[\w.]+\(|for |from |with |import |@)")

EXPORTS = [(module, name) for module in PUBLIC for name in importlib.import_module(module).__all__]


@pytest.mark.parametrize(("module", "name"), EXPORTS)
def test_every_exported_name_explains_itself(module, name):
    exported = getattr(importlib.import_module(module), name)
    if not callable(exported):
        return  # a constant, whose comment is beside it
    text = inspect.getdoc(exported) or ""
    assert len(text) > 20, f"{module}.{name} has no docstring"
    assert _EXAMPLE.search(text), f"{module}.{name} has no example"


@pytest.mark.parametrize("module", PUBLIC)
def test_a_package_lists_what_it_exports(module):
    package = importlib.import_module(module)
    assert len(set(package.__all__)) == len(package.__all__)
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="there_is_no_such_name"):
        _ = package.there_is_no_such_name


@pytest.mark.parametrize("module", PUBLIC)
def test_the_names_that_type_checkers_see_are_those_of_python(module):
    package = importlib.import_module(module)
    stub = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text("utf-8"))
    seen = {}
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            home = importlib.import_module(node.module)
            seen |= {alias.asname: getattr(home, alias.name) for alias in node.names}
    assert sorted(seen) == package.__all__
    starred: dict[str, object] = {}
    exec(f"from {module} import *", starred)
    for name, value in seen.items():
        assert getattr(package, name) is value
        assert starred[name] is value


@pytest.mark.parametrize("module", PUBLIC)
def test_importing_a_package_imports_nothing_heavy(module):
    heavy = "[name for name in ('numpy', 'scipy', 'torch', 'transformers', 'pyarrow') if name in sys.modules]"
    code = f"import sys, {module}; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _deeper_imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found += [
            f"{path.relative_to(ROOT)}:{node.lineno} {name}"
            for name in names
            if name.startswith("coalmine.") and name not in PUBLIC and not ALLOWED.match(name)
        ]
    return found


def test_tests_of_behavior_and_examples_import_only_what_is_public():
    files = [path for folder in (*BEHAVIOR, "examples") for path in sorted((ROOT / folder).rglob("*.py"))]
    assert files
    assert [line for path in files for line in _deeper_imports(path)] == []


def test_what_is_public_is_imported_from_where_it_is_public():
    """So that a move below the public packages changes no test that does not ask about the moved module itself."""
    public = {}
    for module, name in EXPORTS:
        public.setdefault(id(getattr(importlib.import_module(module), name)), f"{module}.{name}")
    wrong = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("coalmine."):
                continue
            if node.module in PUBLIC:
                continue
            module = importlib.import_module(node.module)
            wrong += [
                f"{path.relative_to(ROOT)}:{node.lineno} {node.module}.{alias.name} is {public[id(getattr(module, alias.name))]}"
                for alias in node.names
                if id(getattr(module, alias.name, None)) in public
            ]
    assert wrong == []
