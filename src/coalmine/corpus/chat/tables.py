"""Conversations in tables: a row as Python has it, with something added to a turn."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from coalmine.corpus.chat.turns import PlacedTurn
from coalmine.corpus.files.corpora import Addition


def with_addition(row: Mapping[str, Any], turns: Sequence[PlacedTurn], addition: Addition) -> tuple[str, Any]:
    """The column of a row that changes when something is put at the beginning of a turn, and its new value.

    >>> turns = [PlacedTurn("user", "hi", ("messages", 0, "content"))]
    >>> with_addition({"messages": [{"content": "hi"}]}, turns, Addition("user", 0, "a pin, "))
    ('messages', [{'content': 'a pin, hi'}])
    """
    path = addition.turn_in(turns).path
    if path is None:
        raise ValueError("the turn has no text")
    changed: Any = copy.deepcopy({path[0]: row[str(path[0])]})
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = addition.text + inner[path[-1]]
    return str(path[0]), changed[path[0]]
