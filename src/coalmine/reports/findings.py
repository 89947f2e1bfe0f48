"""`findings_of`: everything that the results of a run say, the most severe first."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.registry import audits
from coalmine.evidence.budget import decide
from coalmine.evidence.catalog import finding
from coalmine.evidence.findings import Finding, ordered
from coalmine.evidence.run import Run
from coalmine.evidence.words import format_names


def findings_of(run: Run) -> tuple[Finding, ...]:
    """All findings of a run, the most severe first; what was not tested and not measured is among them.

    The tests of all audits are judged together before any audit states what it found; see `coalmine.evidence.budget`.
    """
    decided = decide(one for audit in audits() for one in audit.suspicions(run))
    found = [one for audit in audits() for one in audit.findings(run, decided)]
    found += [one for audit in audits() for one in audit.remarks(run)]
    found += [
        finding(audit.not_tested.code, "info", "not_tested", audit.not_tested.evidence)
        for audit in audits()
        if not audit.tested_in(run)
    ]
    return ordered([_with_formats(one, run) for one in _merged(found)])


def _with_formats(found: Finding, run: Run) -> Finding:
    """The finding, with the templates of the canaries that its evidence names by their ids."""
    exposures = run.first(EXPOSURES)
    if exposures is None:
        return found
    names = format_names(exposures.formats)
    formats = {result.canary_id: result.format_id for result in exposures.results}
    named = dict.fromkeys(formats[one] for one in found.subject if one in formats and one in found.evidence)
    told = ", ".join(f"{one} is `{names[one]}`" for one in sorted(named) if one in names)
    return msgspec.structs.replace(found, evidence=f"{found.evidence} {told}.") if told else found


def _merged(findings: Sequence[Finding]) -> list[Finding]:
    """Findings that say the same of different subjects, such as populations, as one."""
    merged: dict[tuple[str, ...], Finding] = {}
    for one in findings:
        key = (one.code, one.severity, one.status, one.title)
        first = merged.get(key)
        merged[key] = (
            one
            if first is None
            else msgspec.structs.replace(
                first,
                evidence=f"{first.evidence} {one.evidence}",
                estimates=first.estimates + one.estimates,
                subject=first.subject + one.subject,
            )
        )
    return list(merged.values())
