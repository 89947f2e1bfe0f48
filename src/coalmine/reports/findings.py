"""`findings_of`: everything that the results of a run show, the most severe first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from coalmine.audits.registry import audits, weights
from coalmine.errors import InputError
from coalmine.evidence.budget import decide
from coalmine.evidence.findings import Finding, ordered
from coalmine.evidence.run import Run


def findings_of(run: Run) -> tuple[Finding, ...]:
    """All findings of a run, the most severe first, including what was not tested and what could not be measured.

    The tests of all audits are judged together before any audit states what it found; see `coalmine.evidence.budget`.

    >>> import tempfile
    >>> from coalmine import membership_of_scores, read_run
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = membership_of_scores(range(80, 180), range(100)).save(folder)
    ...     findings_of(read_run(folder))[0].code
    'CM301'
    """
    decided = decide((one for audit in audits() for one in audit.suspicions(run)), weights())
    reasons = {name: why for audit in audits() for name, why in audit.reasons(run).items()}
    found = []
    for audit in audits():
        these = [*audit.findings(run, decided), *audit.remarks(run)]
        for one in these:
            if one.code not in audit.catalog:
                raise InputError(
                    f"the audit {audit.name!r} reports {one.code}, which its catalog does not have; declare it there"
                )
        found += these
        if audit.not_tested is not None and not audit.tested_in(run):
            code, evidence = audit.not_tested
            said = reasons.get(audit.name, evidence)
            found.append(audit.catalog.finding(code, "info", "not_tested", said))
    if any(audit.stands_alone(run) for audit in audits()):
        found = [one for one in found if one.status != "not_tested"]
    glossary = {name: words for audit in audits() for name, words in audit.glossary(run).items()}
    return ordered([_explained(one, glossary) for one in _merged(found)])


def _explained(found: Finding, glossary: Mapping[str, str]) -> Finding:
    """The finding, with what the subjects are that its evidence names."""
    named = {glossary[one] for one in found.subject if one in glossary and one in found.evidence}
    if not named:
        return found
    return msgspec.structs.replace(found, evidence=f"{found.evidence} {', '.join(sorted(named))}.")


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
