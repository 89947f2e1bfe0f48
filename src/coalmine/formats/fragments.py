"""Finite sets of strings that are joined, united and filtered, always stored as one minimal automaton.

A fragment is a finite set of strings, named by a number. Fragments are stored as the states of one shared acyclic automaton in
which no two states represent the same set: a state is looked up by its shape (whether it accepts, and where each character leads)
before it is made. So two fragments are the same set exactly if their numbers are equal, everything is minimal from the start, and
a state always has a higher number than the states it leads to.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import pairwise
from typing import TypeVar

from coalmine.formats.automaton import Automaton

EMPTY = 0  # the set of no strings
BLANK = 1  # the set of the empty string alone

MAX_STATES = 1_000_000
# Work can grow without new states, as in nested repetitions of the same thing; a million steps take a few seconds.
MAX_STEPS = 2_000_000

_Key = TypeVar("_Key", bound=Hashable)
# A known fragment, or whether it accepts and which key each character leads to.
_Shape = int | tuple[bool, dict[str, _Key]]


class TooLargeError(Exception):
    """A fragment needs more states or steps than are allowed; compiling a format turns this into a FormatError for its hole."""


class Fragments:
    """A store of fragments; all numbers given and returned belong to this store.

    >>> store = Fragments()
    >>> ab = store.strings(["a", "b"])
    >>> list(store.automaton(store.joined(ab, ab)))
    ['aa', 'ab', 'ba', 'bb']
    >>> store.union([store.literal("a"), store.literal("b")]) == ab
    True
    """

    def __init__(self) -> None:
        self._nodes: list[tuple[bool, str, tuple[int, ...]]] = []
        self._numbers: dict[tuple[bool, str, tuple[int, ...]], int] = {}
        self._unions: dict[tuple[int, ...], int] = {}
        self._steps = 0
        self._number(accepts=False, characters="", targets=())
        self._number(accepts=True, characters="", targets=())

    def literal(self, text: str, then: int = BLANK) -> int:
        """`text`, followed by each string of `then`."""
        for character in reversed(text):
            then = self.any_of(character, then)
        return then

    def any_of(self, characters: Iterable[str], then: int = BLANK) -> int:
        """One of the characters, followed by each string of `then`."""
        return self.branching(dict.fromkeys(characters, then))

    def branching(self, targets: dict[str, int], *, accepts: bool = False) -> int:
        """Each character followed by the strings of its fragment, and the empty string if `accepts`."""
        # An edge to the empty set leads nowhere, so it is left out.
        characters = "".join(sorted(c for c, target in targets.items() if target != EMPTY))
        return self._number(accepts, characters, tuple([targets[c] for c in characters]))

    def strings(self, members: Iterable[str]) -> int:
        """Exactly these strings; in time proportional to their total length, after sorting."""
        ordered = sorted(set(members))
        if not ordered:
            return EMPTY
        # The states along the last string, from the start: whether each accepts, and its finished edges.
        path: list[tuple[bool, dict[str, int]]] = [(ordered[0] == "", {})]

        def close(last: str, depth: int) -> None:
            while len(path) > depth + 1:
                accepts, targets = path.pop()
                path[-1][1][last[len(path) - 1]] = self.branching(targets, accepts=accepts)

        for before, member in pairwise(["", *ordered]):
            shared = _shared_length(before, member)
            close(before, shared)
            path.extend((depth == len(member), {}) for depth in range(shared + 1, len(member) + 1))
        close(ordered[-1], 0)
        return self.branching(path[0][1], accepts=path[0][0])

    def union(self, fragments: Iterable[int]) -> int:
        """The strings that are in any of the fragments."""

        def expand(parts: tuple[int, ...]) -> _Shape[tuple[int, ...]]:
            if len(parts) == 1:
                return parts[0]
            self._step(len(parts))
            leads: dict[str, set[int]] = {}
            for part in parts:
                for character, target in zip(*self._nodes[part][1:], strict=True):
                    leads.setdefault(character, set()).add(target)
            accepts = any(self._nodes[part][0] for part in parts)
            return accepts, {character: tuple(sorted(targets)) for character, targets in leads.items()}

        wanted = tuple(sorted(set(fragments) - {EMPTY}))
        return self._settle(wanted, expand, self._unions) if wanted else EMPTY

    def joined(self, first: int, then: int) -> int:
        """Each string of `first` followed by each string of `then`."""
        if first == BLANK or then == EMPTY:
            return then
        if first == EMPTY or then == BLANK:
            return first
        moved = {EMPTY: EMPTY, BLANK: then}
        for number in self._reachable(
            first
        ):  # ascending, so the states that a state leads to are moved before it
            accepts, characters, targets = self._nodes[number]
            if number not in moved:
                longer = self._number(
                    accepts=False, characters=characters, targets=tuple([moved[t] for t in targets])
                )
                moved[number] = self.union([longer, then]) if accepts else longer
        return moved[first]

    def beginning_with(self, fragment: int, beginnings: int) -> int:
        """The strings of `fragment` that begin with some string of `beginnings`."""

        def expand(pair: tuple[int, int]) -> _Shape[tuple[int, int]]:
            rest, begin = pair
            if EMPTY in pair:
                return EMPTY
            if self._nodes[begin][0]:
                return rest
            return False, {
                character: (target, self._next(begin, character)) for character, target in self._leads(rest)
            }

        return self._settle((fragment, beginnings), expand, {})

    def not_beginning_with(self, fragment: int, beginnings: int) -> int:
        """The strings of `fragment` that do not begin with any string of `beginnings`."""

        def expand(pair: tuple[int, int]) -> _Shape[tuple[int, int]]:
            rest, begin = pair
            accepts, _, _ = self._nodes[rest]
            if self._nodes[begin][0]:
                return EMPTY
            if begin == EMPTY:
                return rest
            return accepts, {
                character: (target, self._next(begin, character)) for character, target in self._leads(rest)
            }

        return self._settle((fragment, beginnings), expand, {})

    def automaton(self, fragment: int) -> Automaton:
        """The fragment as a separate automaton, its states numbered from the start."""
        # The states that a state leads to have lower numbers here, so descending order is topological.
        order = self._reachable(fragment)[::-1]
        place = {number: state for state, number in enumerate(order)}
        nodes = [self._nodes[number] for number in order]
        return Automaton(
            accepting=frozenset(state for state, (accepts, _, _) in enumerate(nodes) if accepts),
            characters=[characters for _, characters, _ in nodes],
            targets=[tuple([place[target] for target in targets]) for _, _, targets in nodes],
        )

    def _number(self, accepts: bool, characters: str, targets: tuple[int, ...]) -> int:
        self._step()
        node = (accepts, characters, targets)
        number = self._numbers.get(node)
        if number is None:
            number = len(self._nodes)
            if number >= MAX_STATES:
                raise TooLargeError
            self._nodes.append(node)
            self._numbers[node] = number
        return number

    def _step(self, steps: int = 1) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise TooLargeError

    def _leads(self, number: int) -> Iterable[tuple[str, int]]:
        _, characters, targets = self._nodes[number]
        return zip(characters, targets, strict=True)

    def _next(self, number: int, character: str) -> int:
        _, characters, targets = self._nodes[number]
        place = characters.find(character)
        return EMPTY if place < 0 else targets[place]

    def _reachable(self, fragment: int) -> list[int]:
        seen = {fragment}
        stack = [fragment]
        while stack:
            new = set(self._nodes[stack.pop()][2]) - seen
            seen |= new
            stack.extend(new)
        return sorted(seen)

    def _settle(self, wanted: _Key, expand: Callable[[_Key], _Shape[_Key]], settled: dict[_Key, int]) -> int:
        """Compute `wanted` and everything it leads to, deepest first; a loop, because members may be longer than the call stack."""
        shapes: dict[_Key, tuple[bool, dict[str, _Key]]] = {}
        stack = [wanted]
        while stack:
            key = stack[-1]
            if key in settled:
                stack.pop()
                continue
            if key not in shapes:
                self._step()
                shape = expand(key)
                if isinstance(shape, int):
                    settled[key] = shape
                    continue
                shapes[key] = shape
                stack.extend({target for target in shape[1].values() if target not in settled})
            else:
                accepts, leads = shapes.pop(key)
                settled[key] = self.branching(
                    {c: settled[target] for c, target in leads.items()}, accepts=accepts
                )
        return settled[wanted]


def _shared_length(first: str, second: str) -> int:
    """The length of the common prefix of two strings."""
    for place, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return place
    return min(len(first), len(second))
