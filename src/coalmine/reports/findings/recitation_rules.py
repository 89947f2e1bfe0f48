"""What does recitation say? How much text comes out verbatim, beside a baseline, and what makes it more."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from coalmine.audits.recitation_results import Group, ModelFacts, Recitation, RecitationTrend
from coalmine.reports.findings.catalog import finding
from coalmine.reports.findings.findings import Finding, Severity
from coalmine.reports.runs.reading import Run

# Upper limits of the share that is recited; below the last, nothing recited is called clear.
HIGH, MEDIUM, HARMLESS = 0.05, 0.005, 0.01
_BY = {"repetitions": "copies in the corpus", "context": "context", "length": "length", "size": "parameters"}


def recitation_findings(run: Run) -> Iterator[Finding]:
    """Findings about each model that was asked, and about the trends."""
    for _, document in run.recitations:
        for model in document.models:
            if model.role == "asked":
                yield _share(document, model)
        yield from _trends(document)


def _share(document: Recitation, model: ModelFacts) -> Finding:
    groups = _overall(document, model.name)
    if not groups:
        evidence = f"{model.name}: no sequence was tried, so the share that is recited is not known."
        return finding("CM401", "info", "not_measured", evidence, subject=[model.name])
    # The context at which most is certainly recited; the longest where nothing is.
    group = max(groups, key=lambda one: (one.recited.low or 0.0, one.context or 0))
    recited = group.recited
    baseline = _baseline(document, group.context)
    evidence = f"{model.name}, {_tried(document, group)}: {recited.statement}"
    estimates = [recited]
    easy, beside = 0.0, 0.0
    if baseline is not None:
        evidence += f"; the baseline: {baseline.recited.statement}"
        estimates.append(baseline.recited)
        # What the baseline certainly recites is easy; what it may recite explains no more than that.
        easy, beside = baseline.recited.low or 0.0, baseline.recited.high or 0.0
    low, high = recited.low or 0.0, 1.0 if recited.high is None else recited.high
    say = partial(finding, "CM401", estimates=estimates, subject=[model.name])
    if low > beside:
        severity: Severity = "high" if high >= HIGH else "medium" if high >= MEDIUM else "low"
        return say(severity, "found", f"{evidence}.")
    if max(high, *(1.0 if one.recited.high is None else one.recited.high for one in groups)) <= max(
        HARMLESS, easy
    ):
        title = "Hardly any training data is recited"
        return say("pass", "clear", f"{evidence}.", title=title)
    title = "Too few sequences to say whether training data is recited"
    return say("info", "not_measured", f"{evidence}.", title=title)


def _overall(document: Recitation, model: str) -> list[Group]:
    """For each context all sequences together, where there were any."""
    contexts = {group.context for group in document.groups if group.model == model}
    found = [document.overall(model, context) for context in contexts]
    return [group for group in found if group is not None and group.recited.status == "measured"]


def _baseline(document: Recitation, context: int | None) -> Group | None:
    names = [model.name for model in document.models if model.role == "baseline"]
    groups = _overall(document, names[0]) if names else []
    return next((group for group in groups if group.context == context), None)


def _tried(document: Recitation, group: Group) -> str:
    settings = document.settings
    drawn = (
        "as many of each number of copies"
        if settings.sample == "normalized"
        else "drawn uniformly from the corpus"
    )
    if group.context is None:
        return f"whole sequences with gaps, {drawn}"
    return f"{settings.suffix} tokens after {group.context} tokens of context, {drawn}"


def _trends(document: Recitation) -> Iterator[Finding]:
    asked = {model.name for model in document.models if model.role == "asked"}
    for by, code, severity in (
        ("repetitions", "CM402", "medium"),
        ("context", "CM403", "low"),
        ("size", "CM403", "low"),
    ):
        these = [one for one in document.trends if one.by == by and (one.model is None or one.model in asked)]
        growing = [one for one in these if (one.trend.slope.low or 0.0) > 0.0]
        if growing:
            steepest = max(growing, key=lambda one: one.trend.slope.value or 0.0)
            yield finding(
                code,
                severity,  # type: ignore[arg-type]  # one of the severities, by the list above
                "found",
                _trend_words(steepest),
                estimates=[one.trend.slope for one in growing],
                subject=[] if steepest.model is None else [steepest.model],
                title={
                    "repetitions": "Repeated text is recited more",
                    "context": "More context brings out more",
                    "size": "Larger models recite more",
                }[by],
            )


def _trend_words(one: RecitationTrend) -> str:
    about = "" if one.model is None else f"{one.model}: "
    fit = "" if one.trend.r_squared is None else f"; R² {one.trend.r_squared:.2f}"
    return f"{about}by {_BY[one.by]}, {one.trend.slope.statement}{fit}."
