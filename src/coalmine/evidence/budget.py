"""One error budget per report: every test that could accuse a model, judged together.

Each audit first names its tests, with p-values that are valid if the model memorized nothing. All of them share `LEVEL` by Holm's
procedure, so that the probability of any finding of severity low or worse about such a model is at most 2.5%, however many canaries,
formats, populations and audits the report has. The audits then state what was shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from coalmine.grouped import grouped
from coalmine.statistics.multiple_tests import holm

# The maximum probability of any finding of severity low or worse in a report about a model that memorized nothing. A gate may err as
# often, so that such a model is accused by either in at most 5% of runs.
LEVEL = 0.025
Key = tuple[str, ...]


class Suspicion(NamedTuple):
    """A statement that would accuse the model, or its measurement, with the p-value of its evidence if nothing was memorized.

    >>> Suspicion("canary", ("f0-x4-1",), p_value=0.001).kind
    'canary'
    """

    # Tests of one kind share one part of the error budget.
    kind: str
    # What it is about, different for every test of a kind.
    key: Key
    p_value: float


class Decisions(NamedTuple):
    """Which statements are shown within the error budget of the report.

    >>> decided = decide([Suspicion("canary", ("a",), 1e-6), Suspicion("canary", ("b",), 0.3)])
    >>> decided.shown("canary", "a"), decided.shown("canary", "b"), decided.shown("canary", "c")
    (True, False, False)
    """

    tests: Mapping[tuple[str, Key], bool]
    # The p-value that each test needed, or would have needed.
    levels: Mapping[tuple[str, Key], float]

    def shown(self, kind: str, *key: str) -> bool:
        """Whether a statement is shown; False for one that was not tested."""
        return self.tests.get((kind, key), False)

    def level(self, kind: str) -> float:
        """The p-value that a statement of this kind needs, at the smallest share that any of them had; 0 if there is none."""
        return min((level for (one, _), level in self.levels.items() if one == kind), default=0.0)


def decide(
    suspicions: Iterable[Suspicion], weights: Mapping[str, float] | None = None, *, level: float = LEVEL
) -> Decisions:
    """Judge all tests of a report together.

    `weights` are the shares of the kinds of tests in the error, relative to each other: 1 for a kind that it does not name. Kinds
    without a test leave their share to the others.

    >>> decide([Suspicion("canary", ("a",), 1e-6), Suspicion("canary", ("b",), 0.3)]).shown("canary", "a")
    True
    """
    # Of two results about one thing, such as two searches for one canary, the smaller p-value counts for both.
    given = grouped(((one.kind, one.key), one.p_value) for one in suspicions)
    names = list(given)
    many = Counter(kind for kind, _ in names)
    p_values = [min(1.0, len(given[name]) * min(given[name])) for name in names]
    found = holm(p_values, level, [(weights or {}).get(kind, 1.0) / many[kind] for kind, _ in names])
    return Decisions(dict(zip(names, found.shown, strict=True)), dict(zip(names, found.levels, strict=True)))
