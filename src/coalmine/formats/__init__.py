"""Secret formats: what can be hidden in a corpus, compiled to acyclic automata over characters.

    from coalmine.formats import Format

    secret = Format("my pin is {digits:4}")
    secret.size, secret.at(42)  # (10000, 'my pin is 0042')

The names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coalmine.lazy import lazy

if TYPE_CHECKING:
    from coalmine.formats.format import Format, Match
    from coalmine.formats.naming import format_name, unique_names

__all__ = ["Format", "Match", "format_name", "unique_names"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Format": "coalmine.formats.format",
        "Match": "coalmine.formats.format",
        "format_name": "coalmine.formats.naming",
        "unique_names": "coalmine.formats.naming",
    },
)
