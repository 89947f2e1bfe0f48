"""Tables and sentences about a crosscheck: how many documents disagree beyond chance, and which are flagged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coalmine.audits.disagreement.results import Crosscheck
from coalmine.evidence.tables import Right, plain_table
from coalmine.visible import visible

if TYPE_CHECKING:
    from rich.table import Table

# Rows that a terminal shows; the others are in the file.
MOST_ROWS = 20
_UNITS = {"share": "share", "span": "bits", "mean": "bits per character", "total": "bits"}


def flagged_table(result: Crosscheck) -> Table | None:
    """The documents that disagree most; None if none is flagged."""
    if not result.flagged:
        return None
    halves = result.training is not None
    unit = _UNITS[result.settings.statistic]
    table = plain_table(
        Right("document"), *((Right("half"),) if halves else ()), Right(unit), "where they disagree most"
    )
    for one in result.flagged[:MOST_ROWS]:
        half = (str(one.half),) if halves else ()
        table.add_row(
            str(one.document), *half, f"{one.score:.2f}", "" if one.text is None else visible(one.text)
        )
    return table


def in_plain_words(result: Crosscheck) -> str:
    """What was compared, and what is flagged."""
    settings = result.settings
    lines = [f"Documents: {result.corpus.documents:,}, of which {result.compared:,} were compared."]
    if result.beyond_chance is not None:
        first, second = result.models
        lines.append(f"Trained on: {first.documents:,} and {second.documents:,} of them.")
        chance = f"Beyond chance, at a false-discovery rate of {100 * settings.fdr:g}%: {result.beyond_chance:,} documents"
        limit = (
            "." if result.threshold is None else f", from {_amount(result.threshold, settings.statistic)} on."
        )
        lines.append(chance + limit)
    else:
        lines.append("What chance does is not known of models that were not trained here.")
    more = len(result.flagged) - MOST_ROWS
    shown = f" ({more:,} of them are not in the table)" if more > 0 else ""
    lines.append(f"Flagged, at most {100 * settings.share:g}% of all: {len(result.flagged):,}{shown}.")
    if not result.flagged:
        lines.append(
            "That nothing is flagged does not mean that there are no secrets: what both halves have is not seen."
        )
    return "\n".join(lines)


def _amount(score: float, statistic: str) -> str:
    """A score with its unit."""
    return f"a share of {score:.2f}" if statistic == "share" else f"{score:.2f} {_UNITS[statistic]}"
