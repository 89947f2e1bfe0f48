"""The generated parts of the documentation are those that the code gives today."""

import re

from scripts.generate_docs import ROOT, documents, pages


def test_the_generated_pages_are_up_to_date():
    stale = [page for page, content in pages().items() if content != (ROOT / page).read_text("utf-8")]
    assert stale == [], "run `make docs`, or python scripts/generate_docs.py"


def test_every_module_is_in_the_file_map():
    page = (ROOT / "docs/explanation/design.md").read_text("utf-8")
    modules = [path.relative_to(ROOT / "src/coalmine") for path in ROOT.glob("src/coalmine/**/*.py")]
    named = [str(path) for path in modules if path.name != "__init__.py"]
    assert [name for name in named if f"| `{name}` |" not in page] == []


def test_every_module_says_what_it_holds():
    page = (ROOT / "docs/explanation/design.md").read_text("utf-8")
    assert [line for line in page.splitlines() if line.startswith("| `") and line.endswith("|  |")] == []


def test_every_document_is_in_the_table_of_files_with_its_mode():
    page = (ROOT / "docs/reference/files.md").read_text("utf-8")
    modes = dict(re.findall(r"^\| \[`([^`]+)`\]\S+ \|[^|]+\| (0\d{3}) \|", page, re.MULTILINE))
    assert modes == {document.file: f"{document.mode:04o}" for document in documents()}


def test_every_document_says_who_writes_it():
    assert [document.file for document in documents() if not (document.by and document.title)] == []
