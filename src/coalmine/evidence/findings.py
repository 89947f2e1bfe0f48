"""`Finding`: one thing that a run shows, with its severity, evidence and advice; and the catalog of codes that an audit declares.

What was not tested and what could not be measured are findings too, so that a missing audit never looks like a passed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import msgspec

from coalmine.errors import InputError
from coalmine.records import Estimate

Severity = Literal["critical", "high", "medium", "low", "info", "pass"]
FindingStatus = Literal["found", "clear", "not_tested", "not_measured"]
# The most severe first.
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
# The most canaries that a finding lists, and that a sentence names.
LISTED, NAMED = 50, 3
_STATUSES: tuple[FindingStatus, ...] = ("found", "not_measured", "not_tested", "clear")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a run shows.

    `status` is "found" (there is evidence of a problem), "clear" (it was looked for, and the evidence speaks against it),
    "not_tested" (the audit was not run) or "not_measured" (it was run, but gives no honest answer). Only a finding that is clear has
    the severity "pass". `Catalog.finding` makes one.

    >>> from coalmine.audits.registry import catalog
    >>> one = catalog().finding("CM504", "info", "found", "There are only 3 canaries.")
    >>> one.title, one.severity, one.docs
    ('Few canaries', 'info', 'docs/reference/findings/CM504.md')
    """

    code: str
    title: str
    severity: Severity
    status: FindingStatus
    # A sentence, with an interval wherever there is one.
    evidence: str
    # The numbers in that sentence.
    estimates: tuple[Estimate, ...] = ()
    # What to do about it.
    advice: str
    # What it is about: ids of canaries, names of populations or models; never the text of a secret.
    subject: tuple[str, ...] = ()
    # The page about this code: a path from the root of the project, or the address that the catalog of another package gives.
    docs: str

    def __post_init__(self) -> None:
        if (self.severity == "pass") != (self.status == "clear"):
            raise InputError(
                f"{self.code} has severity {self.severity!r} and status {self.status!r}; a finding must have severity 'pass' if and only "
                "if its status is 'clear'"
            )


@dataclass(frozen=True)
class Entry:
    """What all findings with one code have in common.

    Attributes:
        title: a short heading.
        advice: what to do if it is found, or was not tested.
        if_not_measured: what to do instead if it could not be measured.
        if_clear: what to do instead if it is clear.
        if_not_tested: what to do instead if an input was missing.
        discredits: what cannot be trusted if it is found: nothing, because it is about the model; its own measurement; all good news
            in the report; or the whole report.
        verdict: the sentence that replaces the verdict if it is found and discredits the report; for one that discredits good news, the
            clause that says why, by default that not all results belong together.
        first_step: whether a report can say little before this is measured, so that measuring it is the first advice.
        docs: the address of the page about it; by default, its page in docs/reference/findings.

    >>> Entry("Few canaries", "Plant more canaries.").advice_for("found")
    'Plant more canaries.'
    """

    title: str
    advice: str
    if_not_measured: str = ""
    if_clear: str = ""
    if_not_tested: str = ""
    discredits: Literal["nothing", "measurement", "good news", "report"] = "nothing"
    verdict: str = ""
    first_step: bool = False
    docs: str = ""

    def advice_for(self, status: FindingStatus) -> str:
        """What to do about a finding with this status."""
        instead = {
            "not_measured": self.if_not_measured,
            "clear": self.if_clear,
            "not_tested": self.if_not_tested,
        }
        return instead.get(status) or self.advice


class Catalog(dict[str, Entry]):
    """The codes of an audit's findings.

    >>> codes = Catalog({"TOY1": Entry("A toy breaks", "Mend it.", docs="https://toys.example/TOY1")})
    >>> codes.finding("TOY1", "low", "found", "It broke.").docs
    'https://toys.example/TOY1'
    """

    def finding(
        self,
        code: str,
        severity: Severity,
        status: FindingStatus,
        evidence: str,
        *,
        estimates: Sequence[Estimate] = (),
        subject: Sequence[str] = (),
        title: str | None = None,
    ) -> Finding:
        """A finding, with the title, advice and page of its code; of its subjects, the first 50 are listed."""
        entry = self[code]
        return Finding(
            code=code,
            title=title or entry.title,
            severity=severity,
            status=status,
            evidence=evidence,
            estimates=tuple(_plain(one) for one in estimates),
            advice=entry.advice_for(status),
            subject=tuple(subject[:LISTED]),
            docs=self.docs(code),
        )

    def docs(self, code: str) -> str:
        """The page about a code: an address, or a path from the root of the project."""
        return self[code].docs or f"docs/reference/findings/{code}.md"


def _plain(estimate: Estimate) -> Estimate:
    """An estimate without the fields that only some kinds of estimates have."""
    return Estimate(**{name: getattr(estimate, name) for name in Estimate.__struct_fields__})


def first(findings: Sequence[Finding], code: str, status: FindingStatus) -> Finding | None:
    """The first finding with this code and status, or None."""
    return next((one for one in findings if one.code == code and one.status == status), None)


def beyond_chance(findings: Sequence[Finding], code: str) -> Finding | None:
    """The first finding with this code that chance does not explain; what chance may explain is found too, with severity "info"."""
    return next(
        (one for one in findings if one.code == code and one.status == "found" and one.severity != "info"),
        None,
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
    """The severity of the worst finding; "info" without findings, and "pass" only if all are clear."""
    return ordered(findings)[0].severity if findings else "info"
