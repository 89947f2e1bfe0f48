"""Members as paths of tokens, made by writing each of them out and asking the tokenizer: right whatever the tokenizer does."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from coalmine.errors import ModelError
from coalmine.formats.format import Format
from coalmine.models.protocols import Tokenizer
from coalmine.search.tree.token_states import TokenState


class Listed(NamedTuple):
    """The paths of some members, and the place of each in the format, counted from the first of them, in the order of the paths."""

    states: list[TokenState]
    places: list[int]


def list_members(form: Format, tokenizer: Tokenizer, first: int, size: int) -> Listed:
    """The paths of `size` members from the one at place `first` of the format; edges know no places.

    A ModelError where two of them have the same tokens: the model cannot tell these apart.
    """
    paths = sorted((tuple(tokenizer.encode(form.at(first + place))), place) for place in range(size))
    for (tokens, _), (following, _) in itertools.pairwise(paths):
        if tokens == following:
            raise ModelError(
                f"the model's tokenizer writes two members of {form.template!r} in the same tokens, so the model cannot tell them apart; "
                "choose a format whose members differ in what the tokenizer keeps"
            )
    return Listed(_minimal([tokens for tokens, _ in paths]), [place for _, place in paths])


def _minimal(paths: list[tuple[int, ...]]) -> list[TokenState]:
    """The smallest automaton of some paths that are in order; its own paths are in the same order."""
    numbers: dict[tuple[bool, tuple[tuple[int, int, int], ...]], int] = {}
    # The states on the way to the last path, which may still get edges: whether a path ends there, and the finished edges.
    way: list[tuple[bool, list[tuple[int, int, int]]]] = [(False, [])]
    tokens_on_way: list[int] = []

    def finish(depth: int) -> None:
        while len(tokens_on_way) > depth:
            is_leaf, edges = way.pop()
            number = numbers.setdefault((is_leaf, tuple(edges)), len(numbers))
            way[-1][1].append((tokens_on_way.pop(), number, 0))

    for path in paths:
        shared = 0
        while shared < len(tokens_on_way) and tokens_on_way[shared] == path[shared]:
            shared += 1
        finish(shared)
        for token in path[shared:]:
            tokens_on_way.append(token)
            way.append((False, []))
        way[-1] = (True, way[-1][1])
    finish(0)
    numbers[way[0][0], tuple(way[0][1])] = last = len(numbers)
    # Edges were finished before the states that they leave, so that reading backwards they lead to higher numbers.
    return [
        TokenState(is_leaf, [(token, last - following, 0) for token, following, _ in edges])
        for is_leaf, edges in reversed(numbers)
    ]
