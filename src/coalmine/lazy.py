"""Lazy exports of a package: each name is imported from its home module when it is first used (PEP 562)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def lazy(module: str, homes: dict[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of the package `module`, which exports each key of `homes` from the module it maps to.

    An `__init__.py` also imports the names under `TYPE_CHECKING` and lists them in `__all__`, for type checkers and editors:

        __getattr__, __dir__ = lazy(__name__, {"load_model": "coalmine.models.loading"})

    An export must not have the name of a submodule: importing the submodule would replace it.

    >>> find, names = lazy("shapes", {"sqrt": "math"})
    >>> find("sqrt")(9.0), names()
    (3.0, ['sqrt'])
    >>> find("cube")
    Traceback (most recent call last):
    AttributeError: module 'shapes' has no attribute 'cube'
    """

    def find(name: str) -> Any:
        if name in homes:
            return getattr(importlib.import_module(homes[name]), name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted(homes)

    return find, names
