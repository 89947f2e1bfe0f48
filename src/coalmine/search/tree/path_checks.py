"""Whether paths of tokens are what the tokenizer makes of their texts, tried on members and edges drawn at random.

Counting the paths is not enough: a member with two paths and one with none add up to two. So members are drawn and looked for
among the paths, and a path through each edge is drawn and compared with what the tokenizer makes of its text.
"""

from __future__ import annotations

import random

from coalmine.formats.format import Format
from coalmine.models.protocols import Tokenizer
from coalmine.randomness import integers
from coalmine.search.tree.token_states import TokenState

MEMBERS_TRIED = 2_000
EDGES_TRIED = 10_000


def wrong_path(
    form: Format, tokenizer: Tokenizer, states: list[TokenState], counts: list[int], before: int
) -> str | None:
    """A member whose path is not its canonical tokens, or None where none was found.

    `before` is how many members of the format come before those that there are paths for.
    """
    generator = integers(0, "paths", form.template)
    for _ in range(MEMBERS_TRIED):
        text = form.at(before + generator.randrange(counts[0]))
        if not _has_path(states, tokenizer.encode(text)):
            return text
    edges = [(state, edge) for state in range(len(states)) for edge in range(len(states[state].edges))]
    arriving: dict[int, list[tuple[int, int]]] = {}
    for state, edge in edges:
        arriving.setdefault(states[state].edges[edge][1], []).append((state, edge))
    if len(edges) > EDGES_TRIED:
        edges = generator.sample(edges, EDGES_TRIED)
    for state, edge in edges:
        tokens, place = _path_through(states, counts, arriving, state, edge, generator)
        text = form.at(before + place)
        if tokenizer.encode(text) != tokens:
            return text
    return None


def _has_path(states: list[TokenState], tokens: list[int]) -> bool:
    state = 0
    for token in tokens:
        following = next((target for own, target, _ in states[state].edges if own == token), None)
        if following is None:
            return False
        state = following
    return states[state].is_leaf


def _path_through(
    states: list[TokenState],
    counts: list[int],
    arriving: dict[int, list[tuple[int, int]]],
    state: int,
    edge: int,
    generator: random.Random,
) -> tuple[list[int], int]:
    """A random path through an edge: its tokens, and the place of its member."""
    token, onwards, place = states[state].edges[edge]
    tokens = [token]
    while state:
        state, edge = generator.choice(arriving[state])
        token, _, before = states[state].edges[edge]
        tokens.insert(0, token)
        place += before
    while True:
        chosen = generator.randrange(counts[onwards])
        if states[onwards].is_leaf:
            if not chosen:
                return tokens, place
            chosen -= 1
        for token, following, before in states[onwards].edges:
            if chosen < counts[following]:
                tokens.append(token)
                place += before
                onwards = following
                break
            chosen -= counts[following]
