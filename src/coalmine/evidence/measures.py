"""`Measure`: what an audit says about one thing, and `Audit`: what its folder declares; findings and the gate are made of them.

All measures that could accuse a model share one error: each has the probability of as much without memorization, and Holm's procedure
judges them together, so that the probability that a report accuses a model that memorized nothing is at most `LEVEL`, however many
canaries, formats, populations and audits it has. A gate may err as often.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from coalmine.evidence.charts import Chart
from coalmine.evidence.run import Run
from coalmine.evidence.tables import AcrossRuns, Detail
from coalmine.records import Estimate
from coalmine.records.documents import Document
from coalmine.records.estimate import chance_text
from coalmine.statistics.multiple_tests import holm

LEVEL = 0.025
Status = Literal["found", "not_measured", "not_tested", "clear"]
Test = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One number about one thing, or a remark about the results themselves.

    Attributes:
        key: its entry of the catalog, such as "membership.auc", which rules of a policy name too.
        name: what it is about, in words.
        estimate: the number; None for a remark.
        p_value: the probability of as much without memorization; None for what accuses nobody.
        is_test: whether this probability is one of the tests of a report, or only one for rules.
        test: the kind of test and what is tested; measures of the same test share its p-value, and the kinds share the error.
        weight: the share of this kind of test in the error, where others have 1.
        about: the ids of canaries, users or models that it is about. What another measure shows of them keeps it from being clear.
        status: what the report says of it, where no test decides that.
        says: the sentence about it, without a period; by default that of the estimate.
        doubt: why it would not be good news that nothing is shown.
        but: what the first screen adds if it is found.
        if_clear: what is still possible if it is clear, in a clause.
        size: what the severity goes by; by default the upper limit of the estimate.
        n: how many canaries it rests on, where it is about several.
        copies: how often these were trained on.
        ceiling: the most that could have been shown: nothing is said about a limit above it.
        lower: the lower limit at a confidence, where it is not that of a widened interval.
        source: what it was made of, for the chance of its rule.

    >>> Measure(key="toys.broken", name="ducks", says="3 of 4 are broken", p_value=0.001).words
    'ducks: 3 of 4 are broken, which chance gives with probability 0.001'
    """

    key: str
    name: str = ""
    estimate: Estimate | None = None
    p_value: float | None = None
    is_test: bool = True
    test: Test = ()
    weight: float = 1.0
    about: tuple[str, ...] = ()
    status: Status | None = None
    says: str = ""
    doubt: str = ""
    but: str = ""
    if_clear: str = ""
    size: float | None = None
    n: int = 0
    copies: int | None = None
    ceiling: float = math.inf
    lower: Callable[[float], float] | None = None
    source: Any = None

    @property
    def is_measured(self) -> bool:
        """Whether there is a number, or a remark that needs none."""
        return self.estimate is None or self.estimate.status != "not_measured"

    @property
    def said(self) -> str:
        """What was found of it."""
        return self.says or ("" if self.estimate is None else self.estimate.statement)

    @property
    def words(self) -> str:
        """What it is about, and what was found of it."""
        found = ": ".join(filter(None, (self.name, self.said)))
        chance = "" if self.p_value is None else chance_text(self.p_value)
        return f"{found}, which chance gives with probability {chance}" if chance else found

    @property
    def high(self) -> float:
        """The upper limit of its number; infinite where nothing is known."""
        return math.inf if self.estimate is None or self.estimate.high is None else self.estimate.high

    def low_at(self, confidence: float) -> float:
        """The lower limit of its number at a confidence."""
        if self.lower is not None:
            return self.lower(confidence)
        return -math.inf if self.estimate is None else widened_low(self.estimate, confidence)

    @property
    def test_name(self) -> Test:
        """What tells its test from all others."""
        return self.test or (self.key, self.name, *self.about)


class Decisions(NamedTuple):
    """Which tests are shown within the error of the report, and the p-value that each needed or would have needed."""

    shown: frozenset[Test]
    levels: dict[Test, float]

    def shows(self, measure: Measure) -> bool:
        """Whether the test of a measure is shown; False for one that was not tested."""
        return measure.p_value is not None and measure.is_test and measure.test_name in self.shown


def decide(measures: Sequence[Measure], level: float = LEVEL) -> Decisions:
    """Judge all tests of a report together.

    Each kind of test has a share of the error in proportion to its weight, which its tests divide; kinds without a test leave theirs
    to the others. Different p-values of one test, such as those of two searches for one canary, share its error.

    >>> one, other = (Measure(key="canary", name=name, p_value=p) for name, p in (("a", 1e-6), ("b", 0.3)))
    >>> decided = decide([one, other])
    >>> decided.shows(one), decided.shows(other)
    (True, False)
    """
    given: dict[Test, set[float]] = {}
    weights: dict[Test, float] = {}
    for one in measures:
        if one.p_value is not None and one.is_test and one.status is None:
            given.setdefault(one.test_name, set()).add(one.p_value)
            weights[one.test_name] = one.weight
    tests = {name: min(1.0, len(p_values) * min(p_values)) for name, p_values in given.items()}
    sizes = Counter(name[0] for name in tests)
    found = holm(list(tests.values()), level, [weights[name] / sizes[name[0]] for name in tests])
    shown = frozenset(name for name, is_shown in zip(tests, found.shown, strict=True) if is_shown)
    return Decisions(shown, dict(zip(tests, found.levels, strict=True)))


