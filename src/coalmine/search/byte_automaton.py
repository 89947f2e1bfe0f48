"""A format's automaton over the bytes of UTF-8, in which byte-level tokens can be followed."""

from __future__ import annotations

from coalmine.formats.automaton import Automaton


class ByteAutomaton:
    r"""The same members as an `Automaton`, a byte an edge; a character of several bytes passes through states of its own.

    States are numbered so that every edge leads to a higher number, and 0 is the start.

    >>> from coalmine import Format
    >>> automaton = ByteAutomaton(Format("{choice:é|e|è}").automaton)
    >>> [(bytes([byte]), state) for byte, state in automaton.edges[0]]
    [(b'e', 2), (b'\xc3', 1)]
    """

    def __init__(self, automaton: Automaton) -> None:
        self.edges: list[list[tuple[int, int]]] = []
        self.accepting: set[int] = set()
        number: dict[int, int] = {}  # of a state of the automaton, here
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
        # For each state the number of members from there on.
        self.counts = [0] * len(self.edges)
        for state in range(len(self.edges) - 1, -1, -1):
            self.counts[state] = (state in self.accepting) + sum(
                self.counts[target] for _, target in self.edges[state]
            )
