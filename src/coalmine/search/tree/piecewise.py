"""Members as paths of tokens, found by following the bytes of tokens through the format's automaton, and a check of these paths.

No member has to be tokenized, so this works for spaces of any size. A token may be several characters, or part of one, so it may
take several edges of the automaton at once; where a text could be split into tokens in several ways, pairs of neighbors decide
which is a path.

Counting the paths is not a sufficient check: a member with two paths and one with none add up to two. So members are drawn and
looked up among the paths, and a random path through each edge is compared with the tokenization of its text.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from coalmine.errors import ModelError
from coalmine.formats.format import Format
from coalmine.grouped import grouped
from coalmine.models.protocols import Tokenizer
from coalmine.models.transformers.subwords import SubwordTokenizer
from coalmine.randomness import integers
from coalmine.search.tree.byte_automaton import ByteAutomaton
from coalmine.search.tree.canonical import NOTHING, START, Neighbors, Spelling
from coalmine.search.tree.token_states import TokenState, in_order

# A trie of the bytes of tokens; the ids of tokens that end at a node are under _TOKEN, which is not a byte.
_Trie = dict[int, Any]
_TOKEN = -1


class _Fitting(NamedTuple):
    """A token or unit, the place in the automaton it leads to, and how many members come before those with its text.

    `mark` is a token before it that only marks the beginning of a text.
    """

    token: int
    target: int
    before: int
    mark: int | None = None


class _Key(NamedTuple):
    """A state: a place in the automaton, and what decides which of the tokens that fit there may come next."""

    place: int
    fresh: bool  # whether a word that begins here is marked like the first of a text
    allowed: int  # where texts can be split in several ways, the number of the set of fitting tokens that may come next
    spelling: Spelling  # partial matches of added tokens
    inside: tuple[int, ...] = ()  # within a unit, its tokens so far


# The most edges of a tree; a larger one would take gigabytes.
MOST_EDGES = 20_000_000


class FollowedPieces(NamedTuple):
    """The states of all paths, and whether a pair of tokens was taken to be like others of its shape."""

    states: list[TokenState]
    by_shapes: bool


def follow_pieces(
    form: Format, automaton: ByteAutomaton, tokenizer: Tokenizer, *, each_pair: bool = True
) -> FollowedPieces:
    """All paths of tokens, for tokenizers that can split a text in one way only, or for which pairs of neighbors decide the way.

    A state is a place in the automaton and the set of tokens that may come next: last tokens that allow the same ones share a
    state, so a thousand tokens of digits make a handful of states. Unless `each_pair` is asked about, tokens that differ in their digits
    only may be taken to have the same neighbors, which must be checked.
    """
    lifting = _Lifting(form, automaton, tokenizer, each_pair=each_pair)
    return FollowedPieces(lifting.states(), lifting.by_shapes)


class _Lifting:
    def __init__(
        self, form: Format, automaton: ByteAutomaton, tokenizer: Tokenizer, *, each_pair: bool
    ) -> None:
        self._form, self._automaton = form, automaton
        self._neighbors: Neighbors | None = None
        if isinstance(tokenizer, SubwordTokenizer):
            self._neighbors = Neighbors(tokenizer, _characters(form), each_pair=each_pair)
            tables = [self._neighbors.pieces(fresh=fresh) for fresh in (False, True)]
        else:
            pieces = [tokenizer.pieces(first=first) for first in (False, True)]
            tables = [
                {token: piece for token, piece in enumerate(table) if piece is not None} for table in pieces
            ]
        # Most of a large vocabulary has bytes that no member has.
        alphabet = {byte for edges in automaton.edges for byte, _ in edges}
        self._tries = [_trie(table, alphabet) for table in tables]
        self._marks = [token for token, piece in tables[True].items() if piece == b""]
        self._fitting: dict[tuple[int, bool], list[_Fitting]] = {}
        self._shapes_at: dict[tuple[int, bool], set[bytes | None]] = {}
        # From a place and the last token, or its shape, to the number of a set of fitting tokens; and the sets.
        self._allowed_after: dict[tuple[int, bool, int | bytes], int] = {}
        self._allowed: dict[tuple[int, ...], int] = {}
        self._sets: list[tuple[int, ...]] = []

    @property
    def by_shapes(self) -> bool:
        return self._neighbors is not None and self._neighbors.shapes_decided

    def states(self) -> list[TokenState]:
        start = self._state_after(0, START, NOTHING)
        edges_of: dict[_Key, list[tuple[int, _Key, int]]] = {}
        pending, total = [start], 0
        while pending:
            state = pending.pop()
            if state in edges_of:
                continue
            for key, edges in self._edges(state).items():
                edges_of[key] = edges
                total += len(edges)
                pending.extend(following for _, following, _ in edges if not following.inside)
            if total > MOST_EDGES:
                raise ModelError(
                    f"{self._form.template!r} in the model's tokens has more than {MOST_EDGES:,} edges; "
                    "use a smaller format, or a method that does not need incremental decoding"
                )
        order = in_order(start, edges_of)
        number = {state: place for place, state in enumerate(order)}
        return [
            TokenState(
                not state.inside and state.place in self._automaton.accepting,
                [(token, number[following], before) for token, following, before in edges_of[state]],
            )
            for state in order
        ]

    def _edges(self, state: _Key) -> dict[_Key, list[tuple[int, _Key, int]]]:
        """The edges of a state, and of the states within the units that continue from it."""
        fitting = self._fitting[state.place, state.fresh]
        chosen = (
            fitting if self._neighbors is None else [fitting[place] for place in self._sets[state.allowed]]
        )
        found: dict[_Key, list[tuple[int, _Key, int]]] = {state: []}
        already: dict[_Key, int] = {state: 0}  # how many members come before those below a state
        for one in chosen:
            spelling = self._spelling_after(state, one)
            if spelling is None:
                continue
            here, after = state, self._state_after(one.target, one.token, spelling)
            *inner, last = self._spelled(one)
            for token in inner:
                deeper = state._replace(inside=(*here.inside, token))
                if deeper not in found:
                    found[deeper], already[deeper] = [], one.before
                    found[here].append((token, deeper, one.before - already[here]))
                here = deeper
            found[here].append((last, after, one.before - already[here]))
        return found

    def _spelled(self, one: _Fitting) -> tuple[int, ...]:
        units = {} if self._neighbors is None else self._neighbors.units
        own = units[one.token][1] if one.token in units else (one.token,)
        return own if one.mark is None else (one.mark, *own)

    def _spelling_after(self, state: _Key, one: _Fitting) -> Spelling | None:
        if self._neighbors is None:
            return state.spelling
        fresh = state.fresh and one.mark is None
        return self._neighbors.spelling_after(state.spelling, one.token, fresh=fresh)

    def _state_after(self, place: int, before: int, spelling: Spelling) -> _Key:
        """A place in the automaton with the tokens that may follow `before`."""
        fresh = before == START if self._neighbors is None else self._neighbors.is_fresh_after(before)
        if (place, fresh) not in self._fitting:
            self._fitting[place, fresh] = self._fitting_at(place, fresh=fresh)
        if self._neighbors is None:
            return _Key(place, fresh, 0, spelling)
        key = (place, fresh, self._kind(before, place, fresh=fresh))
        if key not in self._allowed_after:
            allowed = tuple(
                number
                for number, one in enumerate(self._fitting[place, fresh])
                if self._neighbors.allows(before if one.mark is None else one.mark, one.token)
            )
            if allowed not in self._allowed:
                self._allowed[allowed] = len(self._sets)
                self._sets.append(allowed)
            self._allowed_after[key] = self._allowed[allowed]
        return _Key(place, fresh, self._allowed_after[key], spelling)

    def _kind(self, before: int, place: int, *, fresh: bool) -> int | bytes:
        """What decides which tokens may follow one at a place: its shape, or the token itself."""
        shape = None if fresh or self._neighbors is None else self._neighbors.shape(before)
        if shape is None or self._neighbors is None:
            return before
        if (place, fresh) not in self._shapes_at:
            tokens = self._fitting[place, fresh]
            self._shapes_at[place, fresh] = {self._neighbors.shape(one.token) for one in tokens}
        alike = self._neighbors.is_like_its_shape(before, self._shapes_at[place, fresh])
        return shape if alike else before

    def _fitting_at(self, place: int, *, fresh: bool) -> list[_Fitting]:
        found: list[_Fitting] = []
        _collect(self._automaton, self._tries[fresh], place, 0, found)
        if fresh and self._marks and self._neighbors is not None:
            # A mark comes before tokens that do not include it; added tokens are matched before there are marks.
            further: list[_Fitting] = []
            _collect(self._automaton, self._tries[False], place, 0, further)
            marked = [one for one in further if one.token not in self._neighbors.added]
            found += [one._replace(mark=mark) for mark in self._marks for one in marked]
        return found


def _characters(form: Format) -> set[str]:
    automaton = form.automaton
    return {character for state in range(automaton.state_count) for character, _ in automaton.edges(state)}


def _collect(automaton: ByteAutomaton, pieces: _Trie, place: int, before: int, found: list[_Fitting]) -> None:
    """Walk the automaton and the trie together; each token that fits is an edge, shorter ones first."""
    before += place in automaton.accepting
    for byte, following in automaton.edges[place]:
        deeper = pieces.get(byte)
        if deeper is not None:
            found.extend(_Fitting(token, following, before) for token in deeper.get(_TOKEN, ()))
            _collect(automaton, deeper, following, before, found)
        before += automaton.counts[following]


def _trie(pieces: dict[int, bytes], alphabet: set[int]) -> _Trie:
    root: _Trie = {}
    for token, piece in pieces.items():
        if piece and alphabet.issuperset(piece):
            node = root
            for byte in piece:
                node = node.setdefault(byte, {})
            node.setdefault(_TOKEN, []).append(token)
    return root


MEMBERS_TRIED = 2_000
EDGES_TRIED = 10_000


def wrong_path(
    form: Format, tokenizer: Tokenizer, states: list[TokenState], counts: list[int], before: int
) -> str | None:
    """A member whose path is not its canonical tokenization, or None where none was found.

    `before` is how many members of the format come before those that have paths.
    """
    generator = integers(0, "paths", form.template)
    for _ in range(MEMBERS_TRIED):
        text = form.at(before + generator.randrange(counts[0]))
        if not _has_path(states, tokenizer.encode(text)):
            return text
    edges = [(state, edge) for state in range(len(states)) for edge in range(len(states[state].edges))]
    arriving = grouped((states[state].edges[edge][1], (state, edge)) for state, edge in edges)
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
