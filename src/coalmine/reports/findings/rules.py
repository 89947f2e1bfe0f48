"""All rules that make findings of a run, and the tests by which they may accuse, in one place.

The tests of all rules are judged together before any rule speaks; see `budget`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from coalmine.audits.exposure.control_findings import control_findings, control_suspicions
from coalmine.audits.exposure.data_findings import data_findings
from coalmine.audits.exposure.findings import exposure_findings, exposure_suspicions
from coalmine.audits.extraction.extracted_together import extraction_suspicions
from coalmine.audits.extraction.findings import extraction_findings
from coalmine.audits.membership.findings import membership_findings, membership_suspicions
from coalmine.audits.recitation.findings import recitation_findings, recitation_suspicions
from coalmine.audits.watching.findings import training_findings
from coalmine.evidence.budget import Decisions, Suspicion
from coalmine.evidence.findings import Finding
from coalmine.reports.findings.missing_rules import missing_findings
from coalmine.reports.runs.reading import Run

Rule = Callable[[Run, Decisions], Iterable[Finding]]

# A single canary that a search found is among the tests of exposure: both ask whether that canary is memorized.
SUSPICIONS: tuple[Callable[[Run], Iterable[Suspicion]], ...] = (
    exposure_suspicions,
    extraction_suspicions,
    control_suspicions,
    membership_suspicions,
    recitation_suspicions,
)
RULES: tuple[Rule, ...] = (
    exposure_findings,
    control_findings,
    extraction_findings,
    membership_findings,
    recitation_findings,
)
# These accuse no model: what they say is about the data, or a remark.
PLAIN_RULES: tuple[Callable[[Run], Iterable[Finding]], ...] = (
    training_findings,
    data_findings,
    missing_findings,
)
