"""Guides, examples and the README import only from the public packages, and only names that these export."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PUBLIC = {
    "coalmine",
    *(f"coalmine.{name}" for name in ("audits", "corpus", "formats", "integrations", "models", "statistics")),
    "coalmine.errors",
}
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/*.py"))]
BLOCK = re.compile(r"^```(?:python|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`(coalmine(?:\.\w+)+)(?:\([^`]*\))?`")


def code_of(path):
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        return text
    code = "\n".join(BLOCK.findall(text))
    return (
        re.sub(r"^(>>> |\.\.\. )", "", code, flags=re.MULTILINE) if ">>>" not in code else doctest_code(code)
    )


def doctest_code(code):
    """The lines of a session that are code, without what they print."""
    return "\n".join(line[4:] for line in code.splitlines() if line.startswith((">>> ", "... ")))


def imported(code):
    """Each (module, name) that is imported from coalmine."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "coalmine":
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if alias.name.split(".")[0] == "coalmine")


@pytest.mark.parametrize("path", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES])
def test_only_public_names_are_imported(path):
    for module, name in imported(code_of(path)):
        assert module in PUBLIC, f"{module} is not public; import from one of {', '.join(sorted(PUBLIC))}"
        if name is not None:
            assert hasattr(importlib.import_module(module), name), f"{module} does not export {name}"


@pytest.mark.parametrize("path", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES])
def test_names_in_the_text_exist(path):
    if path.suffix == ".py" or path.name == "CHANGELOG.md":
        return
    for dotted in NAMED.findall(BLOCK.sub("", path.read_text("utf-8"))):
        if re.fullmatch(r"coalmine\.[a-z_]+/\d+", dotted) or dotted in PUBLIC:
            continue
        home, _, name = dotted.rpartition(".")
        while home not in PUBLIC and "." in home:  # a member of a class
            home, _, name = home.rpartition(".")
        assert home in PUBLIC, dotted
        assert hasattr(importlib.import_module(home), name), dotted
