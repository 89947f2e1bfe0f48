"""Members as paths of tokens: states and their counts, and the paths of members that are tokenized one by one.

Tokenizing every member is right for any tokenizer, and possible for small spaces only; `coalmine.search.tree.piecewise` finds the
paths of larger ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeVar

from coalmine.errors import ModelError
from coalmine.formats.format import Format
from coalmine.models.protocols import Tokenizer

Key = TypeVar("Key", bound=Hashable)


class TokenState(NamedTuple):
    """A state between tokens: whether a member ends there, and its edges.

    An edge is a token, the state it leads to, and how many members of the format come before those with its text, counted from the
    first that continues from here. States are in a list in which edges lead to higher numbers, and 0 is the start.
    """

    is_leaf: bool
    edges: list[tuple[int, int, int]]


def in_order(start: Key, edges_of: Mapping[Key, list[tuple[int, Key, int]]]) -> list[Key]:
    """The states that can be reached from a start, ordered so that edges lead to later ones.

    >>> in_order("a", {"a": [(0, "c", 0), (1, "b", 0)], "b": [(0, "c", 0)], "c": []})
    ['a', 'b', 'c']
    """
    finished: list[Key] = []
    seen = {start}
    pending = [(start, iter(edges_of[start]))]
    while pending:
        state, edges = pending[-1]
        for _, following, _ in edges:
            if following not in seen:
                seen.add(following)
                pending.append((following, iter(edges_of[following])))
                break
        else:
            finished.append(state)
            pending.pop()
    return finished[::-1]


def count_members(states: list[TokenState]) -> list[int]:
    """For each state, how many paths lead from it to the end of a member."""
    counts = [0] * len(states)
    for state in reversed(range(len(states))):
        counts[state] = int(states[state].is_leaf) + sum(
            counts[following] for _, following, _ in states[state].edges
        )
    return counts


def offsets(state: TokenState, counts: list[int]) -> list[int]:
    """For each edge, how many paths from the state come before those that take it."""
    found, before = [], int(state.is_leaf)
    for _, following, _ in state.edges:
        found.append(before)
        before += counts[following]
    return found


def without_dead_ends(states: list[TokenState], counts: list[int]) -> list[TokenState]:
    """The same states without edges to those from which no member is reached."""
    return [TokenState(state.is_leaf, [edge for edge in state.edges if counts[edge[1]]]) for state in states]


def common_prefix(states: list[TokenState]) -> tuple[tuple[int, ...], int, int]:
    """The tokens that all paths begin with, the state after them, and how many members of the format come before."""
    state, place, prefix = 0, 0, []
    while not states[state].is_leaf and len(states[state].edges) == 1:
        token, state, before = states[state].edges[0]
        prefix.append(token)
        place += before
    return tuple(prefix), state, place


def reachable(states: list[TokenState], root: int) -> list[int]:
    """The states that can be reached from one, including itself, in order."""
    seen, pending = {root}, [root]
    while pending:
        for _, following, _ in states[pending.pop()].edges:
            if following not in seen:
                seen.add(following)
                pending.append(following)
    return sorted(seen)


class ListedPaths(NamedTuple):
    """The paths of some members, and the place of each in the format, counted from the first of them, in the order of the paths."""

    states: list[TokenState]
    places: list[int]


def list_members(form: Format, tokenizer: Tokenizer, first: int, size: int) -> ListedPaths:
    """The paths of `size` members, starting with the one at place `first` of the format; the edges have no places.

    Raises ModelError where two members have the same tokens, because the model cannot distinguish them.
    """
    paths = sorted((tuple(tokenizer.encode(form.at(first + place))), place) for place in range(size))
    for (tokens, _), (following, _) in itertools.pairwise(paths):
        if tokens == following:
            raise ModelError(
                f"the model's tokenizer encodes two members of {form.template!r} as the same tokens, so the model cannot distinguish them; "
                "choose a format whose members differ in what the tokenizer keeps"
            )
    return ListedPaths(_minimal([tokens for tokens, _ in paths]), [place for _, place in paths])


def _minimal(paths: list[tuple[int, ...]]) -> list[TokenState]:
    """The smallest automaton of sorted paths; its own paths are in the same order."""
    numbers: dict[tuple[bool, tuple[tuple[int, int, int], ...]], int] = {}
    # The states along the last path, which may still get edges: whether a path ends there, and the finished edges.
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
    # Edges were finished before the states that they leave, so in reverse order they lead to higher numbers.
    return [
        TokenState(is_leaf, [(token, last - following, 0) for token, following, _ in edges])
        for is_leaf, edges in reversed(numbers)
    ]
