"""The bench of defenses, as reports see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coalmine.audits.defenses import policy
from coalmine.audits.defenses.figures import bench_figures
from coalmine.audits.defenses.findings import CATALOG, bench_findings, bench_remarks, bench_suspicions
from coalmine.audits.defenses.results import BENCHES
from coalmine.audits.defenses.table import (
    DIFFERENCE_COLUMNS,
    MAIN_COLUMNS,
    copies_cells,
    copies_columns,
    difference_cells,
    main_cells,
)
from coalmine.evidence.audit import Audit
from coalmine.evidence.details import Detail
from coalmine.evidence.findings import Finding, first
from coalmine.evidence.replies import Reply, Topic
from coalmine.evidence.run import Run

STOPPED = Topic("What stops it?", "")


def _stands_alone(run: Run) -> bool:
    """A bench is about ways of training; the audits of its models are beside them."""
    return bool(run.all(BENCHES)) and run.model is None


def _replies(findings: Sequence[Finding]) -> Iterator[Reply]:
    violated, lower = first(findings, "CM801", "found"), first(findings, "CM802", "found")
    others = first(findings, "CM803", "found")
    if violated is not None:
        yield Reply(STOPPED, "Not as claimed", violated.evidence, "bad")
    elif lower is not None:
        yield Reply(STOPPED, ", ".join(lower.subject), lower.evidence, "good")
    elif others is not None:
        yield Reply(STOPPED, "Nothing that is shown", others.evidence, "open")


def _sentences(findings: Sequence[Finding]) -> Iterator[str]:
    violated, lower = first(findings, "CM801", "found"), first(findings, "CM802", "found")
    if violated is not None:
        yield f"The claimed epsilon of {', '.join(violated.subject)} is violated."
    if lower is not None:
        yield f"Shown to lower exposure: {', '.join(lower.subject)}."
    elif first(findings, "CM803", "found") is not None:
        yield "No defense is shown to lower exposure."


def _details(run: Run, reveal: bool) -> Iterator[Detail]:
    """The tables of a bench: all defenses, their differences from none, and exposure by copies."""
    del reveal
    section = "Defenses"
    for _, bench in run.all(BENCHES):
        yield Detail(
            section=section,
            columns=("defense", *MAIN_COLUMNS),
            rows=[main_cells(row) for row in bench.rows],
            caption="The mean loss over seeds (bits per character), and the median exposure (bits) with its interval over canaries",
        )
        yield Detail(
            section=section,
            title="Against no defense",
            columns=("defense", *DIFFERENCE_COLUMNS, "frontier"),
            rows=[difference_cells(row) for row in bench.rows[1:]],
            caption="Differences in exposure (bits), paired by canary, and in loss (bits per character)",
        )
        yield Detail(
            section=section,
            title="By number of copies, and by seed",
            columns=("defense", *copies_columns(bench)),
            rows=[copies_cells(row, bench) for row in bench.rows],
            caption="The median exposure of canaries that were planted this often, and the range of losses over seeds",
        )


DEFENSES = Audit(
    name="defenses",
    command="coalmine defend",
    catalog=CATALOG,
    # It is about ways of training and not about one model: no report of a model misses it.
    not_tested=None,
    documents=(BENCHES,),
    suspicions=bench_suspicions,
    findings=bench_findings,
    remarks=bench_remarks,
    stands_alone=_stands_alone,
    replies=_replies,
    sentences=_sentences,
    figures=bench_figures,
    details=_details,
    policy=policy.SECTION,
)
