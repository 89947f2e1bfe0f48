"""The catalog of findings: their codes, titles, advice and thresholds, which `catalog.toml` has and pages of codes are made from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

from coalmine.errors import InputError
from coalmine.evidence.measures import Status

Severity = Literal["critical", "high", "medium", "low", "info", "pass"]
# By severity, by status, or "any" for all others.
Words = dict[str, str]


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the findings of one kind of measure have in common.

    `code`, `title`, `says`, `advice`, `answer` and `sentence` are given by severity or status, or are the same for all under "any". In
    `says`, `answer` and `sentence`, {here} is the number of measures that a finding is about, {be} its verb, {found} the number of those
    that are shown, {of} of those that were measured, {text} the number of the first of them ({share} as a percentage), and {but} what
    that one adds.
    """

    code: Words
    title: Words
    advice: Words
    meaning: str = ""
    says: Words = {}
    # The question of the first screen that it answers, the answer, and the sentence of the verdict.
    question: str = ""
    answer: Words = {}
    sentence: Words = {}
    # The least size of each severity, the most severe first; what is found and has less is of severity low, and without any medium.
    severity: dict[Severity, float] = {}
    # Clear if the upper limit is at most this; without it, never.
    clear_below: float | None = None
    # Whether it speaks up only if it is found, or if it could not be measured, because another measure is about the rest.
    quiet: bool = False
    # The key of the measures of single things, if this one is about those of them that are not found by themselves.
    rest_of: str = ""
    # What cannot be trusted if it is found: nothing, all good news of the report, or the whole report; and the sentence that says so.
    discredits: Literal["", "good news", "report"] = ""
    verdict: str = ""
    # Whether a report can say little before this is measured, so that measuring it is the first advice.
    first_step: bool = False
    docs: str = ""

    def severity_of(self, size: float) -> Severity:
        """How severe a finding of this size is."""
        return next(
            (name for name, least in self.severity.items() if size >= least),
            "low" if self.severity else "medium",
        )


def chosen(words: Mapping[str, str], severity: str, status: str) -> str:
    """The words for a severity, else for a status, else for all.

    >>> chosen({"critical": "at once", "any": "soon"}, "high", "found")
    'soon'
    """
    return words.get(severity) or words.get(status) or words.get("any", "")


@cache
def own_entries() -> dict[str, Entry]:
    """The entries of our own audits, by the keys of their measures."""
    text = files("coalmine.reports").joinpath("catalog.toml").read_text("utf-8")
    return msgspec.toml.decode(text, type=dict[str, Entry])


@cache
def catalog() -> dict[str, Entry]:
    """All entries: ours, and those that audits of other packages bring along."""
    from coalmine.audits.registry import audits

    found = dict(own_entries())
    for audit in audits():
        for key, entry in audit.entries.items():
            if key in found:
                raise InputError(
                    f"the audit {audit.name!r} declares {key!r}, which there is already; rename it"
                )
            found[key] = msgspec.convert(entry, Entry)
    return found


def docs_of(code: str, entry: Entry) -> str:
    """The page about a code: an address, or a path from the root of the project."""
    return entry.docs or f"docs/reference/findings/{code}.md"


STATUSES: tuple[Status, ...] = ("found", "not_measured", "not_tested", "clear")
