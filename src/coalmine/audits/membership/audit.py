"""The membership audit, as reports see it."""

from __future__ import annotations

from coalmine.audits.membership import policy
from coalmine.audits.membership.figures import membership_figures
from coalmine.audits.membership.findings import membership_findings, membership_suspicions, no_claim
from coalmine.audits.membership.results import MEMBERSHIPS
from coalmine.evidence.audit import Audit, NotTested

MEMBERSHIP = Audit(
    name="membership",
    command="coalmine membership",
    not_tested=NotTested(
        "CM903", "There is no membership.json, so it is not known how well members can be told from others."
    ),
    documents=(MEMBERSHIPS,),
    suspicions=membership_suspicions,
    findings=membership_findings,
    remarks=no_claim,
    figures=membership_figures,
    policy=policy.SECTION,
    incomplete=policy.incomplete,
)
