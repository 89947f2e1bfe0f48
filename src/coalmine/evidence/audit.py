"""`Audit`: what the folder of an audit declares, so that reports, the gate and `verify` use it without knowing its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coalmine.evidence.budget import Decisions, Suspicion
from coalmine.evidence.charts import Chart
from coalmine.evidence.details import AcrossRuns, Detail
from coalmine.evidence.findings import Catalog, Finding
from coalmine.evidence.measures import Measure, Rule
from coalmine.evidence.policy import PolicySection
from coalmine.evidence.replies import Reply
from coalmine.evidence.run import Run
from coalmine.records.documents import Document


class NotTested(NamedTuple):
    """The finding of a report without results of an audit: its code, and what is not known for that reason.

    >>> NotTested("TOY9", "Nobody played.").code
    'TOY9'
    """

    code: str
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Audit:
    """One question about a model, with everything that reports need of it.

    Attributes:
        name: what policies and JSON call it, such as "exposure".
        command: what to run if its results are missing, such as "coalmine expose".
        catalog: the codes of its findings. No two audits may declare the same code.
        not_tested: what a report says if it was not run; None for one that no report misses.
        documents: its result files.
        is_tested: whether a run has results of it; by default, whether any of its documents is there.
        suspicions: the tests by which it may accuse a model. All tests of a report share one error budget.
        weights: the shares of its kinds of tests in that budget, if not 1.
        findings: what its results show, given which of these tests are shown.
        remarks: findings that accuse no model: about the data, the controls, or what is missing.
        stands_alone: whether a run with its results is about no single model, so that no audit of a model is missed in it.
        reasons: why other audits were not run, in a sentence each by their names, where somebody decided that.
        glossary: what the subjects of findings are, such as the format of each canary; added to findings that name them.
        replies: what the findings of a report reply to the questions of its first screen. To each, the first audit that accuses the
            model replies, otherwise the first that has a reply.
        sentences: what the verdict should say besides.
        figures: its figures; None in place of one that the run has no numbers for.
        details: its tables; the second argument is whether texts of secrets may be shown.
        policy: its section of a policy; None for an audit without rules.
        doubts: why no rule about canaries that holds can be relied on, in a clause; a rule that is broken stays broken.
        incomplete: what its results leave out of what the manifest names, in a sentence, for a policy that requires this audit.
        incomplete_settle: what to run in that case; by default, its command for every format.

    Another package names its audit in the entry point group `coalmine.audits`.

    >>> from coalmine.evidence.measures import Measure, Rule
    from coalmine.evidence.findings import Entry
    >>> catalog = Catalog({"TOY9": Entry("Toys were not tested", "Run `toys play`.", docs="https://toys.example/TOY9")})
    >>> toys = Audit(name="toys", command="toys play", catalog=catalog, not_tested=NotTested("TOY9", "Nobody played."))
    >>> toys.name
    'toys'
    """

    name: str
    command: str
    catalog: Catalog
    not_tested: NotTested | None
    documents: tuple[Document[Any], ...] = ()
    is_tested: Callable[[Run], bool] | None = None
    suspicions: Callable[[Run], Iterable[Suspicion]] = lambda _: ()
    weights: Mapping[str, float] = field(default_factory=dict)
    findings: Callable[[Run, Decisions], Iterable[Finding]] = lambda _run, _decided: ()
    remarks: Callable[[Run], Iterable[Finding]] = lambda _: ()
    stands_alone: Callable[[Run], bool] = lambda _: False
    reasons: Callable[[Run], Mapping[str, str]] = lambda _: {}
    glossary: Callable[[Run], Mapping[str, str]] = lambda _: {}
    replies: Callable[[Sequence[Finding]], Iterable[Reply]] = lambda _: ()
    sentences: Callable[[Sequence[Finding]], Iterable[str]] = lambda _: ()
    figures: Callable[[Run], Iterable[Chart | None]] = lambda _: ()
    details: Callable[[Run, bool], Iterable[Detail]] = lambda _run, _reveal: ()
    policy: PolicySection[Any] | None = None
    doubts: Callable[[Run], str | None] = lambda _: None
    incomplete: Callable[[Run], str | None] = lambda _: None
    incomplete_settle: Callable[[Run], str] | None = None
    # What replaces the tests, findings, replies and rules above: measures, the rules on them, and entries of the catalog of findings for
    # audits of other packages, by the keys of their measures.
    measures: Callable[[Run], Iterable[Measure]] = lambda _: ()
    rules: tuple[Rule, ...] = ()
    entries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def tested_in(self, run: Run) -> bool:
        """Whether a run has results of this audit."""
        if self.is_tested is not None:
            return self.is_tested(run)
        return any(run.all(kind) for kind in self.documents)

    def settle_incomplete(self, run: Run) -> str:
        """What to run where the results leave something out."""
        if self.incomplete_settle is not None:
            return self.incomplete_settle(run)
        return f"run `{self.command}` for every format of the canaries.json"


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """A comparison of several runs.

    Attributes:
        document: the file that its command writes.
        across: what it shows about these runs; None if it can compare none of them.
    """

    document: Document[Any]
    across: Callable[[Sequence[Run]], AcrossRuns | None]
