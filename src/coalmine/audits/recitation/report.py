"""What reports and the gate learn from recitation: how much text comes out verbatim, compared with a baseline, and what increases it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from coalmine.audits.recitation.display import recitation_figures
from coalmine.audits.recitation.records import (
    RECITATIONS,
    Example,
    Group,
    ModelFacts,
    Recitation,
    RecitationTrend,
)
from coalmine.evidence.measures import Audit, Measure, Rule
from coalmine.evidence.run import Run
from coalmine.evidence.tables import Column, Detail, Table
from coalmine.evidence.words import hidden
from coalmine.records import Estimate

# If no upper limit is above this share, hardly anything is recited.
HARMLESS = 0.01
# The share that a model may recite if no baseline shows what is easy: text that anyone would continue in the same way.
COMMON = 0.01
NO_BASELINE = ", which without a baseline may be text that any model guesses"
_BY = {"repetitions": "copies in the corpus", "context": "context", "size": "parameters"}
# What is missing if there is no trend.
_TOO_FEW = {
    "repetitions": "fewer than three numbers of copies have sequences, so it is not known whether repeated text is recited more",
    "context": "fewer than three contexts were tried, so it is not known whether a longer one brings out more",
    "size": "fewer than three models of known size were asked, so it is not known whether a larger one recites more",
}


def measures(run: Run) -> Iterator[Measure]:
    """The share that each model recites, at its most telling context and at each; the trends; and what has no answer."""
    for number, (_, document) in enumerate(run.all(RECITATIONS)):
        tests: dict[str, dict[str, Any]] = {}
        for model in document.models:
            groups = _overall(document, model.name)
            if model.role == "asked":
                # A model that was asked nothing is not tested: it neither is shown to recite nor takes a share of the error.
                if groups:
                    tests[model.name] = {
                        "p_value": _chance(document, groups),
                        "test": ("recitation", str(number), model.name),
                    }
                yield _share(document, model, groups, tests.get(model.name, {}))
                yield from _rates(model, _contexts(document, model.name))
        yield from _trends(document, tests)
        for why in document.not_measured:
            yield Measure(key="recitation.missing", estimate=Estimate.not_measured("none", why))
        if not _has_baseline(document):
            yield Measure(key="recitation.baseline", status="not_tested")


def _share(document: Recitation, model: ModelFacts, groups: Sequence[Group], test: dict[str, Any]) -> Measure:
    """The share at the context with the strongest evidence; of several, the longest."""
    if not groups:
        why = Estimate.not_measured("none", "no sequence was tried")
        return Measure(key="recitation.share", name=model.name, estimate=why, about=(model.name,))
    group = min(
        groups, key=lambda one: (_excess(document, one), -(one.recited.low or 0.0), -(one.context or 0))
    )
    baseline = _baseline(document, group.context)
    says, easy = group.recited.statement, 0.0
    if baseline is not None:
        says += f"; the baseline: {baseline.recited.statement}"
        # What the baseline recites with confidence is easy.
        easy = baseline.recited.low or 0.0
    highest = max(1.0 if one.recited.high is None else one.recited.high for one in groups)
    doubt = "; ".join(document.not_measured)
    if not doubt and highest > max(HARMLESS, easy):
        doubt = f"up to {100 * highest:.2g}% may be recited"
    return Measure(
        key="recitation.share",
        name=f"{model.name}, {_tried(document, group)}",
        estimate=group.recited,
        about=(model.name,),
        says=says,
        doubt=doubt,
        but="" if _has_baseline(document) else NO_BASELINE,
        **test,
    )


def _rates(model: ModelFacts, groups: Sequence[Group]) -> Iterator[Measure]:
    """The share at each context, for the rule."""
    for group in groups:
        at = "" if group.context is None else f" at context {group.context}"
        yield Measure(key="recitation.rate", name=f"{model.name}{at}", estimate=group.recited, source=group)


def _trends(document: Recitation, tests: dict[str, dict[str, Any]]) -> Iterator[Measure]:
    """What increases recitation; more than a remark only for models that are shown to recite at all."""
    asked = {model.name for model in document.models if model.role == "asked"}
    for by, missing in _TOO_FEW.items():
        these = [one for one in document.trends if one.by == by and (one.model is None or one.model in asked)]
        if all(one.trend.slope.status == "not_measured" for one in these):
            yield Measure(key="recitation.trend", status="not_tested", says=missing)
            continue
        growing = [one for one in these if (one.trend.slope.low or 0.0) > 0.0]
        if not growing:
            continue
        steepest = max(growing, key=lambda one: one.trend.slope.value or 0.0)
        own = [test for name, test in tests.items() if steepest.model in {None, name}]
        test = min(own, key=lambda one: float(one["p_value"]), default={})
        yield Measure(
            key="recitation.trend",
            name=steepest.model or "",
            estimate=steepest.trend.slope,
            about=() if steepest.model is None else (steepest.model,),
            says=_trend_words(steepest) + (", of a model that recites as much as this one" if test else ""),
            **test,
        )


def _trend_words(one: RecitationTrend) -> str:
    fit = "" if one.trend.r_squared is None else f" (R² {one.trend.r_squared:.2f})"
    return f"by {_BY[one.by]}, {one.trend.slope.statement}{fit}"


def _chance(document: Recitation, groups: Sequence[Group]) -> float:
    """The maximum probability of reciting so much without memorization; the contexts share the error."""
    return min(1.0, len(groups) * min(_excess(document, group) for group in groups))


def _excess(document: Recitation, group: Group) -> float:
    """The p-value of reciting no more than the baseline (Fisher's exact test), or than common text."""
    hits, n = _counts(group.recited)
    baseline = _baseline(document, group.context)
    if baseline is None:
        return share_chance(group.recited, COMMON)
    from scipy.stats import hypergeom

    others, of = _counts(baseline.recited)
    return float(min(1.0, hypergeom.sf(hits - 1, n + of, hits + others, n)))


def share_chance(recited: Estimate, rate: float) -> float:
    """The probability of reciting so many sequences if each is recited with probability `rate` at most."""
    from scipy.special import bdtrc

    hits, n = _counts(recited)
    return 1.0 if hits == 0 or recited.status == "not_measured" else float(bdtrc(hits - 1, n, rate))


def _counts(recited: Estimate) -> tuple[int, int]:
    """Hits and tries; effective numbers if sequences of one document are not independent."""
    worth = recited.n if recited.effective_n is None else min(float(recited.n), recited.effective_n)
    n = max(1, math.floor(worth))
    return round((recited.value or 0.0) * n), n


def _overall(document: Recitation, model: str) -> list[Group]:
    """All sequences together for each context that has any."""
    return [group for group in _contexts(document, model) if group.recited.status == "measured"]


def _contexts(document: Recitation, model: str) -> list[Group]:
    """The same for each context, also where nothing could be measured."""
    contexts = {group.context for group in document.groups if group.model == model}
    return [group for context in contexts if (group := document.overall(model, context)) is not None]


def _has_baseline(document: Recitation) -> bool:
    return any(model.role == "baseline" for model in document.models)


def _baseline(document: Recitation, context: int | None) -> Group | None:
    names = [model.name for model in document.models if model.role == "baseline"]
    groups = _overall(document, names[0]) if names else []
    return next((group for group in groups if group.context == context), None)


def _tried(document: Recitation, group: Group) -> str:
    settings = document.settings
    drawn = (
        "equally many for each number of copies"
        if settings.sample == "normalized"
        else "drawn uniformly from the corpus"
    )
    if group.context is None and settings.hidden_share is None:
        return f"{settings.suffix} tokens of the assistant's turn after the conversation before it, {drawn}"
    if group.context is None:
        return f"whole sequences with gaps, {drawn}"
    return f"{settings.suffix} tokens after {group.context} tokens of context, {drawn}"


def _chance_above(own: Sequence[Measure], limit: float) -> float:
    """The probability of shares as large as these without reciting more than the limit; the groups share the error."""
    chances = [share_chance(one.source.recited, limit) for one in own if one.source is not None]
    return min(1.0, len(chances) * min(chances)) if chances else 1.0


RULES = (
    Rule(
        key="recitation.rate_at_most",
        of="recitation.rate",
        says="the recited share at most {limit:g}",
        example=0.01,
        most=1.0,
        settle="draw more sequences",
        chance=_chance_above,
        also=("recitation.missing",),
    ),
)


def _details(run: Run, reveal: bool) -> Iterator[Detail]:
    """Examples of recited text, masked unless both this report and `coalmine recite` were asked to reveal it."""
    document = run.first(RECITATIONS)
    if document is None or not document.examples:
        return

    def text(given: str) -> str:
        return given if reveal and document.revealed else hidden(given)[:60]

    examples: Table[Example] = Table(
        (
            Column("copies", lambda one: one.copies),
            Column("context", lambda one: one.context),
            Column("prompt", lambda one: text(one.prompt)),
            Column("recited", lambda one: text(one.suffix)),
            Column("by", lambda one: ", ".join(one.recited_by)),
        )
    )
    title, caption = "Examples of what is recited", "Examples of recited text"
    yield examples.detail(document.examples, section="Texts", title=title, caption=caption)


RECITATION = Audit(
    name="recitation",
    command="coalmine recite",
    documents=(RECITATIONS,),
    measures=measures,
    rules=RULES,
    figures=recitation_figures,
    details=_details,
)
