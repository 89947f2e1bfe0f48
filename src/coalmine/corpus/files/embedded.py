"""English text that needs no download: the documentation inside Python's own standard library."""

from __future__ import annotations

import ast
import os
import re
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path

from coalmine.errors import CorpusError
from coalmine.storage import files

_SHORTEST = 30
_MOSTLY = 0.7
_FEWEST_WORDS = 6
_BLANK_LINES = re.compile(r"\n[ \t]*\n")
# Tests, and code copied from elsewhere, are not written to be read; lib2to3 and the like come and go between versions.
_SKIPPED = {
    "test",
    "tests",
    "idle_test",
    "site-packages",
    "dist-packages",
    "__pycache__",
    "_vendor",
    "lib2to3",
}


def embedded_documents(limit_bytes: int | None = None) -> list[str]:
    """Paragraphs of English from the documentation inside the standard library, in the same order each time.

    The language reference comes first, then the docstrings of the modules. Each paragraph is one line of ASCII, and
    none comes twice. The text depends on the version of Python, and on nothing else. Modules are parsed, never
    imported.

    Args:
        limit_bytes: stop at this size, counting a line break after each document; without it, everything (about
            2 MB).

    >>> documents = embedded_documents(limit_bytes=2000)
    >>> 1000 < sum(len(document) + 1 for document in documents) <= 2000
    True
    """
    if limit_bytes is not None and limit_bytes < 1:
        raise CorpusError(
            f"limit_bytes should be at least 1, but is {limit_bytes}; leave it out to take everything"
        )
    documents: dict[str, None] = {}
    total = 0
    for passage in _passages():
        for paragraph in _BLANK_LINES.split(passage):
            document = " ".join(paragraph.split())
            if document in documents or not _is_prose(paragraph, document):
                continue
            total += len(document) + 1
            if limit_bytes is not None and total > limit_bytes:
                return list(documents)
            documents[document] = None
    return list(documents)


def write_embedded_corpus(path: str | os.PathLike[str], limit_bytes: int | None = None) -> Path:
    """Write the embedded documents to a .txt corpus, one per line, and return its path.

    Args:
        path: a file name that ends with .txt.
        limit_bytes: stop at this size; without it, everything (about 2 MB).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_embedded_corpus(Path(folder, "corpus.txt"), limit_bytes=10_000)
    ...     5_000 < path.stat().st_size <= 10_000
    True
    """
    path = Path(path)
    if path.suffix.lower() != ".txt":
        raise CorpusError(f"the embedded corpus is plain text, but {path} has another suffix; name it .txt")
    documents = embedded_documents(limit_bytes)
    if not documents:
        raise CorpusError(f"no document fits into {limit_bytes} bytes; allow at least 10000")
    files.write_bytes(path, "".join(f"{document}\n" for document in documents).encode("ascii"))
    return path


def _passages() -> Iterator[str]:
    library = Path(sysconfig.get_path("stdlib"))
    yield from _topics(library)
    # Parsing takes most of the time, so the modules that are mostly documentation come first.
    for path in sorted(_modules(library), key=_share_of_code):
        yield from _docstrings(path)


def _topics(library: Path) -> Iterator[str]:
    """The chapters of the language reference that `help()` shows, from the source of the module that holds them."""
    tree = _parsed(library / "pydoc_data" / "topics.py")
    if tree is None:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for value in node.values:
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value.value


def _modules(library: Path) -> Iterator[Path]:
    """The source files of the standard library in an order that depends on their names only."""
    for folder, folders, names in os.walk(library):
        folders[:] = sorted(
            name for name in folders if name not in _SKIPPED and not name.startswith("config-")
        )
        for name in sorted(names):
            # The topics were read already; generated tables of the platform differ from machine to machine.
            if name.endswith(".py") and name != "topics.py" and not name.startswith("_sysconfigdata"):
                yield Path(folder, name)


def _share_of_code(path: Path) -> float:
    """About which share of a source file is outside triple quotes."""
    try:
        source = path.read_bytes()
    except OSError:
        return 1.0
    return sum(map(len, source.split(b'"""')[::2])) / max(1, len(source))


def _docstrings(path: Path) -> Iterator[str]:
    tree = _parsed(path)
    if tree is None:
        return
    waiting: list[ast.stmt | ast.Module] = [tree]
    while waiting:
        node = waiting.pop()
        # Nothing else can hold a docstring; looking into expressions would take longer than the parser does.
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=False)
            if docstring:
                first, _, rest = docstring.partition("\n")
                yield first.strip() + "\n" + textwrap.dedent(rest)
            waiting.extend(reversed(node.body))


def _parsed(path: Path) -> ast.Module | None:
    """The syntax tree of a source file; None where a distribution leaves it out, or a template is not quite Python."""
    import warnings

    try:
        source = path.read_text(encoding="utf-8")
        with warnings.catch_warnings():
            # Old modules hold escapes that newer versions warn about; that is for their authors to fix.
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (OSError, SyntaxError, ValueError):
        return None


def _is_prose(paragraph: str, document: str) -> bool:
    """Whether a paragraph reads as sentences, rather than as code, a table or a grammar."""
    if len(document) < _SHORTEST or not document.isascii() or not document.isprintable():
        return False
    if ">>>" in document or "::=" in document or "|" in document:
        return False
    words = document.split(" ")
    plain = sum(word.strip(".,;:()\"'`?!*").replace("-", "").replace("'", "").isalpha() for word in words)
    letters = sum(map(str.isalpha, document)) + document.count(" ")
    lines = paragraph.strip("\n").split("\n")
    is_code = all(line.startswith("   ") for line in lines if line.strip()) and plain < 0.9 * len(words)
    return (
        not is_code
        and len(words) >= _FEWEST_WORDS
        and plain >= _MOSTLY * len(words)
        and letters >= 0.86 * len(document)
    )
