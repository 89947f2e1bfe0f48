"""What do membership and epsilon say? Judged by the limits of the intervals, and never safe because there are few scores."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from coalmine.audits.membership_results import Membership, Population
from coalmine.reports.findings.catalog import finding
from coalmine.reports.findings.findings import Finding, Severity
from coalmine.reports.runs.reading import Run

# Below this area, at the upper limit, scores are called no better than guessing.
HARMLESS_AUC = 0.6


def membership_findings(run: Run) -> Iterator[Finding]:
    """Findings about each population, and about a claim."""
    for _, document in run.memberships:
        alone = [one for one in document.populations if not one.pooled]
        for one in alone:
            yield _area(one, len(alone))
            yield from _rates(one)
            yield _epsilon(one, document)
        yield from _claim(document)


def _area(one: Population, populations: int) -> Finding:
    auc = one.auc
    evidence = (
        f"Planted {one.name}, {one.in_count:,} against {one.out_count:,}: {auc.statement}; exposures as high come by chance with "
        f"probability {one.guessing.p_value:.2g}."
    )
    say = partial(finding, "CM301", estimates=[auc, one.guessing.median], subject=[one.name])
    low, high = auc.low, auc.high
    if auc.status != "measured" or low is None or high is None:
        return say("info", "not_measured", evidence)
    # The exact test decides, because intervals of an area from few scores are approximate; populations share its level.
    if one.guessing.p_value < 0.05 / populations:
        severity: Severity = "high" if high >= 0.9 else "medium" if high >= 0.7 else "low"
        return say(severity, "found", evidence)
    if high <= HARMLESS_AUC:
        title = "Members can hardly be told from non-members"
        return say("pass", "clear", evidence, title=title)
    title = "Too few scores to say whether members can be told from non-members"
    return say("info", "not_measured", evidence, title=title)


def _rates(one: Population) -> Iterator[Finding]:
    measured = [rate for rate in one.tpr_at_fpr if rate.status == "measured"]
    missing = [rate for rate in one.tpr_at_fpr if rate.status != "measured"]
    for rate in measured[-1:]:
        fpr = _rate_of(rate.method)
        if rate.low is not None and fpr is not None and rate.low > fpr:
            severity: Severity = "high" if (rate.high or 0.0) >= 0.5 else "medium"
            evidence = f"Planted {one.name}: {rate.statement}."
            yield finding("CM302", severity, "found", evidence, estimates=[rate], subject=[one.name])
    if missing:
        evidence = f"Planted {one.name}: {'; '.join(rate.statement for rate in missing)}."
        yield finding("CM912", "info", "not_measured", evidence, estimates=missing, subject=[one.name])


def _rate_of(method: str) -> float | None:
    """The rate in a method's name, such as "TPR at FPR 1 %"."""
    try:
        return float(method.removeprefix("TPR at FPR ").removesuffix(" %")) / 100
    except ValueError:
        return None


def _epsilon(one: Population, document: Membership) -> Finding:
    bound = one.best.canary
    low = bound.low or 0.0
    ceiling = f"so many scores could show {_down(one.epsilon_ceiling)} at most"
    level = f"{100 * document.confidence:g} % confidence, delta {document.delta:g}"
    if bound.status == "not_measured" or low < 0.005:
        evidence = f"Planted {one.name}: nothing about epsilon can be shown ({level}); {ceiling}."
        return finding("CM304", "info", "not_measured", evidence, estimates=[bound], subject=[one.name])
    copy = one.best.one_copy
    for_copy = ""
    if one.copies > 1 and copy is not None:
        for_copy = f", and at least {_down(copy.low or 0.0)} for one copy"
    severity: Severity = "high" if low >= 8.0 else "medium" if low >= 1.0 else "low"
    evidence = f"Planted {one.name}: epsilon is at least {_down(low)}{for_copy} ({level}; {bound.method}); {ceiling}."
    return finding(
        "CM304",
        severity,
        "found",
        evidence,
        estimates=[bound] if copy is None else [bound, copy],
        subject=[one.name],
    )


def _claim(document: Membership) -> Iterator[Finding]:
    verdict = document.verdict
    if verdict is None:
        return
    evidence = f"{verdict.statement[:1].upper()}{verdict.statement[1:]} (p = {verdict.p_value:.2g}"
    evidence += (
        ")."
        if verdict.power is None
        else f"; power {verdict.power:.2f} against epsilon {verdict.alternative_epsilon:g})."
    )
    if verdict.outcome == "violated":
        yield finding("CM303", "critical", "found", evidence, title="The claimed epsilon is violated")
    elif verdict.outcome == "consistent":
        yield finding(
            "CM303", "pass", "clear", evidence, title="The claimed epsilon is consistent with the audit"
        )
    else:
        title = "The audit has too little power to judge the claimed epsilon"
        yield finding("CM303", "info", "not_measured", evidence, title=title)


def _down(number: float) -> str:
    return f"{math.floor(number * 100) / 100:.2f}"
