"""A format's automaton in a model's tokens: which tokens may come next, and which members lie behind each of them.

A token may stand for several characters, or for a part of one, so it may take several edges of the automaton at once; where a
text could be cut into tokens in several ways, only the way of the tokenizer itself is a path. Arrays are laid out so that
thousands of nodes are expanded without a loop in Python.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.errors import InputError, ModelError
from coalmine.formats.format import Format
from coalmine.models.protocols import IntArray, Tokenizer
from coalmine.search.byte_automaton import ByteAutomaton
from coalmine.search.canonical import START, Neighbors

# A trie of pieces, by bytes; the id of a piece that ends at a node stands under _TOKEN, which is no byte.
_Trie = dict[int, Any]
_TOKEN = -1
# The place in the automaton before anything was written, where pieces are those of a text's beginning.
_BEFORE_ALL = -1
# Edges of the largest tree that is built; beyond it the memory would be gigabytes.
MOST_EDGES = 20_000_000


class TokenTree:
    """The members of a secret space as paths of tokens.

    Members are numbered by their paths: behind each node they are consecutive, in the order of its edges. For tokens that are
    characters or words this is the order of the format; `text_at` and `index_of` translate.

    States are numbered from 0, the root. The edges of state s are at `first_edge[s]` to `first_edge[s + 1]`.

    Attributes:
        size: how many members there are.
        first_index: the number of the first of them.
        prefix: the tokens that every member begins with; the root lies behind them.
        columns: the token ids that occur on edges; all that the model has to be asked for.
        edge_column: for each edge the place of its token in `columns`.
        edge_next: for each edge the state it leads to.
        edge_offset: for each edge the number of members of its state that come before those behind it.
        is_leaf: for each state whether a member ends there.
        members: for each state how many members lie behind it, as Python integers.
        log2_members: the same, as logarithms.
        log2_behind: the same, without the member that ends at the state itself; minus infinity where nothing goes on.
        in_format_order: whether members are numbered as the format numbers them.
        most_stops: on any path, how many states there are at which a member ends and others go on.
    """

    def __init__(self, form: Format, tokenizer: Tokenizer, *, given: str = "") -> None:
        """`given` restricts the members to those that begin with it, which must be whole tokens."""
        self.format, self.tokenizer = form, tokenizer
        lifted = _lift(form, tokenizer)
        counts = _count(lifted)
        # What no canonical text goes on from is no way to go.
        lifted = [_Lifted(one.is_leaf, [edge for edge in one.edges if counts[edge[1]]]) for one in lifted]
        if counts[0] != form.size:
            raise ModelError(
                f"the model's tokens give {counts[0]:,} paths for the {form.size:,} members of {form.template!r}; "
                "choose a format whose characters (or words) are all in the vocabulary, or a method that needs no walk"
            )
        start, self.first_index, known = _follow(
            lifted, counts, tokenizer.encode(given) if given else [], form
        )
        self.size = counts[start]
        shared, root = _common_prefix(lifted, start)
        self.prefix = (*known, *shared)
        self._lay_out(lifted, counts, root)
        self._first_place = _place_of(lifted, self.prefix)
        pieces = tokenizer.pieces(first=False)
        # A space comes before every other printable character, so words with spaces between them keep the order too.
        self.in_format_order = tokenizer.unambiguous and all(
            min(piece) >= ord(" ") for token in self.columns.tolist() if (piece := pieces[token])
        )

    def _lay_out(self, lifted: list[_Lifted], counts: list[int], root: int) -> None:
        order = _reachable(lifted, root)
        number = {state: place for place, state in enumerate(order)}
        edges = [lifted[state].edges for state in order]
        flat = [edge for of_state in edges for edge in of_state]
        self.columns: IntArray = np.array(sorted({token for token, _, _ in flat}), dtype=np.int64)
        self.first_edge: IntArray = np.cumsum([0, *(len(of_state) for of_state in edges)])
        self.edge_column: IntArray = np.searchsorted(self.columns, [token for token, _, _ in flat])
        self.edge_next: IntArray = np.array([number[state] for _, state, _ in flat], dtype=np.int64)
        # Numbers outgrow 64 bits in large spaces; Python's integers are slower there, and right.
        self.index_type: Any = np.int64 if self.format.size < 2**62 else object
        offsets = [offset for state in order for offset in _offsets(lifted[state], counts)]
        self.edge_offset: NDArray[Any] = np.array(offsets, dtype=self.index_type)
        self._edge_place: NDArray[Any] = np.array([place for _, _, place in flat], dtype=self.index_type)
        self.is_leaf: NDArray[np.bool_] = np.array([lifted[state].is_leaf for state in order])
        members = [counts[state] for state in order]
        self.members: NDArray[Any] = np.array(members, dtype=object)
        self.log2_members: NDArray[np.float64] = np.array([math.log2(count) for count in members])
        strictly = [count - is_leaf for count, is_leaf in zip(members, self.is_leaf.tolist(), strict=True)]
        self.log2_behind: NDArray[np.float64] = np.array([math.log2(n) if n else -math.inf for n in strictly])
        self.edge_count: IntArray = np.diff(self.first_edge)
        self.most_stops = self._most_stops()

    def tokens_to(self, index: int, depth: int) -> list[int]:
        """The first `depth` tokens behind the shared prefix on the way to a member."""
        state, tokens = 0, []
        index -= self.first_index
        for _ in range(depth):
            edge = self._edge_to(state, index)
            tokens.append(int(self.columns[self.edge_column[edge]]))
            index -= int(self.edge_offset[edge])
            state = int(self.edge_next[edge])
        return tokens

    def text_at(self, index: int) -> str:
        """The member with a number."""
        if self.in_format_order:
            return self.format.at(index)
        state, tokens, rest = 0, list(self.prefix), index - self.first_index
        while not (self.is_leaf[state] and rest == 0):
            edge = self._edge_to(state, rest)
            tokens.append(int(self.columns[self.edge_column[edge]]))
            rest -= int(self.edge_offset[edge])
            state = int(self.edge_next[edge])
        return self.tokenizer.decode(tokens)

    def index_of(self, text: str) -> int:
        """The number of a member."""
        if self.in_format_order:
            return self.format.index(text)
        state, index = 0, self.first_index
        for token in self.tokenizer.encode(text)[len(self.prefix) :]:
            edges = slice(int(self.first_edge[state]), int(self.first_edge[state + 1]))
            fitting = np.flatnonzero(self.columns[self.edge_column[edges]] == token)
            if not len(fitting):
                raise ModelError(
                    "a text that is no member of the format has no number; check it with `in` first"
                )
            edge = edges.start + int(fitting[0])
            index += int(self.edge_offset[edge])
            state = int(self.edge_next[edge])
        return index

    def places(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """The places in the order of the format of members with these numbers, all at once."""
        if self.in_format_order:
            return numbers
        bases = np.concatenate([[0], np.cumsum(self.members)])[:-1]  # Python integers: no space is too large
        if self.index_type is object or bases[-1] + self.members[-1] >= 2**62:
            texts = (self.text_at(int(number)) for number in numbers)
            return np.array([self.format.index(text) for text in texts], dtype=self.index_type)
        # Offsets of all edges on one line, so that one search finds the edge of each member.
        base = bases.astype(np.int64)
        line = np.repeat(base, self.edge_count) + self.edge_offset
        places = np.full(len(numbers), self._first_place, dtype=np.int64)
        state, rest = np.zeros(len(numbers), dtype=np.int64), numbers - self.first_index
        going = np.flatnonzero(~(self.is_leaf[state] & (rest == 0)))
        while len(going):
            edge = np.searchsorted(line, base[state[going]] + rest[going], side="right") - 1
            places[going] += self._edge_place[edge]
            rest[going] -= self.edge_offset[edge]
            state[going] = self.edge_next[edge]
            going = going[~(self.is_leaf[state[going]] & (rest[going] == 0))]
        return places

    def _edge_to(self, state: int, index: int) -> int:
        edges = slice(int(self.first_edge[state]), int(self.first_edge[state + 1]))
        return edges.start + int(np.searchsorted(self.edge_offset[edges], index, side="right")) - 1

    def _most_stops(self) -> int:
        stops = np.zeros(len(self.is_leaf), dtype=np.int64)
        for state in range(len(stops) - 1, -1, -1):
            following = self.edge_next[self.first_edge[state] : self.first_edge[state + 1]]
            stops[state] = stops[following].max(initial=0) + (self.is_leaf[state] and len(following) > 0)
        return int(stops[0])


# A place in the automaton, and where texts can be cut in several ways, the tokens that may come next there.
_Key = tuple[int, tuple[int, ...]]


class _Lifted(NamedTuple):
    """A state between tokens: whether a member ends there, and its edges, in the order of their texts.

    An edge is a token, the state it leads to, and how many members of the format come before those with its text.
    """

    is_leaf: bool
    edges: list[tuple[int, int, int]]


def _lift(form: Format, tokenizer: Tokenizer) -> list[_Lifted]:
    """States between tokens, numbered so that edges lead to higher numbers and 0 is the start.

    A state is a place in the automaton and, where texts can be cut in several ways, the set of tokens that may come next: last
    tokens that allow the same ones are not told apart, so that a thousand tokens of digits make a handful of states.
    """
    automaton = ByteAutomaton(form.automaton)
    pieces = [tokenizer.pieces(first=first) for first in (True, False)]
    tries = [_trie(of_kind) for of_kind in pieces]
    neighbors = None if tokenizer.unambiguous else Neighbors(tokenizer)
    fitting: dict[
        int, list[tuple[int, int, int]]
    ] = {}  # of a place in the automaton, all pieces that fit there
    edges_of: dict[_Key, list[tuple[int, _Key, int]]] = {}
    allowed_after: dict[tuple[int, int], tuple[int, ...]] = {}

    def fitting_at(place: int) -> list[tuple[int, int, int]]:
        found: list[tuple[int, int, int]] = []
        if place == _BEFORE_ALL:
            # A token that only marks the first word stands for nothing there, and leads to the start without it.
            found = [(token, 0, 0) for token, piece in enumerate(pieces[0]) if piece == b""]
        _collect(automaton, tries[place != _BEFORE_ALL], max(place, 0), 0, found)
        return found

    def state_after(place: int, before: int) -> _Key:
        """A place in the automaton with the tokens that may come next behind `before`."""
        if place not in fitting:
            fitting[place] = fitting_at(place)
        if neighbors is None:
            return place, ()
        if (place, before) not in allowed_after:
            tokens = [token for token, _, _ in fitting[place]]
            kept = neighbors.allowed(before, tokens)
            allowed_after[place, before] = tuple(
                token for token, keep in zip(tokens, kept, strict=True) if keep
            )
        return place, allowed_after[place, before]

    start = state_after(_BEFORE_ALL, START)
    pending, total = [start], 0
    while pending:
        state = pending.pop()
        if state in edges_of:
            continue
        place, allowed = state
        chosen = set(allowed)
        taken = [edge for edge in fitting[place] if neighbors is None or edge[0] in chosen]
        edges_of[state] = [(token, state_after(target, token), before) for token, target, before in taken]
        total += len(taken)
        if total > MOST_EDGES:
            raise ModelError(
                f"{form.template!r} in the model's tokens has more than {MOST_EDGES:,} edges; "
                "use a smaller format, or a method that needs no walk"
            )
        pending.extend(following for _, following, _ in edges_of[state])
    numbered = sorted(edges_of, key=lambda state: state[0])  # edges lead to higher places
    number = {state: place for place, state in enumerate(numbered)}
    return [
        _Lifted(
            max(state[0], 0) in automaton.accepting,
            [(token, number[following], before) for token, following, before in edges_of[state]],
        )
        for state in numbered
    ]


def _collect(
    automaton: ByteAutomaton, pieces: _Trie, place: int, before: int, found: list[tuple[int, int, int]]
) -> None:
    """Walk the automaton and the trie of pieces side by side; each piece that fits is an edge, a shorter one first."""
    before += place in automaton.accepting
    for byte, following in automaton.edges[place]:
        deeper = pieces.get(byte)
        if deeper is not None:
            found.extend((token, following, before) for token in deeper.get(_TOKEN, ()))
            _collect(automaton, deeper, following, before, found)
        before += automaton.counts[following]


def _trie(pieces: Any) -> _Trie:
    root: _Trie = {}
    for token, piece in enumerate(pieces):
        if piece:
            node = root
            for byte in piece:
                node = node.setdefault(byte, {})
            node.setdefault(_TOKEN, []).append(token)
    return root


def _count(lifted: list[_Lifted]) -> list[int]:
    counts = [0] * len(lifted)
    for state in range(len(lifted) - 1, -1, -1):
        counts[state] = int(lifted[state].is_leaf) + sum(
            counts[following] for _, following, _ in lifted[state].edges
        )
    return counts


def _offsets(state: _Lifted, counts: list[int]) -> list[int]:
    offsets, before = [], int(state.is_leaf)
    for _, following, _ in state.edges:
        offsets.append(before)
        before += counts[following]
    return offsets


def _follow(
    lifted: list[_Lifted], counts: list[int], tokens: list[int], form: Format
) -> tuple[int, int, tuple[int, ...]]:
    """The state and the number of the first member after some tokens that are given."""
    state, index = 0, 0
    for token in tokens:
        pairs = zip(lifted[state].edges, _offsets(lifted[state], counts), strict=True)
        edge = next(((following, offset) for (own, following, _), offset in pairs if own == token), None)
        if edge is None:
            raise InputError(
                f"no member of {form.template!r} begins with the text that was given; give the beginning of one, such as "
                f"{form.prefix!r}"
            )
        state, index = edge[0], index + edge[1]
    if not lifted[state].edges:
        raise InputError(
            "the text that was given is a whole member already, and leaves nothing to search for; give less"
        )
    return state, index, tuple(tokens)


def _common_prefix(lifted: list[_Lifted], start: int) -> tuple[tuple[int, ...], int]:
    state, prefix = start, []
    while not lifted[state].is_leaf and len(lifted[state].edges) == 1:
        token, state, _ = lifted[state].edges[0]
        prefix.append(token)
    return tuple(prefix), state


def _place_of(lifted: list[_Lifted], tokens: tuple[int, ...]) -> int:
    """How many members of the format come before those whose text begins with some tokens."""
    state, place = 0, 0
    for token in tokens:
        _, state, before = next(edge for edge in lifted[state].edges if edge[0] == token)
        place += before
    return place


def _reachable(lifted: list[_Lifted], root: int) -> list[int]:
    seen, pending = {root}, [root]
    while pending:
        for _, following, _ in lifted[pending.pop()].edges:
            if following not in seen:
                seen.add(following)
                pending.append(following)
    return sorted(seen)
