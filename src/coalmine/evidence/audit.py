"""`Audit`: what the folder of an audit declares, so that reports, the gate and `verify` use it without knowing its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coalmine.evidence.charts import Chart
from coalmine.evidence.details import AcrossRuns, Detail
from coalmine.evidence.measures import Measure, Rule
from coalmine.evidence.run import Run
from coalmine.records.documents import Document


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
