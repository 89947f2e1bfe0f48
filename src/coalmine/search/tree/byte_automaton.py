"""A format's automaton over UTF-8 bytes instead of characters, for tokenizers whose tokens are byte strings."""

from __future__ import annotations

from coalmine.formats.automaton import Automaton


class ByteAutomaton:
    r"""The same members as an `Automaton`, with one byte per edge; a character of several bytes passes through extra states.

    States are numbered so that every edge leads to a higher number, and 0 is the start.

    Attributes:
        edges: for each state, the bytes that may come next, in order, each with the state it leads to.
        accepting: the states in which a member may end.
        counts: for each state, the number of members that continue from there.
        before: how many members of the format come before the first one here.

    >>> from coalmine import Format
    >>> automaton = ByteAutomaton(Format("{choice:é|e|è}").automaton)
    >>> [(bytes([byte]), state) for byte, state in automaton.edges[0]]
    [(b'e', 2), (b'\xc3', 1)]
    """

    def __init__(self, automaton: Automaton, *, given: str = "") -> None:
        """`given` keeps only the members that begin with it, which may be none."""
        self.edges: list[list[tuple[int, int]]] = []
        self.accepting: set[int] = set()
        self.before = 0
        number: dict[int, int] = {}  # from a state of the automaton to the state here
        waiting: list[tuple[int, int, int]] = []  # edges into states that have no number yet
        for state in range(automaton.state_count):
            number[state] = len(self.edges)
            if state in automaton.accepting:
                self.accepting.add(number[state])
            self.edges.append([])
            inside: dict[bytes, int] = {b"": number[state]}
            for character, target in automaton.edges(state):
                encoded = character.encode("utf-8", "surrogatepass")
                for length in range(1, len(encoded)):
                    if encoded[:length] not in inside:
                        inside[encoded[:length]] = len(self.edges)
                        self.edges[inside[encoded[: length - 1]]].append(
                            (encoded[length - 1], len(self.edges))
                        )
                        self.edges.append([])
                waiting.append((inside[encoded[:-1]], encoded[-1], target))
        for source, byte, target in waiting:
            self.edges[source].append((byte, number[target]))
        for edges in self.edges:
            edges.sort()
        self.counts = self._counted()
        if given:
            self._restrict(given.encode("utf-8", "surrogatepass"))

    def _counted(self) -> list[int]:
        counts = [0] * len(self.edges)
        for state in reversed(range(len(self.edges))):
            counts[state] = (state in self.accepting) + sum(counts[target] for _, target in self.edges[state])
        return counts

    def _restrict(self, given: bytes) -> None:
        state = 0
        for byte in given:
            self.before += state in self.accepting
            following = dict(self.edges[state])
            self.before += sum(self.counts[target] for other, target in following.items() if other < byte)
            if byte not in following:
                self.edges, self.accepting, self.counts = [[]], set(), [0]
                return
            state = following[byte]
        # States that can be reached from a state have higher numbers; a chain of the given bytes replaces all before it.
        shift = len(given) - state
        chain = [[(byte, place + 1)] for place, byte in enumerate(given)]
        rest = [[(byte, target + shift) for byte, target in edges] for edges in self.edges[state:]]
        self.edges = [*chain, *rest]
        self.accepting = {place + shift for place in self.accepting if place >= state}
        self.counts = [self.counts[state]] * len(given) + self.counts[state:]
