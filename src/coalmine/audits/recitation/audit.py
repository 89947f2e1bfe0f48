"""The recitation audit, as reports see it."""

from __future__ import annotations

from coalmine.audits.recitation import policy
from coalmine.audits.recitation.figures import recitation_figures
from coalmine.audits.recitation.findings import no_baseline, recitation_findings, recitation_suspicions
from coalmine.audits.recitation.results import RECITATIONS
from coalmine.evidence.audit import Audit, NotTested

RECITATION = Audit(
    name="recitation",
    command="coalmine recite",
    not_tested=NotTested(
        "CM904", "There is no recitation.json, so it is not known how much training text is recited."
    ),
    documents=(RECITATIONS,),
    suspicions=recitation_suspicions,
    findings=recitation_findings,
    remarks=no_baseline,
    figures=recitation_figures,
    policy=policy.SECTION,
)
