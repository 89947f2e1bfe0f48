"""Findings: what a run says, and how bad it is; each with a stable code, a severity, evidence and advice.

What was not tested, and what could not be measured, are findings too, so that an absent audit never looks like a passed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from coalmine.errors import InputError
from coalmine.records import Estimate

if TYPE_CHECKING:
    pass

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
