"""Symmetric random moves between the members of a format: each is as likely as its reverse, so a random walk is uniform in the long run."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from coalmine.errors import InputError
from coalmine.formats.format import Format

# A part of a format with more fillings than this is also changed character by character; all fillings of a smaller one are neighbors.
WIDE = 64
# The sizes of moves, in parts or in characters, and how often each is made. Most change one: such moves change the score least,
# and are still accepted where few members are left.
SIZES, _CUMULATIVE_SHARES = (1, 2, 3), (0.8, 0.95)
# The share of moves in a wide part that redraw all of it, or its end; the others change a few characters.
WHOLE_SHARE = 0.2


class _Part(NamedTuple):
    """The part between two states that every member passes, with no such state between them.

    `start` is where it begins in every member, or None where that differs; `ways` is the number of its fillings, and `last` is None
    for the end of the format.
    """

    first: int
    last: int | None
    start: int | None
    longest: int
    ways: int


class Refilling:
    """Symmetric moves over the members of a format: one to three parts are drawn again, and the text that all members share stays.

    Every state that all members pass divides the format into parts, such as the single digits of `{digits:9}` or the words of
    `{word:3}`. A move chooses parts without looking at the member and draws uniformly among their other fillings. A part with many
    fillings, such as a card number with its check digit, is also changed by a few characters that lead to the same state, or from
    one character to its end. The choice does not depend on anything that the move changes, so it is as likely as its reverse.

    >>> import random
    >>> moves = Refilling(Format("my pin is {digits:4}"))
    >>> other = moves.propose("my pin is 0042", random.Random(0))
    >>> other in moves.format, other != "my pin is 0042"
    (True, True)
    >>> len(moves.neighbors("my pin is 0042"))
    36
    """

    def __init__(self, form: Format) -> None:
        self.format, self._automaton = form, form.automaton
        self._parts = self._free_parts()
        # In proportion to their content, so that each digit of a card number is moved as often as any other.
        self._cumulative = list(accumulate(max(1.0, math.log10(part.ways)) for part in self._parts))
        self._fillings: dict[int, list[str]] = {}
        self._sizes: dict[tuple[int, int, int], int] = {}

    def propose(self, text: str, generator: random.Random) -> str:
        """Another member, or the same one if the chosen move leads nowhere else."""
        place = bisect_right(self._cumulative, generator.random() * self._cumulative[-1])
        size = SIZES[bisect_right(_CUMULATIVE_SHARES, generator.random())]
        part = self._parts[place]
        if size == 1 and part.ways <= WIDE:
            begin = self._begin(text, part)
            end = begin + 1 if part.longest == 1 else self._end(text, part)
            return text[:begin] + self._other(place, text[begin:end], generator) + text[end:]
        if part.ways > WIDE and generator.random() >= WHOLE_SHARE:
            return self._within(text, part, size, generator)
        # A size that would reach beyond the last part is cut there, and so it is for the reverse move.
        last = self._parts[min(place + size, len(self._parts)) - 1]
        begin, end = self._begin(text, part), self._end(text, last)
        if part.ways > WIDE and generator.random() < 0.5:
            offset = generator.randrange(part.longest)
            begin, state = begin + offset, self._automaton.walk(part.first, text[begin : begin + offset])
            last, end = part, self._end(text, part)
            if begin > end or state is None:
                return text
            return text[:begin] + self._drawn(state, last.last, text[begin:end], generator) + text[end:]
        return text[:begin] + self._drawn(part.first, last.last, text[begin:end], generator) + text[end:]

    def neighbors(self, text: str) -> list[str]:
        """The members that differ in one part with few fillings, or in one or two characters of a wide part."""
        return list(dict.fromkeys(self._neighbors(text)))

    def _neighbors(self, text: str) -> Iterator[str]:
        for part in self._parts:
            begin, end = self._begin(text, part), self._end(text, part)
            if part.ways <= WIDE:
                fillings = (self._filling(part.first, part.last, way) for way in range(part.ways))
                yield from (
                    text[:begin] + other + text[end:] for other in fillings if other != text[begin:end]
                )
                continue
            states = self._states(part.first, text[begin:end])
            for size in (1, 2):
                for at in range(end - begin - size + 1):
                    old = text[begin + at : begin + at + size]
                    ways = self._ways(states[at], states[at + size], size)
                    for way in range(ways if ways <= 2 * WIDE else 0):
                        new = self._characters(states[at], states[at + size], size, way)
                        if new != old:
                            yield text[: begin + at] + new + text[begin + at + size :]

    def _other(self, place: int, old: str, generator: random.Random) -> str:
        """Another filling of a part with few fillings."""
        fillings = self._fillings.get(place)
        if fillings is None:
            part = self._parts[place]
            fillings = [self._filling(part.first, part.last, way) for way in range(part.ways)]
            self._fillings[place] = fillings
        while (new := fillings[int(generator.random() * len(fillings))]) == old:
            pass
        return new

    def _within(self, text: str, part: _Part, size: int, generator: random.Random) -> str:
        """Draw a few characters of one part again, such that the same state follows them."""
        begin, end = self._begin(text, part), self._end(text, part)
        at = begin + generator.randrange(part.longest)
        if at + size > end:
            return text
        state = self._automaton.walk(part.first, text[begin:at])
        after = None if state is None else self._automaton.walk(state, text[at : at + size])
        if state is None or after is None or (ways := self._ways(state, after, size)) < 2:
            return text
        old = text[at : at + size]
        while (new := self._characters(state, after, size, generator.randrange(ways))) == old:
            pass
        return text[:at] + new + text[at + size :]

    def _drawn(self, state: int, last: int | None, old: str, generator: random.Random) -> str:
        """A way from one state to a later one that all members pass, other than `old`."""
        ways = self._automaton.counts[state] // (1 if last is None else self._automaton.counts[last])
        if ways < 2:
            return old
        while (new := self._filling(state, last, generator.randrange(ways))) == old:
            pass
        return new

    def _filling(self, state: int, last: int | None, way: int) -> str:
        """The way with this number from a state to a later one that all members pass."""
        automaton = self._automaton
        after = 1 if last is None else automaton.counts[last]
        written: list[str] = []
        while state != last:
            if state in automaton.accepting:
                if way == 0:
                    break
                way -= 1
            for character, target in automaton.edges(state):
                ways = automaton.counts[target] // after
                if way < ways:
                    written.append(character)
                    state = target
                    break
                way -= ways
        return "".join(written)

    def _ways(self, state: int, after: int, size: int) -> int:
        """How many strings of `size` characters lead from one state to another."""
        if size == 0:
            return int(state == after)
        key = (state, after, size)
        known = self._sizes.get(key)
        if known is None:
            ways = (self._ways(target, after, size - 1) for _, target in self._automaton.edges(state))
            known = self._sizes[key] = sum(ways)
        return known

    def _characters(self, state: int, after: int, size: int, way: int) -> str:
        written: list[str] = []
        for left in reversed(range(size)):
            for character, target in self._automaton.edges(state):
                ways = self._ways(target, after, left)
                if way < ways:
                    written.append(character)
                    state = target
                    break
                way -= ways
        return "".join(written)

    def _states(self, state: int, text: str) -> list[int]:
        states = [state]
        for character in text:
            following = self._automaton.next(states[-1], character)
            if following is None:
                raise InputError(
                    "the text is not a member of the format, so it cannot be refilled; check it with `in` first"
                )
            states.append(following)
        return states

    def _begin(self, text: str, part: _Part) -> int:
        return part.start if part.start is not None else self._reached(text, part.first)

    def _end(self, text: str, part: _Part) -> int:
        if part.last is None:
            return len(text)
        if part.start is not None and part.longest == 1:
            return part.start + 1
        return self._reached(text, part.last)

    def _reached(self, text: str, wanted: int) -> int:
        """The position at which a member reaches a state."""
        state: int | None = self._automaton.start
        for position, character in enumerate(text):
            if state == wanted or state is None:
                return position
            state = self._automaton.next(state, character)
        return len(text)

    def _free_parts(self) -> list[_Part]:
        """The parts that have at least two fillings, in order."""
        automaton = self._automaton
        count = automaton.state_count
        into, shortest, longest = [0] * count, [count] * count, [0] * count
        into[0], shortest[0] = 1, 0
        cuts: list[int] = []
        for state in range(count):
            if into[state] * automaton.counts[state] == automaton.counts[0]:
                cuts.append(state)
            for _, target in automaton.edges(state):
                into[target] += into[state]
                shortest[target] = min(shortest[target], shortest[state] + 1)
                longest[target] = max(longest[target], longest[state] + 1)
        parts = []
        for first, last in zip(cuts, [*cuts[1:], None], strict=True):
            ways = automaton.counts[first] // (1 if last is None else automaton.counts[last])
            if ways > 1:
                start = shortest[first] if shortest[first] == longest[first] else None
                end = self.format.max_length if last is None else longest[last]
                longest_part = end - shortest[first]
                parts.append(_Part(first, last, start, longest_part, ways))
        return parts
