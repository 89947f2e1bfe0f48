"""Tables and sentences about a crosscheck: how many documents disagree beyond chance, and which are flagged."""

from __future__ import annotations

from coalmine.audits.disagreement.records import Crosscheck, FlaggedDocument
from coalmine.evidence.tables import Column, Table

# Rows that a terminal shows; the others are in the file.
MOST_ROWS = 20
_UNITS = {"share": "share", "span": "bits", "mean": "bits per character", "total": "bits"}


def flagged_table(result: Crosscheck) -> Table[FlaggedDocument]:
    """The documents that disagree most."""
    return Table(
        (
            Column("document", lambda one: str(one.document)),
            Column("half", lambda one: one.half),
            Column(_UNITS[result.settings.statistic], lambda one: one.score),
            Column("where they disagree most", lambda one: one.text),
        )
    )


def in_plain_words(result: Crosscheck) -> list[str]:
    """What was compared, and what is flagged."""
    settings = result.settings
    lines = [f"Documents: {result.corpus.documents:,}, of which {result.compared:,} were compared."]
    if result.beyond_chance is not None:
        first, second = result.models
        limit = ""
        if result.threshold is not None:
            limit = f", from {result.threshold:.2f} ({_UNITS[settings.statistic]}) on"
        lines += [
            f"Trained on: {first.documents:,} and {second.documents:,} of them.",
            f"Beyond chance, at a false-discovery rate of {100 * settings.fdr:g}%: {result.beyond_chance:,} documents{limit}.",
        ]
    else:
        lines.append("What chance does is not known of models that were not trained here.")
    more = len(result.flagged) - MOST_ROWS
    shown = f" ({more:,} of them are not in the table)" if more > 0 else ""
    lines.append(f"Flagged, at most {100 * settings.share:g}% of all: {len(result.flagged):,}{shown}.")
    if not result.flagged:
        lines.append(
            "That nothing is flagged does not mean that there are no secrets: what both halves have is not seen."
        )
    return lines
