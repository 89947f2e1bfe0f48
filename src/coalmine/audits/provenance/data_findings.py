"""The findings about the data of provenance audits: whether suspects and non-members differ in anything but the training."""

from __future__ import annotations

from collections.abc import Iterator

from coalmine.audits.provenance.catalog import finding
from coalmine.audits.provenance.deciding import (
    overlap_words,
    sides_of,
    told_apart,
)
from coalmine.audits.provenance.records import PROVENANCES, Asks, Provenance
from coalmine.evidence.findings import Finding
from coalmine.evidence.run import Run
from coalmine.visible import visible

# If the upper limit of the area is below this, the two groups can hardly be told apart without a model.
HARMLESS_AUC = 0.6
# The share of texts within the time of the other group, which is near 0.98 for groups of the same time.
FEW_WITHIN = 0.5
# The share of texts that several users have, from which on it is more than a remark.
REPEATED = 0.01


def provenance_data_findings(run: Run) -> Iterator[Finding]:
    """What was checked about the data; of these findings, those that discredit the measurement keep users from being called found."""
    for _, document in run.all(PROVENANCES):
        for question in document.questions:
            yield from _blind(document, question.asks)
            yield from _times(document, question.asks)
        yield from _repeated(document)
        yield from _unknown(document)
        yield from _overlaps(document)


def _blind(document: Provenance, asks: Asks) -> Iterator[Finding]:
    blind = document.blind(asks)
    if blind is None:
        return
    told, (whom, others) = told_apart(blind), sides_of(document, asks)
    first = f"{whom[:1].upper()}{whom[1:]}"
    measured = [one.auc for one in blind.groups if one.auc.status == "measured"]
    estimates = [one for one in (blind.auc, *measured) if one.status == "measured"]
    if told:
        evidence = f"{first} differ in {told}: {blind.auc.statement}; chance gives as much with probability {blind.p_value or 0.0:.2g}."
        title = f"{first} can be told from {others} without any model"
        yield finding("CM611", "medium", "found", evidence, estimates=estimates, title=title)
    elif blind.auc.high is None:
        evidence = f"{blind.auc.statement[:1].upper()}{blind.auc.statement[1:]}."
        title = f"Whether {whom} can be told from {others} without a model cannot be said"
        yield finding("CM611", "info", "not_measured", evidence, title=title)
    else:
        clear = blind.auc.high <= HARMLESS_AUC
        evidence = (
            f"{blind.auc.statement[:1].upper()}{blind.auc.statement[1:]} (p = {blind.p_value or 1.0:.2g})."
        )
        title = f"{first} can hardly be told from {others} without a model"
        if not clear:
            title = f"It is not shown that {whom} can be told from {others} without a model"
            evidence += " With so few users, a difference may go unnoticed."
        yield finding(
            "CM611",
            *(("pass", "clear") if clear else ("info", "not_measured")),
            evidence,
            estimates=estimates,
            title=title,
        )


def _times(document: Provenance, asks: Asks) -> Iterator[Finding]:
    times = document.times(asks)
    if times is None:
        if asks == "texts" and any(question.non_members for question in document.questions):
            evidence = "Texts have no dates, so it is not known whether suspects and non-members wrote at the same time."
            if document.settings.by == "person":
                evidence = (
                    "Dates were not compared, because texts of one person may have been divided by them."
                )
            yield finding("CM612", "info", "not_tested", evidence)
        return
    texts = "Texts" if asks == "texts" else "Other texts"
    evidence = (
        f"{texts} of suspects are from {times.suspects.first} to {times.suspects.last}, and those of non-members from "
        f"{times.non_members.first} to {times.non_members.last}; {100 * times.suspects_within:.0f}% and "
        f"{100 * times.non_members_within:.0f}% of them are within the time of the others."
    )
    if times.disjoint:
        yield finding("CM612", "medium", "found", evidence)
    elif times.share < FEW_WITHIN:
        title = "Suspects and non-members are partly from different times"
        yield finding("CM612", "low", "found", evidence, title=title)


def _repeated(document: Provenance) -> Iterator[Finding]:
    found = document.checks.repeated_texts
    if found is None or not (found.repeated or found.quoted):
        return
    evidence = (
        f"{found.repeated:,} of {found.texts:,} texts of at least {found.shortest} bytes belong to several users, "
        f"{found.affected_users:,} of {found.users:,} in all; one of them to {found.most_users:,}."
    )
    if found.quoted:
        evidence += f" {found.quoted:,} texts occur inside texts of other users."
    yield finding("CM613", "low" if (found.share or 0.0) >= REPEATED else "info", "found", evidence)


def _unknown(document: Provenance) -> Iterator[Finding]:
    words = document.checks.unknown_words
    if words is None or not words.differ():
        return
    shares = " and ".join(f"{100 * one.mean_share:.1f}% of those of {one.group}" for one in words.groups)
    chance = "" if words.difference is None else f" (p = {words.difference.p_value:.2g})"
    yield finding(
        "CM614", "low", "found", f"The model does not know {shares}, on average over users{chance}."
    )


def _overlaps(document: Provenance) -> Iterator[Finding]:
    shared = document.checks.overlaps
    if document.left_out is not None:
        title = "Texts that several users have were to be left out"
        yield finding("CM615", "info", "found", visible(document.left_out), title=title)
    if shared:
        told = "; ".join(overlap_words(one, document) for one in shared)
        severity = "medium" if any(one.spoils for one in shared) else "info"
        yield finding("CM615", severity, "found", f"{told[:1].upper()}{told[1:]}.")  # type: ignore[arg-type]  # one of the two
