"""The membership audit, as reports see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coalmine.audits.exposure.verdict import remembered_clause
from coalmine.audits.membership import policy, report
from coalmine.audits.membership.display import membership_figures
from coalmine.audits.membership.findings import CATALOG, membership_findings, membership_suspicions, no_claim
from coalmine.audits.membership.records import MEMBERSHIPS
from coalmine.evidence.audit import Audit, NotTested
from coalmine.evidence.findings import Finding, beyond_chance, first
from coalmine.evidence.replies import MEMORIZED, Reply


def _replies(findings: Sequence[Finding]) -> Iterator[Reply]:
    for code in ("CM301", "CM302", "CM304"):
        shown = beyond_chance(findings, code)
        if shown is not None:
            strongly = shown.severity == "high"
            clause = remembered_clause(strongly=strongly)
            yield Reply(MEMORIZED, "In part", shown.evidence, "bad" if strongly else "warn", clause)
            return


def _sentences(findings: Sequence[Finding]) -> Iterator[str]:
    if first(findings, "CM303", "found") is not None:
        yield "The claimed epsilon is violated."


MEMBERSHIP = Audit(
    name="membership",
    command="coalmine membership",
    catalog=CATALOG,
    not_tested=NotTested(
        "CM903", "There is no membership.json, so it is not known how well members can be told from others."
    ),
    documents=(MEMBERSHIPS,),
    suspicions=membership_suspicions,
    findings=membership_findings,
    remarks=no_claim,
    replies=_replies,
    sentences=_sentences,
    figures=membership_figures,
    policy=policy.SECTION,
    measures=report.measures,
    rules=report.RULES,
    incomplete=policy.incomplete,
)
