"""The audits: what a model remembers of its training data, one folder for each question.

    from coalmine import load_model
    from coalmine.audits import ExposureOptions, expose

    results = expose(load_model("model/"), "planted/", ExposureOptions(method="exact"))
    results.save("model-audit/exposure")

`membership_of_results` is what `coalmine.membership` is. Names are loaded when they are first used; everything that is not listed here
may move without notice.
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
    from coalmine.audits.exposure.results import (
        ExposureResult,
        Exposures,
        read_exposures,
    )
    from coalmine.audits.extraction.certificate import verify_certificate
    from coalmine.audits.extraction.measuring import extract, verify_extraction
    from coalmine.audits.extraction.options import ExtractionOptions
    from coalmine.audits.extraction.results import Extraction, read_extraction
    from coalmine.audits.membership.measuring import (
        membership_of_file,
        membership_of_results,
        membership_of_scores,
    )
    from coalmine.audits.membership.options import MembershipOptions
    from coalmine.audits.membership.results import Membership, read_membership
    from coalmine.audits.recitation.measuring import recite
    from coalmine.audits.recitation.options import RecitationOptions
    from coalmine.audits.recitation.results import Recitation, read_recitation
    from coalmine.audits.watching.measuring import ExposureWatch

__all__ = [
    "Comparison",
    "ComparisonOptions",
    "ExposureOptions",
    "ExposureResult",
    "ExposureWatch",
    "Exposures",
    "Extraction",
    "ExtractionOptions",
    "Membership",
    "MembershipOptions",
    "Recitation",
    "RecitationOptions",
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
    "recite",
    "verify_certificate",
    "verify_extraction",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Comparison": "coalmine.audits.comparison.results",
        "ComparisonOptions": "coalmine.audits.comparison.options",
        "ExposureOptions": "coalmine.audits.exposure.options",
        "ExposureResult": "coalmine.audits.exposure.results",
        "ExposureWatch": "coalmine.audits.watching.measuring",
        "Exposures": "coalmine.audits.exposure.results",
        "Extraction": "coalmine.audits.extraction.results",
        "ExtractionOptions": "coalmine.audits.extraction.options",
        "Membership": "coalmine.audits.membership.results",
        "MembershipOptions": "coalmine.audits.membership.options",
        "Recitation": "coalmine.audits.recitation.results",
        "RecitationOptions": "coalmine.audits.recitation.options",
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
        "recite": "coalmine.audits.recitation.measuring",
        "verify_certificate": "coalmine.audits.extraction.certificate",
        "verify_extraction": "coalmine.audits.extraction.measuring",
    },
)
