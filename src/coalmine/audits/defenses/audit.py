"""The bench of defenses, as reports see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coalmine.audits.defenses import policy
from coalmine.audits.defenses.findings import CATALOG, bench_findings, bench_remarks, bench_suspicions
from coalmine.audits.defenses.records import BENCHES
from coalmine.audits.defenses.report import bench_details, bench_figures, measures
from coalmine.evidence.audit import Audit
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
    details=bench_details,
    policy=policy.SECTION,
    measures=measures,
)
