"""Lazy exports of a package, read from its stub: each name is imported from its home module when it is first used (PEP 562)."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


def lazy(package: str, file: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """The `__all__`, `__getattr__` and `__dir__` of a package, from the imports in the `__init__.pyi` beside its `__init__.py`.

    The stub is also what type checkers and editors read, so that it is the one list of what the package exports:

        __all__, __getattr__, __dir__ = lazy(__name__, __file__)

    An export must not have the name of a submodule: importing the submodule would replace it.

    >>> import coalmine.formats
    >>> names, find, _ = lazy("coalmine.formats", coalmine.formats.__file__)
    >>> names
    ['Format', 'Match', 'format_name', 'unique_names']
    >>> find("Format")("my pin is {digits:4}").size
    10000
    >>> find("Shape")
    Traceback (most recent call last):
    AttributeError: module 'coalmine.formats' has no attribute 'Shape'
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text("utf-8"))
    homes = {
        alias.asname: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
        if alias.asname is not None
    }

    def find(name: str) -> Any:
        if name in homes:
            return getattr(importlib.import_module(homes[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted(homes)

    return sorted(homes), find, names
