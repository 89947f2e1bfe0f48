"""The audits: what a model remembers of its training data, one folder for each question.

    from coalmine import load_model
    from coalmine.audits import ExposureOptions, expose

    results = expose(load_model("model/"), "planted/", ExposureOptions(method="exact"))
    results.save("model-audit/exposure")

`membership_of_results` is what `coalmine.membership` is. Another package declares an `Audit` of its own with the records that
are exported here too (see "Add an audit" in CONTRIBUTING.md). Names are loaded when they are first used; everything that is not listed
here may move without notice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coalmine.lazy import lazy

if TYPE_CHECKING:
    from coalmine.audits.comparison.options import ComparisonOptions
    from coalmine.audits.comparison.results import Comparison
    from coalmine.audits.comparison.sources import compare_runs
    from coalmine.audits.exposure.measuring import expose
    from coalmine.audits.exposure.options import ExposureOptions
    from coalmine.audits.exposure.results import EXPOSURES, ExposureResult, Exposures, read_exposures
    from coalmine.audits.extraction.certificate import verify_certificate
    from coalmine.audits.extraction.measuring import extract, verify_extraction
    from coalmine.audits.extraction.options import ExtractionOptions
    from coalmine.audits.extraction.results import EXTRACTIONS, VERIFIED, Extraction, read_extraction
    from coalmine.audits.membership.measuring import (
        membership_of_file,
        membership_of_results,
        membership_of_scores,
    )
    from coalmine.audits.membership.options import MembershipOptions
    from coalmine.audits.membership.results import MEMBERSHIPS, Membership, read_membership
    from coalmine.audits.recitation.measuring import recite
    from coalmine.audits.recitation.options import RecitationOptions
    from coalmine.audits.recitation.results import RECITATIONS, Recitation, read_recitation
    from coalmine.audits.registry import audited
    from coalmine.audits.runs import read_run, read_runs
    from coalmine.audits.watching.measuring import ExposureWatch
    from coalmine.audits.watching.results import WATCHES
    from coalmine.evidence.audit import Audit, NotTested
    from coalmine.evidence.budget import Decisions, Suspicion
    from coalmine.evidence.details import Detail
    from coalmine.evidence.figures import Figure, Panel
    from coalmine.evidence.findings import Catalog, Entry, Finding
    from coalmine.evidence.outcomes import RuleOutcome
    from coalmine.evidence.policy import PolicySection
    from coalmine.evidence.replies import Reply
    from coalmine.evidence.run import Run
    from coalmine.records.documents import Document, Origin

__all__ = [
    "EXPOSURES",
    "EXTRACTIONS",
    "MEMBERSHIPS",
    "RECITATIONS",
    "VERIFIED",
    "WATCHES",
    "Audit",
    "Catalog",
    "Comparison",
    "ComparisonOptions",
    "Decisions",
    "Detail",
    "Document",
    "Entry",
    "ExposureOptions",
    "ExposureResult",
    "ExposureWatch",
    "Exposures",
    "Extraction",
    "ExtractionOptions",
    "Figure",
    "Finding",
    "Membership",
    "MembershipOptions",
    "NotTested",
    "Origin",
    "Panel",
    "PolicySection",
    "Recitation",
    "RecitationOptions",
    "Reply",
    "RuleOutcome",
    "Run",
    "Suspicion",
    "audited",
    "compare_runs",
    "expose",
    "extract",
    "membership_of_file",
    "membership_of_results",
    "membership_of_scores",
    "read_exposures",
    "read_extraction",
    "read_membership",
    "read_recitation",
    "read_run",
    "read_runs",
    "recite",
    "verify_certificate",
    "verify_extraction",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Audit": "coalmine.evidence.audit",
        "Catalog": "coalmine.evidence.findings",
        "Comparison": "coalmine.audits.comparison.results",
        "ComparisonOptions": "coalmine.audits.comparison.options",
        "Decisions": "coalmine.evidence.budget",
        "Detail": "coalmine.evidence.details",
        "Document": "coalmine.records.documents",
        "EXPOSURES": "coalmine.audits.exposure.results",
        "EXTRACTIONS": "coalmine.audits.extraction.results",
        "Entry": "coalmine.evidence.findings",
        "ExposureOptions": "coalmine.audits.exposure.options",
        "ExposureResult": "coalmine.audits.exposure.results",
        "ExposureWatch": "coalmine.audits.watching.measuring",
        "Exposures": "coalmine.audits.exposure.results",
        "Extraction": "coalmine.audits.extraction.results",
        "ExtractionOptions": "coalmine.audits.extraction.options",
        "Figure": "coalmine.evidence.figures",
        "Finding": "coalmine.evidence.findings",
        "MEMBERSHIPS": "coalmine.audits.membership.results",
        "Membership": "coalmine.audits.membership.results",
        "MembershipOptions": "coalmine.audits.membership.options",
        "NotTested": "coalmine.evidence.audit",
        "Origin": "coalmine.records.documents",
        "Panel": "coalmine.evidence.figures",
        "PolicySection": "coalmine.evidence.policy",
        "RECITATIONS": "coalmine.audits.recitation.results",
        "Recitation": "coalmine.audits.recitation.results",
        "RecitationOptions": "coalmine.audits.recitation.options",
        "Reply": "coalmine.evidence.replies",
        "RuleOutcome": "coalmine.evidence.outcomes",
        "Run": "coalmine.evidence.run",
        "Suspicion": "coalmine.evidence.budget",
        "VERIFIED": "coalmine.audits.extraction.results",
        "WATCHES": "coalmine.audits.watching.results",
        "audited": "coalmine.audits.registry",
        "compare_runs": "coalmine.audits.comparison.sources",
        "expose": "coalmine.audits.exposure.measuring",
        "extract": "coalmine.audits.extraction.measuring",
        "membership_of_file": "coalmine.audits.membership.measuring",
        "membership_of_results": "coalmine.audits.membership.measuring",
        "membership_of_scores": "coalmine.audits.membership.measuring",
        "read_exposures": "coalmine.audits.exposure.results",
        "read_extraction": "coalmine.audits.extraction.results",
        "read_membership": "coalmine.audits.membership.results",
        "read_recitation": "coalmine.audits.recitation.results",
        "read_run": "coalmine.audits.runs",
        "read_runs": "coalmine.audits.runs",
        "recite": "coalmine.audits.recitation.measuring",
        "verify_certificate": "coalmine.audits.extraction.certificate",
        "verify_extraction": "coalmine.audits.extraction.measuring",
    },
)
