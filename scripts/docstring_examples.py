"""Shows the doctests in docstrings as code on the pages of the API; mkdocstrings would show them as quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^[ ]*>>> .*\n?(?:^(?![ ]*$).+\n?)*)+", re.MULTILINE)


class DocstringExamples(griffe.Extension):
    """Puts a fence around each example of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change one docstring, before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    """A docstring with a fence around each of its examples."""
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", docstring)
