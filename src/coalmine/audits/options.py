"""Options that several audits have."""

from __future__ import annotations

from coalmine.records.options import SEED, Option, Options

__all__ = ["CONFIDENCE", "MEMORY", "SEARCH_MEMORY", "SEED", "Option", "Options"]

# States of a model that a search may hold, in bytes.
MEMORY = 1_024_000_000
CONFIDENCE = Option("Confidence level of the intervals.")
SEARCH_MEMORY = Option("Model states that a search may hold, such as 500MB or 2GB.", in_bytes=True)
