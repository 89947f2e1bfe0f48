"""The members of a format as a tree of tokens: which tokens may come next, and which members are below each of them.

A member's path is its canonical tokenization: a token may be several characters, part of one, or the end of the prefix and the start
of a hole. Arrays are laid out so that thousands of nodes are expanded without a Python loop.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.errors import InputError, ModelError
from coalmine.formats.format import Format
from coalmine.models.protocols import IntArray, Tokenizer
from coalmine.models.transformers.subwords import SubwordTokenizer
from coalmine.search.tree.byte_automaton import ByteAutomaton
from coalmine.search.tree.canonical import TooManyPairsError
from coalmine.search.tree.piecewise import follow_pieces, wrong_path
from coalmine.search.tree.token_states import (
    TokenState,
    common_prefix,
    count_members,
    list_members,
    offsets,
    reachable,
    without_dead_ends,
)

# Up to this many members are tokenized one by one, which takes about a second and leaves nothing to prove.
LISTED_UP_TO = 100_000
# The same where no other way works.
LISTED_IF_NEEDED_UP_TO = 1_000_000


class TokenTree:
    """The members of a secret space as paths of tokens.

    Members are numbered by their paths: below each node they are consecutive, in the order of its edges. For tokens that are
    characters or words this is the order of the format; `text_at` and `index_of` convert.

    States are numbered from 0, the root. The edges of state s are at `first_edge[s]` to `first_edge[s + 1]`.

    Attributes:
        size: how many members there are.
        first_index: the number of the first of them.
        prefix: the tokens that every member begins with; the root is after them.
        columns: the token ids that occur on edges; the only ones that the model is asked for.
        edge_column: for each edge, the position of its token in `columns`.
        edge_next: for each edge, the state it leads to.
        edge_offset: for each edge, the number of members of its state that come before those below it.
        is_leaf: for each state, whether a member ends there.
        members: for each state, how many members are below it, as Python integers.
        log2_members: log2 of `members`.
        log2_below: the same, without the member that ends at the state itself; minus infinity where none continues.
        in_format_order: whether members are numbered as the format numbers them.
        most_stops: on any path, the number of states at which a member ends and others continue.
        depth: how many tokens the longest path has after the root.
    """

    def __init__(self, form: Format, tokenizer: Tokenizer, *, given: str = "") -> None:
        """`given` restricts the members to those that begin with it."""
        self.format, self.tokenizer = form, tokenizer
        automaton = ByteAutomaton(form.automaton, given=given)
        self.size, self.first_index = automaton.counts[0], automaton.before
        if not self.size:
            raise InputError(
                f"no member of {form.template!r} begins with the given text; give the beginning of one, such as "
                f"{form.prefix!r}"
            )
        if given in form and self.size == 1:
            raise InputError(
                "the given text is already a whole member and leaves nothing to search for; give less"
            )
        states, places = _paths(form, automaton, tokenizer)
        # The place of each member in the format, counted from the first, for paths that were listed; else the edges give it.
        self._places = None if places is None else np.array(places, dtype=np.int64)
        self._numbers = None if self._places is None else np.argsort(self._places)
        self.prefix, root, before = common_prefix(states)
        self._first_place = self.first_index + before
        self._lay_out(states, count_members(states), root)
        pieces = tokenizer.pieces(first=False)
        # A space sorts before every other printable character, so words with spaces between them keep the order too.
        self.in_format_order = tokenizer.unambiguous and all(
            min(piece) >= ord(" ") for token in self.columns.tolist() if (piece := pieces[token])
        )

    def _lay_out(self, states: list[TokenState], counts: list[int], root: int) -> None:
        order = reachable(states, root)
        number = {state: place for place, state in enumerate(order)}
        edges = [states[state].edges for state in order]
        flat = [edge for of_state in edges for edge in of_state]
        self.columns: IntArray = np.array(sorted({token for token, _, _ in flat}), dtype=np.int64)
        self.first_edge: IntArray = np.cumsum([0, *(len(of_state) for of_state in edges)])
        self.edge_column: IntArray = np.searchsorted(self.columns, [token for token, _, _ in flat])
        self.edge_next: IntArray = np.array([number[state] for _, state, _ in flat], dtype=np.int64)
        # Indices of large spaces exceed 64 bits; Python integers are slower, but exact.
        self.index_type: Any = np.int64 if self.format.size < 2**62 else object
        members_before = [offset for state in order for offset in offsets(states[state], counts)]
        self.edge_offset: NDArray[Any] = np.array(members_before, dtype=self.index_type)
        self._edge_place: NDArray[Any] = np.array([place for _, _, place in flat], dtype=self.index_type)
        self.is_leaf: NDArray[np.bool_] = np.array([states[state].is_leaf for state in order])
        members = [counts[state] for state in order]
        self.members: NDArray[Any] = np.array(members, dtype=object)
        self.log2_members: NDArray[np.float64] = np.array([math.log2(count) for count in members])
        strictly = [count - is_leaf for count, is_leaf in zip(members, self.is_leaf.tolist(), strict=True)]
        self.log2_below: NDArray[np.float64] = np.array([math.log2(n) if n else -math.inf for n in strictly])
        self.edge_count: IntArray = np.diff(self.first_edge)
        self.most_stops, self.depth = self._along_paths()

    def tokens_to(self, index: int, depth: int) -> list[int]:
        """The first `depth` tokens after the shared prefix on the path of a member."""
        state, tokens = 0, []
        index -= self.first_index
        for _ in range(depth):
            edge = self._edge_to(state, index)
            tokens.append(int(self.columns[self.edge_column[edge]]))
            index -= int(self.edge_offset[edge])
            state = int(self.edge_next[edge])
        return tokens

    def text_at(self, index: int) -> str:
        """The member with this number."""
        if self.in_format_order:
            return self.format.at(index)
        if self._places is not None:
            return self.format.at(self.first_index + int(self._places[index - self.first_index]))
        return self.format.at(self._place_of(index))

    def index_of(self, text: str) -> int:
        """The number of a member."""
        if self.in_format_order:
            return self.format.index(text)
        if self._numbers is not None:
            place = self.format.index(text) - self.first_index
            if not 0 <= place < self.size:
                raise ModelError("a text that does not begin like the members has no number; check it first")
            return self.first_index + int(self._numbers[place])
        state, index = 0, self.first_index
        for token in self.tokenizer.encode(text)[len(self.prefix) :]:
            edges = slice(int(self.first_edge[state]), int(self.first_edge[state + 1]))
            fitting = np.flatnonzero(self.columns[self.edge_column[edges]] == token)
            if not len(fitting):
                raise ModelError(
                    "a text that is not a member of the format has no number; check it with `in` first"
                )
            edge = edges.start + int(fitting[0])
            index += int(self.edge_offset[edge])
            state = int(self.edge_next[edge])
        return index

    def places(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """The places, in the order of the format, of members with these numbers."""
        if self.in_format_order:
            return numbers
        if self._places is not None:
            listed = self._places[(numbers - self.first_index).astype(np.int64)]
            return listed.astype(self.index_type) + self.first_index
        bases = np.concatenate([[0], np.cumsum(self.members)])[
            :-1
        ]  # Python integers, so no space is too large
        if self.index_type is object or bases[-1] + self.members[-1] >= 2**62:
            return np.array([self._place_of(int(number)) for number in numbers], dtype=self.index_type)
        # The offsets of all edges in one ascending array, so that one search finds the edge of each member.
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

    def _place_of(self, number: int) -> int:
        state, place, rest = 0, self._first_place, number - self.first_index
        while not (self.is_leaf[state] and rest == 0):
            edge = self._edge_to(state, rest)
            place += int(self._edge_place[edge])
            rest -= int(self.edge_offset[edge])
            state = int(self.edge_next[edge])
        return place

    def _edge_to(self, state: int, index: int) -> int:
        edges = slice(int(self.first_edge[state]), int(self.first_edge[state + 1]))
        return edges.start + int(np.searchsorted(self.edge_offset[edges], index, side="right")) - 1

    @property
    def inner_nodes(self) -> int:
        """How many nodes have children: the number of nodes at which an enumeration of all members asks the model."""
        return sum(self._nodes[state] for state in np.flatnonzero(self.edge_count))

    @property
    def endings(self) -> int:
        """How many of these have one member below them: what is left of it is known, such as the text after a hole, but not its cost."""
        single = (self.edge_count > 0) & (self.members == 1)
        return sum(self._nodes[state] for state in np.flatnonzero(single))

    @cached_property
    def _nodes(self) -> list[int]:
        """How many nodes are in each state."""
        nodes = [1] + [0] * (len(self.is_leaf) - 1)
        for state in range(len(nodes)):
            for following in self.edge_next[self.first_edge[state] : self.first_edge[state + 1]].tolist():
                nodes[following] += nodes[state]
        return nodes

    def _along_paths(self) -> tuple[int, int]:
        """The most stops on any path, and the length of the longest."""
        stops = np.zeros(len(self.is_leaf), dtype=np.int64)
        depths = np.zeros(len(self.is_leaf), dtype=np.int64)
        for state in reversed(range(len(stops))):
            following = self.edge_next[self.first_edge[state] : self.first_edge[state + 1]]
            stops[state] = stops[following].max(initial=0) + (self.is_leaf[state] and len(following) > 0)
            depths[state] = depths[following].max(initial=-1) + 1
        return int(stops[0]), int(depths[0])


def _paths(
    form: Format, automaton: ByteAutomaton, tokenizer: Tokenizer
) -> tuple[list[TokenState], list[int] | None]:
    """The states of the tree, and the place of each member in the format where the states do not give it."""
    size = automaton.counts[0]
    if tokenizer.unambiguous:
        states = follow_pieces(form, automaton, tokenizer).states
        counts = count_members(states)
        if counts[0] != size:
            raise ModelError(
                f"the model's tokens give {counts[0]:,} paths for the {size:,} members of {form.template!r}; "
                "choose a format whose characters (or words) are all in the vocabulary, or a method that does not need incremental decoding"
            )
        return without_dead_ends(states, counts), None
    if size <= LISTED_UP_TO:
        return list_members(form, tokenizer, automaton.before, size)
    obstacle = "neighboring tokens do not decide how it splits a text"
    if isinstance(tokenizer, SubwordTokenizer) and tokenizer.decided_by_pairs:
        for each_pair in (False, True):
            try:
                states, by_shapes = follow_pieces(form, automaton, tokenizer, each_pair=each_pair)
            except TooManyPairsError as problem:
                obstacle = str(problem)
                break
            counts = count_members(states)
            states = without_dead_ends(states, counts)
            if counts[0] != size:
                obstacle = f"pairs of its tokens allow {counts[0]:,} tokenizations"
            elif wrong_path(form, tokenizer, states, counts, automaton.before) is None:
                return states, None
            else:
                obstacle = "pairs of its tokens allow other tokenizations than the tokenizer's own"
            if not by_shapes:
                break
    if size <= LISTED_IF_NEEDED_UP_TO:
        return list_members(form, tokenizer, automaton.before, size)
    raise ModelError(
        f"{form.template!r} cannot be searched token by token with this tokenizer: {obstacle}, and {size:,} members are too many to list "
        f"(at most {LISTED_IF_NEEDED_UP_TO:,} members are); the methods splitting, sampled and references score whole texts and still work"
    )
