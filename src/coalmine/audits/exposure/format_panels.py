"""The names of the formats of a run, and the format of each canary, for figures with one panel per format."""

from __future__ import annotations

from coalmine.audits.exposure.results import EXPOSURES
from coalmine.evidence.run import Run
from coalmine.evidence.words import FormatNames, format_names


def names_of_formats(run: Run) -> FormatNames:
    """The names of all formats that the results or the manifest of a run describe."""
    templates: dict[str, str] = {}
    if run.canaries is not None:
        templates |= {format_id: form.template for format_id, form in run.canaries.formats.items()}
    for located in reversed(run.all(EXPOSURES)):
        templates |= {facts.format_id: facts.template for facts in located.document.formats}
    return format_names(templates)


def formats_of_canaries(run: Run) -> dict[str, str]:
    """The `format_id` of each canary that the results or the manifest have."""
    found: dict[str, str] = {}
    if run.canaries is not None:
        found |= {canary.canary_id: canary.format_id for canary in run.canaries}
    for located in reversed(run.all(EXPOSURES)):
        found |= {result.canary_id: result.format_id for result in located.document.results}
    return found
