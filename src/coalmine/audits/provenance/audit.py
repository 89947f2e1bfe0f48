"""The provenance audit, as reports see it."""

from __future__ import annotations

from coalmine.audits.provenance.fit import FITS
from coalmine.audits.provenance.records import PROVENANCES
from coalmine.audits.provenance.report import RULES, details, figures, measures
from coalmine.evidence.audit import Audit

PROVENANCE = Audit(
    name="provenance",
    command="coalmine provenance",
    documents=(PROVENANCES, FITS),
    # Shadow models alone say nothing about the target.
    is_tested=lambda run: bool(run.all(PROVENANCES)),
    measures=measures,
    rules=RULES,
    figures=figures,
    details=details,
)
