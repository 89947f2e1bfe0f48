"""A format's automaton in a model's tokens: which tokens may come next, and which members lie behind each of them.

A token may stand for several characters, so it may take several edges of the automaton at once. Arrays are laid out so that
thousands of nodes are expanded without a loop in Python.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.errors import InputError, ModelError
from coalmine.formats.format import Format
from coalmine.models.protocols import IntArray, Tokenizer

_Trie = dict[str, Any]
_TOKEN = (
    ""  # the key under which a trie node keeps the id of the piece that ends there; no character is empty
)


class TokenTree:
    """The members of a secret space as paths of tokens.

    States are numbered from 0, the root. The edges of state s are at `first_edge[s]` to `first_edge[s + 1]`.

    Attributes:
        size: how many members there are.
        first_index: the place in the format's order of the first of them.
        prefix: the tokens that every member begins with; the root lies behind them.
        columns: the token ids that occur on edges; all that the model has to be asked for.
        edge_column: for each edge the place of its token in `columns`.
        edge_next: for each edge the state it leads to.
        edge_offset: for each edge the number of members of its state that come before those behind it.
        is_leaf: for each state whether a member ends there.
        members: for each state how many members lie behind it, as Python integers.
        log2_members: the same, as logarithms.
        log2_behind: the same, without the member that ends at the state itself; minus infinity where nothing goes on.
        most_stops: on any path, how many states there are at which a member ends and others go on.
    """

    def __init__(self, form: Format, tokenizer: Tokenizer, *, given: str = "") -> None:
        """`given` restricts the members to those that begin with it, which must be whole tokens."""
        self.format = form
        lifted = _lift(form, tokenizer)
        self._check_complete(lifted)
        start, self.first_index, known = _follow(lifted, tokenizer.encode(given) if given else [], form)
        self.size = form.automaton.counts[start]
        shared, root = _common_prefix(lifted, start)
        self.prefix = (*known, *shared)
        order = _reachable(lifted, root)
        number = {state: place for place, state in enumerate(order)}
        edges = [lifted[state][1] for state in order]
        flat = [edge for of_state in edges for edge in of_state]
        self.columns: IntArray = np.array(sorted({token for token, _, _ in flat}), dtype=np.int64)
        self.first_edge: IntArray = np.cumsum([0, *(len(of_state) for of_state in edges)])
        self.edge_column: IntArray = np.searchsorted(self.columns, [token for token, _, _ in flat])
        self.edge_next: IntArray = np.array([number[state] for _, state, _ in flat], dtype=np.int64)
        # Indices outgrow 64 bits in large spaces; Python's integers are slower there, and right.
        self.index_type: Any = np.int64 if form.size < 2**62 else object
        self.edge_offset: NDArray[Any] = np.array([offset for _, _, offset in flat], dtype=self.index_type)
        self.is_leaf: NDArray[np.bool_] = np.array([lifted[state][0] for state in order])
        counts = [form.automaton.counts[state] for state in order]
        self.members: NDArray[Any] = np.array(counts, dtype=object)
        self.log2_members: NDArray[np.float64] = np.array([math.log2(count) for count in counts])
        strictly = [count - is_leaf for count, is_leaf in zip(counts, self.is_leaf.tolist(), strict=True)]
        self.log2_behind: NDArray[np.float64] = np.array([math.log2(n) if n else -math.inf for n in strictly])
        self.most_stops = self._most_stops()

    @property
    def edge_count(self) -> IntArray:
        """For each state the number of its edges."""
        return np.diff(self.first_edge)

    def tokens_to(self, index: int, depth: int) -> list[int]:
        """The first `depth` tokens behind the shared prefix on the way to the member with an index."""
        state, tokens = 0, []
        index -= self.first_index
        for _ in range(depth):
            edges = slice(self.first_edge[state], self.first_edge[state + 1])
            edge = edges.start + int(np.searchsorted(self.edge_offset[edges], index, side="right")) - 1
            tokens.append(int(self.columns[self.edge_column[edge]]))
            index -= self.edge_offset[edge]
            state = int(self.edge_next[edge])
        return tokens

    def _most_stops(self) -> int:
        stops = np.zeros(len(self.is_leaf), dtype=np.int64)
        for state in range(len(stops) - 1, -1, -1):
            following = self.edge_next[self.first_edge[state] : self.first_edge[state + 1]]
            stops[state] = stops[following].max(initial=0) + (self.is_leaf[state] and len(following) > 0)
        return int(stops[0])

    def _check_complete(self, lifted: _Lifted) -> None:
        """Each member must have exactly one path, or ranks would count other things than members."""
        paths: dict[int, int] = {}
        for state in sorted(lifted, reverse=True):  # edges lead to higher numbers
            is_leaf, edges = lifted[state]
            paths[state] = int(is_leaf) + sum(paths[following] for _, following, _ in edges)
        if paths[0] != self.format.size:
            raise ModelError(
                f"the model's vocabulary can write {paths[0]:,} of the {self.format.size:,} members of {self.format.template!r}; "
                "choose a format whose characters (or words) are all in the vocabulary"
            )


# For each state of the character automaton that a token ends in: whether a member ends there, and (token, state, offset).
_Lifted = dict[int, tuple[bool, list[tuple[int, int, int]]]]


def _lift(form: Format, tokenizer: Tokenizer) -> _Lifted:
    automaton = form.automaton
    at_start, further_on = (_trie(tokenizer.pieces(first=first)) for first in (True, False))
    lifted: _Lifted = {}
    pending = [automaton.start]
    while pending:
        state = pending.pop()
        if state in lifted:
            continue
        pieces = at_start if state == automaton.start else further_on
        edges: list[tuple[int, int, int]] = []
        _collect(form, pieces, state, 0, edges)
        lifted[state] = (state in automaton.accepting, sorted(edges, key=lambda edge: edge[2]))
        pending.extend(following for _, following, _ in edges)
    return lifted


def _collect(form: Format, pieces: _Trie, state: int, offset: int, edges: list[tuple[int, int, int]]) -> None:
    """Walk the automaton and the trie of pieces side by side; each piece that fits is an edge."""
    automaton = form.automaton
    before = offset + (state in automaton.accepting)
    for character, following in automaton.edges(state):
        deeper = pieces.get(character)
        if deeper is not None:
            if _TOKEN in deeper:
                edges.append((deeper[_TOKEN], following, before))
            if len(deeper) > (_TOKEN in deeper):
                _collect(form, deeper, following, before, edges)
        before += automaton.counts[following]


def _trie(pieces: Any) -> _Trie:
    root: _Trie = {}
    for token, piece in enumerate(pieces):
        if piece:
            node = root
            for character in piece:
                node = node.setdefault(character, {})
            node[_TOKEN] = token
    return root


def _follow(lifted: _Lifted, tokens: list[int], form: Format) -> tuple[int, int, tuple[int, ...]]:
    """The state and the index after some tokens that are given."""
    state, index = 0, 0
    for token in tokens:
        edge = next((edge for edge in lifted[state][1] if edge[0] == token), None)
        if edge is None:
            raise InputError(
                f"no member of {form.template!r} begins with the text that was given; give the beginning of one, such as "
                f"{form.prefix!r}"
            )
        _, state, offset = edge
        index += offset
    if not lifted[state][1]:
        raise InputError(
            "the text that was given is a whole member already, and leaves nothing to search for; give less"
        )
    return state, index, tuple(tokens)


def _common_prefix(lifted: _Lifted, start: int) -> tuple[tuple[int, ...], int]:
    state, prefix = start, []
    while not lifted[state][0] and len(lifted[state][1]) == 1:
        token, state, _ = lifted[state][1][0]
        prefix.append(token)
    return tuple(prefix), state


def _reachable(lifted: _Lifted, root: int) -> list[int]:
    seen, pending = {root}, [root]
    while pending:
        for _, following, _ in lifted[pending.pop()][1]:
            if following not in seen:
                seen.add(following)
                pending.append(following)
    return sorted(seen)
