"""The codes of findings about exposure during training."""

from __future__ import annotations

from coalmine.evidence.findings import Catalog, Entry

CATALOG = Catalog(
    {
        "CM107": Entry(
            "When memorization began",
            "Early stopping helps only if it comes before memorization does. Choose the checkpoint by "
            "exposure as well as by loss.",
            if_not_measured="Watch with more references: the exposure among them cannot exceed log2 of their number.",
        ),
        "CM906": Entry(
            "Exposure during training was not watched",
            "Train with `coalmine train --watch canaries.json`, or with the callback in "
            "docs/guides/watching.md.",
        ),
    }
)
finding = CATALOG.finding
