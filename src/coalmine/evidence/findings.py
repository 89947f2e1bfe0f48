"""Findings: what a run says, and how bad it is; each with a stable code, a severity, evidence and advice.

What was not tested, and what could not be measured, are findings too, so that an absent audit never looks like a passed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from coalmine.errors import InputError
from coalmine.evidence.format_names import format_names
from coalmine.records import Estimate

if TYPE_CHECKING:
    from coalmine.reports.runs.reading import Run

Severity = Literal["critical", "high", "medium", "low", "info", "pass"]
FindingStatus = Literal["found", "clear", "not_tested", "not_measured"]
# The most severe first.
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
_STATUSES: tuple[FindingStatus, ...] = ("found", "not_measured", "not_tested", "clear")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a run says.

    `status` is "found" (there is evidence of a problem), "clear" (it was looked for, and the evidence speaks against it),
    "not_tested" (the audit was not run) or "not_measured" (it was run, and there is no honest answer). Only a finding that is
    clear has the severity "pass".
    """

    code: str
    title: str
    severity: Severity
    status: FindingStatus
    # A sentence, with an interval wherever there is one.
    evidence: str
    # The numbers behind the sentence.
    estimates: tuple[Estimate, ...] = ()
    # What to do about it.
    advice: str
    # What it is about: ids of canaries, names of populations or models; never the text of a secret.
    subject: tuple[str, ...] = ()
    # The page about this code, from the root of the project.
    docs: str

    def __post_init__(self) -> None:
        if (self.severity == "pass") != (self.status == "clear"):
            raise InputError(
                f"{self.code} has severity {self.severity!r} and status {self.status!r}; what is clear passes, and nothing else does"
            )


def findings_of(run: Run) -> tuple[Finding, ...]:
    """All findings of a run, the most severe first; what was not tested and not measured is among them."""
    from coalmine.evidence.budget import decide
    from coalmine.reports.findings.rules import PLAIN_RULES, RULES, SUSPICIONS

    decided = decide(one for suspicions in SUSPICIONS for one in suspicions(run))
    found = [finding for rule in RULES for finding in rule(run, decided)]
    merged = _merged([*found, *(finding for plain in PLAIN_RULES for finding in plain(run))])
    return ordered([_with_formats(one, run) for one in merged])


def _with_formats(finding: Finding, run: Run) -> Finding:
    """The finding, with the templates of the canaries that its evidence names by their ids."""
    if run.exposure is None:
        return finding
    names = format_names(run.exposure.formats)
    formats = {result.canary_id: result.format_id for result in run.exposure.results}
    named = dict.fromkeys(
        formats[one] for one in finding.subject if one in formats and one in finding.evidence
    )
    told = ", ".join(f"{one} is `{names[one]}`" for one in sorted(named) if one in names)
    return msgspec.structs.replace(finding, evidence=f"{finding.evidence} {told}.") if told else finding


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


def ordered(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Findings by severity, then by status, then by code."""
    return tuple(
        sorted(
            findings,
            key=lambda one: (SEVERITIES.index(one.severity), _STATUSES.index(one.status), one.code),
        )
    )


def worst_severity(findings: Sequence[Finding]) -> Severity:
    """The severity of the worst of them; "info" where nothing was found and something was left open, "pass" only if all is clear."""
    return ordered(findings)[0].severity if findings else "info"
