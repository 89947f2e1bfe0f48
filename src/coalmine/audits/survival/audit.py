"""The survival check, as reports see it."""

from __future__ import annotations

from coalmine.audits.survival import report
from coalmine.corpus.survival.results import SURVIVALS
from coalmine.evidence.audit import Audit

SURVIVAL = Audit(
    name="survival",
    command="coalmine lab survive",
    # What was trained elsewhere cannot be checked any more, so that no report misses it.
    is_missed=False,
    documents=(SURVIVALS,),
    measures=report.measures,
)
