"""Acyclic automata over characters: finite sets of strings with exact counts, members by index, and the characters that may come next."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from coalmine.errors import InputError

# The counts of all states together, in bits; 800 million bits are 100 MB.
MAX_COUNT_BITS = 800_000_000


class TooManyMembersError(Exception):
    """The counts would take too much memory; compiling a format turns this into a FormatError."""


class Automaton:
    """A finite set of strings as a minimal deterministic automaton; its members are ordered by code point, prefixes first.

    States are numbered from 0, which is the start, so that every edge leads to a higher number, and every state leads to
    an accepting one. An automaton is made by `Format` and is not changed afterwards.

    Attributes:
        start: the state before the first character, always 0.
        accepting: the states in which a string may end.
        counts: for each state, the exact number of ways to continue to the end, including to stop in an accepting state.

    >>> from coalmine.formats.format import Format
    >>> automaton = Format("{choice:cat|car|cart}").automaton
    >>> [automaton.at(i) for i in range(automaton.counts[automaton.start])]
    ['car', 'cart', 'cat']
    >>> after_ca = automaton.walk(automaton.start, "ca")
    >>> [character for character, state in automaton.edges(after_ca)]
    ['r', 't']
    """

    start = 0

    def __init__(
        self, accepting: frozenset[int], characters: Sequence[str], targets: Sequence[tuple[int, ...]]
    ) -> None:
        self.accepting = accepting
        # For each state, the characters that may come next, in order, and where each leads. Two flat sequences take a fraction
        # of the memory of one dictionary per state, and `str.find` is as fast as a lookup.
        self._characters = characters
        self._targets = targets
        self.counts = self._counted()
        self._offsets: list[tuple[int, ...] | None] = [None] * len(characters)

    @property
    def state_count(self) -> int:
        """How many states there are; they are numbered from 0."""
        return len(self._characters)

    def edges(self, state: int) -> tuple[tuple[str, int], ...]:
        """The characters that may come next, each with the state it leads to, ordered by character."""
        return tuple(zip(self._characters[state], self._targets[state], strict=True))

    def next(self, state: int, character: str) -> int | None:
        """The state after one more character, or None if no member continues with it."""
        place = self._characters[state].find(character)
        return None if place < 0 else self._targets[state][place]

    def walk(self, state: int, text: str) -> int | None:
        """The state after `text`, or None if no member continues with it."""
        all_characters, all_targets = self._characters, self._targets
        for character in text:
            place = all_characters[state].find(character)
            if place < 0:
                return None
            state = all_targets[state][place]
        return state

    def same_members(self, other: Automaton) -> bool:
        """Whether another automaton has the same members; both are minimal, so their states then match one to one."""
        if self.counts[0] != other.counts[0] or self.state_count != other.state_count:
            return False
        paired, waiting = {0: 0}, [0]
        while waiting:
            state = waiting.pop()
            match = paired[state]
            if (state in self.accepting) != (match in other.accepting) or (
                self._characters[state] != other._characters[match]
            ):
                return False
            for target, matching in zip(self._targets[state], other._targets[match], strict=True):
                if target not in paired:
                    paired[target] = matching
                    waiting.append(target)
                elif paired[target] != matching:
                    return False
        return True

    def longest_match(self, text: str, position: int, state: int = 0) -> int | None:
        """The end in `text` of the longest match from `state` to an accepting state, starting at `position`; None without one."""
        all_characters, all_targets, accepting = self._characters, self._targets, self.accepting
        end = position if state in accepting else None
        for place_in_text in range(position, len(text)):
            place = all_characters[state].find(text[place_in_text])
            if place < 0:
                break
            state = all_targets[state][place]
            if state in accepting:
                end = place_in_text + 1
        return end

    def at(self, index: int) -> str:
        """The member with this index in the order, counted from 0."""
        if not 0 <= index < self.counts[0]:
            raise InputError(
                f"the index is outside the space: it must be at least 0 and less than the size, {in_words(self.counts[0])}, "
                f"got {in_words(index)}; draw indices with sample_indices"
            )
        index = operator.index(index)  # an integer of NumPy would overflow
        state = 0
        written: list[str] = []
        while True:
            # The string that ends at an accepting state comes before all that continue from it.
            if state in self.accepting and index == 0:
                return "".join(written)
            offsets = self._offsets_of(state)
            place = bisect_right(offsets, index) - 1
            index -= offsets[place]
            written.append(self._characters[state][place])
            state = self._targets[state][place]

    def index(self, text: str) -> int:
        """The index of a member in the order, counted from 0; the inverse of `at`."""
        state, index = 0, 0
        for position, character in enumerate(text):
            place = self._characters[state].find(character)
            if place < 0:
                raise InputError(
                    f"the text is not in the space: no member continues with character {position + 1} of its {len(text)}; "
                    "check it with `in` first"
                )
            index += self._offsets_of(state)[place]
            state = self._targets[state][place]
        if state not in self.accepting:
            raise InputError(
                f"the text is not in the space: it is the beginning of a member, but ends after {len(text)} characters; "
                "check it with `in` first"
            )
        return index

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and self.walk(0, text) in self.accepting

    def __iter__(self) -> Iterator[str]:
        # Pending continuations, the next one last; each is the length to cut back to, a character, and its state.
        pending = [(0, "", 0)]
        written: list[str] = []
        while pending:
            length, character, state = pending.pop()
            del written[length:]
            if character:
                written.append(character)
            if state in self.accepting:
                yield "".join(written)
            ways = zip(reversed(self._characters[state]), reversed(self._targets[state]), strict=True)
            pending.extend((len(written), following, target) for following, target in ways)

    @property
    def prefix(self) -> str:
        """The longest string that every member begins with."""
        state, written = 0, []
        while state not in self.accepting and len(self._characters[state]) == 1:
            written.append(self._characters[state])
            state = self._targets[state][0]
        return "".join(written)

    @property
    def lengths(self) -> tuple[int, int]:
        """The length of the shortest and of the longest member, in characters."""
        shortest, longest = [0] * self.state_count, [0] * self.state_count
        for state in reversed(range(self.state_count)):
            targets = self._targets[state]
            longest[state] = max((longest[target] + 1 for target in targets), default=0)
            if state not in self.accepting:
                shortest[state] = min(shortest[target] + 1 for target in targets)
        return shortest[0], longest[0]

    def layers(self, depth: int) -> list[str]:
        """For each of the first `depth` positions, the characters that some member has there, in order."""
        states, layers = {0}, []
        for _ in range(depth):
            layers.append("".join(sorted(set().union(*(self._characters[state] for state in states)))))
            states = set().union(*(self._targets[state] for state in states))
        return layers

    def _counted(self) -> tuple[int, ...]:
        counts = [0] * self.state_count
        bits = 0
        for state in reversed(range(self.state_count)):
            targets = self._targets[state]
            if len(targets) == 1 and state not in self.accepting:
                counts[state] = counts[targets[0]]  # the same object, so a long literal costs nothing
                continue
            counts[state] = sum([counts[target] for target in targets]) + (state in self.accepting)
            bits += counts[state].bit_length()
            if bits > MAX_COUNT_BITS:
                raise TooManyMembersError
        return tuple(counts)

    def _offsets_of(self, state: int) -> tuple[int, ...]:
        """For each edge, how many of the state's strings come before the first that takes it."""
        known = self._offsets[state]
        if known is None:
            total, offsets = int(state in self.accepting), []
            for target in self._targets[state]:
                offsets.append(total)
                total += self.counts[target]
            known = self._offsets[state] = tuple(offsets)
        return known


def in_words(number: int) -> str:
    """A whole number for a message: its digits, or its magnitude if there are too many.

    >>> in_words(1000), in_words(-(10**100))
    ('1000', 'about -2^332')
    """
    return (
        str(number)
        if number.bit_length() <= 200
        else f"about {'-' * (number < 0)}2^{number.bit_length() - 1}"
    )
