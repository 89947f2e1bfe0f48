"""What the pages of the API need of mkdocstrings: doctests shown as code and not as quotations, and the exports of stubs."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^[ ]*>>> .*\n?(?:^(?![ ]*$).+\n?)*)+", re.MULTILINE)


class DocstringExamples(griffe.Extension):
    """Puts a fence around each example of every docstring, and takes what a stub imports for what the package exports."""

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        """List what a package exports, as `coalmine.lazy` does when it is imported."""
        if mod.filepath is not None and str(mod.filepath).endswith(".pyi"):
            mod.exports = [*sorted(mod.imports)]

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change one docstring, before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    """A docstring with a fence around each of its examples."""
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", docstring)
