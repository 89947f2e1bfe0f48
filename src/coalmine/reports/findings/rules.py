"""Which rules make findings of a run? All of them, in one place; each takes a run and gives what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from coalmine.reports.findings.data_rules import data_findings
from coalmine.reports.findings.exposure_rules import exposure_findings
from coalmine.reports.findings.extraction_rules import extraction_findings
from coalmine.reports.findings.findings import Finding
from coalmine.reports.findings.membership_rules import membership_findings
from coalmine.reports.findings.missing_rules import missing_findings
from coalmine.reports.findings.recitation_rules import recitation_findings
from coalmine.reports.findings.training_rules import training_findings
from coalmine.reports.runs.reading import Run

Rule = Callable[[Run], Iterable[Finding]]

RULES: tuple[Rule, ...] = (
    exposure_findings,
    training_findings,
    extraction_findings,
    membership_findings,
    recitation_findings,
    data_findings,
    missing_findings,
)
