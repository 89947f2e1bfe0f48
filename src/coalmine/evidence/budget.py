"""One error budget per report: every test that could accuse a model, judged together.

Each rule first names its tests, with p-values that are valid if the model remembers nothing. All of them share `LEVEL` by Holm's
procedure, so that the probability of any finding of severity low or worse about such a model is at most 2.5%, however many canaries,
formats, populations and audits the report has. The rules then phrase what was shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from coalmine.statistics.multiple_tests import holm

# The probability, at most, of any finding of severity low or worse in a report about a model that remembers nothing. A gate may err
# as often, so that such a model is accused by either in at most 5% of runs.
LEVEL = 0.025
Kind = Literal["canary", "group", "control", "membership", "claim", "recitation"]
# How the kinds of statements share the error, by weights; those that a report does not have leave theirs to the others. Single
# canaries get the most, because there are many of them and one that is memorized must not be missed.
WEIGHTS: dict[Kind, float] = {
    "canary": 4.0,
    "group": 1.0,
    "control": 1.0,
    "membership": 1.0,
    "claim": 1.0,
    "recitation": 1.0,
}
Key = tuple[str, ...]


class Suspicion(NamedTuple):
    """A statement that would accuse the model, or its measurement, and how likely its evidence is without memorization."""

    kind: Kind
    # What it is about, different for every test of a kind.
    key: Key
    p_value: float


class Decisions(NamedTuple):
    """Which statements are shown within the budget of the report."""

    tests: Mapping[tuple[Kind, Key], bool]
    # The p-value that each test needed, or would have needed.
    levels: Mapping[tuple[Kind, Key], float]

    def shown(self, kind: Kind, *key: str) -> bool:
        """Whether a statement is shown; False for one that was not tested."""
        return self.tests.get((kind, key), False)

    def shown_of_population(self, format_id: str, copies: int) -> bool:
        """Whether membership or epsilon is shown for the canaries of a format that were planted so often."""
        return any(
            shown and kind == "membership" and key[1:3] == (format_id, str(copies))
            for (kind, key), shown in self.tests.items()
        )

    def level(self, kind: Kind) -> float:
        """The p-value that a statement of this kind needs, at the least share that any of them had; 0 where there is none."""
        return min((level for (one, _), level in self.levels.items() if one == kind), default=0.0)


def decide(suspicions: Iterable[Suspicion], level: float = LEVEL) -> Decisions:
    """Judge all tests of a report together.

    >>> decide([Suspicion("canary", ("a",), 1e-6), Suspicion("canary", ("b",), 0.3)]).shown("canary", "a")
    True
    """
    # Of two results about one thing, such as two searches for one canary, the smaller p-value counts for both.
    given: dict[tuple[Kind, Key], list[float]] = {}
    for one in suspicions:
        given.setdefault((one.kind, one.key), []).append(one.p_value)
    names = list(given)
    many = Counter(kind for kind, _ in names)
    p_values = [min(1.0, len(given[name]) * min(given[name])) for name in names]
    found = holm(p_values, level, [WEIGHTS[kind] / many[kind] for kind, _ in names])
    return Decisions(dict(zip(names, found.shown, strict=True)), dict(zip(names, found.levels, strict=True)))
