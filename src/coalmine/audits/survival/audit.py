"""The survival check, as reports see it."""

from __future__ import annotations

from coalmine.audits.survival import report
from coalmine.audits.survival.findings import CATALOG, doubts_about_canaries, survival_findings
from coalmine.corpus.survival.results import SURVIVALS
from coalmine.evidence.audit import Audit

SURVIVAL = Audit(
    name="survival",
    command="coalmine survive",
    catalog=CATALOG,
    # What was trained elsewhere cannot be checked any more, so that no report misses it.
    not_tested=None,
    documents=(SURVIVALS,),
    remarks=survival_findings,
    doubts=doubts_about_canaries,
    measures=report.measures,
)
