"""Finding the members of an automaton in running text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from coalmine.formats.automaton import Automaton

# A shorter prefix is so common in text that checking the characters after it in the same pass is faster.
SHORTEST_PREFIX = 3
# Positions that are checked before the automaton is used; more of them rarely exclude more.
MOST_PLACES = 24


class Finder:
    """Finds members of an automaton in text: leftmost, then longest, none overlapping another, none of them empty."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._next_candidate = _candidates(automaton)

    def __reduce__(self) -> tuple[type[Finder], tuple[Automaton]]:
        # It is made anew when it is sent to another process: functions made at run time cannot be.
        return Finder, (self._automaton,)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """The start and end of each, in order."""
        longest_match, next_candidate = self._automaton.longest_match, self._next_candidate
        start = next_candidate(text, 0)
        while start >= 0:
            end = longest_match(text, start)
            if end is None or end == start:
                start = next_candidate(text, start + 1)
            else:
                yield start, end
                start = next_candidate(text, end)


def _candidates(automaton: Automaton) -> Callable[[str, int], int]:
    """A function that gives the first position, at or after another, where a member may begin, or -1; it runs at the speed of C."""
    prefix = automaton.prefix
    if len(prefix) >= SHORTEST_PREFIX:
        return lambda text, position: text.find(prefix, position)
    shortest, _ = automaton.lengths
    layers = automaton.layers(min(max(shortest, 1), MOST_PLACES))
    search = re.compile("".join(f"[{re.escape(characters)}]" for characters in layers)).search

    def first(text: str, position: int) -> int:
        found = search(text, position)
        return found.start() if found else -1

    return first