def widened_low(estimate: Estimate, level: float, freedom: float = math.inf) -> float:
    """The lower limit of an estimate at a confidence of `level`.

    The interval is widened as that of a normal error would be, or of Student's t with so many degrees of freedom; a number that is exact
    or proven stays as it is.
    """
    if estimate.low is None:
        return -math.inf
    if estimate.confidence is None or estimate.confidence >= level:
        return estimate.low
    middle = estimate.value if estimate.value is not None else estimate.high
    if middle is None or estimate.confidence <= 0:
        return -math.inf
    return middle - (middle - estimate.low) * _width(level, freedom) / _width(estimate.confidence, freedom)


def _width(level: float, freedom: float) -> float:
    from scipy.special import ndtri, stdtrit

    return float(ndtri(0.5 + level / 2) if math.isinf(freedom) else stdtrit(freedom, 0.5 + level / 2))


def bonferroni(measures: Sequence[Measure], _limit: float) -> float:
    """The probability of evidence as strong as the strongest of these without memorization, at most; 1 where none has a p-value."""
    p_values = [one.p_value for one in measures if one.p_value is not None]
    return min(1.0, len(p_values) * min(p_values)) if p_values else 1.0


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A limit that a policy may have: `at_most = 10.0` below `[exposure]` is the rule "exposure.at_most" on the measures `of`.

    Attributes:
        key: its section and key in a policy.
        of: the key of the measures that it limits.
        also: the keys of measures that say what these leave out.
        says: what it asks for, with {limit}; also the comment in the template of a policy.
        example: a usual limit, which the template has.
        most: the largest limit that there can be.
        settle: what decides a rule that is not shown either way.
        chance: the probability, at most, of evidence as strong against it without memorization, given its measures and the limit.
        doubt: why it proves nothing that all measures are within the limit, given them and the error that is allowed.
        by_violation: whether its measures are bounds from below, so that it holds where no violation was shown.
        in_all: whether the limit is one for the sum of all measures, such as a number of canaries.
        about_canaries: whether it is about canaries, which say nothing where training never saw them.

    >>> Rule(key="toys.at_most", of="toys.broken", says="at most {limit:g} broken", example=3, settle="play more").most
    inf
    """

    key: str
    of: str
    says: str
    example: float
    settle: str
    most: float = math.inf
    chance: Callable[[Sequence[Measure], float], float] = bonferroni
    doubt: Callable[[Sequence[Measure], float], str] = lambda _measures, _level: ""
    also: tuple[str, ...] = ()
    by_violation: bool = False
    in_all: bool = False
    about_canaries: bool = False


@dataclass(frozen=True, kw_only=True)
class Audit:
    """One question about a model, with everything that reports need of it.

    Attributes:
        name: what policies and JSON call it, such as "exposure".
        command: what to run if its results are missing, such as "coalmine expose".
        documents: its result files.
        measures: what its results show; findings, the first screen, the gate and exports are made of these.
        rules: the limits on them that a policy may have.
        figures: its figures; None in place of one that the run has no numbers for.
        details: its tables; the second argument is whether texts of secrets may be shown.
        entries: the entries of the catalog of findings, by the keys of its measures, for an audit of another package. The entry
            "missing.NAME" is what a report says where it was not run.
        is_tested: whether a run has results of it; by default, whether any of its documents is there.
        is_missed: whether a report says so where it was not run.
        stands_alone: whether a run with its results is about no single model, so that no audit of a model is missed in it.

    >>> Audit(name="toys", command="toys play").is_missed
    True
    """

    name: str
    command: str
    documents: tuple[Document[Any], ...] = ()
    measures: Callable[[Run], Iterable[Measure]] = lambda _: ()
    rules: tuple[Rule, ...] = ()
    figures: Callable[[Run], Iterable[Chart | None]] = lambda _: ()
    details: Callable[[Run, bool], Iterable[Detail]] = lambda _run, _reveal: ()
    entries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    is_tested: Callable[[Run], bool] | None = None
    is_missed: bool = True
    stands_alone: Callable[[Run], bool] = lambda _: False

    def tested_in(self, run: Run) -> bool:
        """Whether a run has results of this audit."""
        if self.is_tested is not None:
            return self.is_tested(run)
        return any(run.all(kind) for kind in self.documents)


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """A comparison of several runs.

    Attributes:
        document: the file that its command writes.
        across: what it shows about these runs; None if it can compare none of them.
    """

    document: Document[Any]
    across: Callable[[Sequence[Run]], AcrossRuns | None]
