"""What recitation shows: how much text comes out verbatim, compared with a baseline, and what increases it; tables and figures of it.

The figures are after Figures 1 and 2 of Quantifying Memorization Across Neural Language Models, Carlini, Ippolito, Jagielski, Lee,
Tramer and Zhang, 2022, arXiv:2202.07646.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from coalmine.audits.recitation.records import (
    RECITATIONS,
    Example,
    Group,
    ModelFacts,
    Recitation,
    RecitationTrend,
)
from coalmine.evidence.charts import Axis, Chart, Marks, Rows, intervals, named_colors, rounded, short_names
from coalmine.evidence.measures import Audit, Measure, Rule
from coalmine.evidence.run import Run
from coalmine.evidence.tables import Column, Detail, Table
from coalmine.evidence.words import hidden
from coalmine.records import Estimate

if TYPE_CHECKING:
    from rich.table import Table as RichTable

# If no upper limit is above this share, hardly anything is recited.
HARMLESS = 0.01
# The share that a model may recite if no baseline shows what is easy: text that anyone would continue in the same way.
COMMON = 0.01
NO_BASELINE = ", which without a baseline may be text that any model guesses"

By = Literal["repetitions", "context", "size"]
# The title of the figure, the name of its axis, and what a trend needs three of.
_AXES: dict[By, tuple[str, str, str]] = {
    "repetitions": ("Recitation by repetitions", "copies in the corpus", "numbers of copies"),
    "context": ("Recitation by context", "tokens of context", "contexts"),
    "size": ("Recitation by model size", "parameters", "models of known size"),
}
_SHARE = "share recited"

TRENDS: Table[RecitationTrend] = Table(
    (
        Column("trend with", lambda one: one.by),
        Column("of", lambda one: one.model or "all models"),
        Column("share for ten times as much", lambda one: one.trend.slope, "%"),
        Column("p", lambda one: one.trend.p_value, "p"),
        Column("R²", lambda one: one.trend.r_squared),
    )
)
EXAMPLES: Table[Example] = Table(
    (
        Column("document:offset", lambda one: f"{one.document}:{one.offset}"),
        Column("copies", lambda one: one.copies),
        Column("context", lambda one: one.context),
        Column("prompt", lambda one: one.prompt, short=""),
        Column("recited suffix", lambda one: one.suffix),
        Column("by", lambda one: ", ".join(one.recited_by)),
    )
)


def terminal_tables(result: Recitation) -> Iterator[RichTable]:
    """The tables of a result: shares by context, by copies and in other ways, trends, what is recited by one model alone, and examples."""
    main, given = result.main_context, given_in_words(result)
    baselines = {one.name for one in result.models if one.role == "baseline"}
    shares: Table[Group] = Table(
        (
            Column("model", lambda one: f"{one.model} (baseline)" if one.model in baselines else one.model),
            Column("context", lambda one: one.context or given),
            Column("copies", lambda one: " to ".join(f"{many:,}" for many in dict.fromkeys(one.copies))),
            Column("sequences", lambda one: one.recited.n),
            Column("recited", lambda one: one.recited, "%"),
        )
    )
    whole = [one for one in result.groups if one.bucket is None]
    ways = [_way(way) for way in (whole[0].ways if whole else ())]
    yield Table((*shares.columns, *ways)).terminal(whole)
    yield shares.terminal(one for one in result.groups if one.bucket is not None and one.context == main)
    shown = [one for one in result.trends if one.trend.slope.value is not None]
    if trends := [one for one in shown if one.context in {None, main}]:
        yield TRENDS.terminal(trends)
    if len(result.models) > 1:
        others = (_not_by(one.name) for one in result.models)
        yield Table((Column("only", _first), *others)).terminal(result.exclusive.items())
    if result.examples:
        yield EXAMPLES.terminal(result.examples)


def _way(way: str) -> Column[Group]:
    return Column(way, lambda one: one.ways[way], "%")


def _first(row: tuple[str, dict[str, int]]) -> str:
    return row[0]


def _not_by(name: str) -> Column[tuple[str, dict[str, int]]]:
    return Column(f"not {name}", lambda row: row[1].get(name, "-"))


def given_in_words(result: Recitation) -> str:
    """What is given where it is not a number of tokens."""
    masked = result.settings.hidden_share is not None
    return "the text around gaps" if masked else "the conversation before it"


def in_plain_words(result: Recitation) -> str:
    """The answer in a sentence."""
    shares = [
        f"{one.name}{' (baseline)' if one.role == 'baseline' else ''} recites {group.recited.text('%')}"
        for one in result.models
        if (group := result.overall(one.name, result.main_context)) is not None
    ]
    given = f"{result.main_context} tokens" if result.main_context else given_in_words(result)
    return f"Given {given}, {', '.join(shares)} of the sequences ({result.settings.suffix} tokens each)."


def measures(run: Run) -> Iterator[Measure]:
    """The share that each model recites, at its most telling context and at each; the trends; and what has no answer."""
    for number, (_, document) in enumerate(run.all(RECITATIONS)):
        tests: dict[str, dict[str, Any]] = {}
        for model in document.models:
            groups = [one for one in document.groups if one.model == model.name and one.bucket is None]
            measured = [one for one in groups if one.recited.status == "measured"]
            if model.role == "asked":
                # A model that was asked nothing is not tested: it neither is shown to recite nor takes a share of the error.
                if measured:
                    # The contexts share the error.
                    p_value = min(1.0, len(measured) * min(_excess(document, one) for one in measured))
                    tests[model.name] = {"p_value": p_value, "test": ("recitation", str(number), model.name)}
                yield _share(document, model, measured, tests.get(model.name, {}))
                for group in groups:
                    name = f"{model.name}, context {group.context or given_in_words(document)}"
                    yield Measure(key="recitation.rate", name=name, estimate=group.recited, source=group)
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
    given = given_in_words(document) if group.context is None else f"{group.context} tokens"
    return Measure(
        key="recitation.share",
        name=f"{model.name}, given {given} ({document.settings.sample} sample)",
        estimate=group.recited,
        about=(model.name,),
        says=says,
        doubt=doubt,
        but="" if _has_baseline(document) else NO_BASELINE,
        **test,
    )


def _trends(document: Recitation, tests: dict[str, dict[str, Any]]) -> Iterator[Measure]:
    """What increases recitation; more than a remark only for models that are shown to recite at all."""
    asked = {model.name for model in document.models if model.role == "asked"}
    for by, (_, axis, many) in _AXES.items():
        these = [one for one in document.trends if one.by == by and (one.model is None or one.model in asked)]
        if all(one.trend.slope.status == "not_measured" for one in these):
            yield Measure(
                key="recitation.trend", status="not_tested", says=f"fewer than three {many} were tried"
            )
            continue
        growing = [one for one in these if (one.trend.slope.low or 0.0) > 0.0]
        if not growing:
            continue
        steepest = max(growing, key=lambda one: one.trend.slope.value or 0.0)
        own = [test for name, test in tests.items() if steepest.model in {None, name}]
        test = min(own, key=lambda one: float(one["p_value"]), default={})
        fit = "" if steepest.trend.r_squared is None else f" (R² {steepest.trend.r_squared:.2f})"
        yield Measure(
            key="recitation.trend",
            name=steepest.model or "",
            estimate=steepest.trend.slope,
            about=() if steepest.model is None else (steepest.model,),
            says=f"by {axis}, {steepest.trend.slope.statement}{fit}",
            **test,
        )


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


def _has_baseline(document: Recitation) -> bool:
    return any(model.role == "baseline" for model in document.models)


def _baseline(document: Recitation, context: int | None) -> Group | None:
    names = [model.name for model in document.models if model.role == "baseline"]
    group = document.overall(names[0], context) if names else None
    return None if group is None or group.recited.status != "measured" else group


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


def recitation_charts(document: Recitation) -> list[Chart]:
    """One figure for each quantity of which at least two values were tried."""
    found = ((by, _points(document, by)) for by in _AXES)
    return [_chart(document, by, rows) for by, rows in found if len({row[_AXES[by][1]] for row in rows}) > 1]


def _chart(document: Recitation, by: By, rows: Rows) -> Chart:
    names = short_names(list(dict.fromkeys(str(row["model"]) for row in rows)))
    title, x, _ = _AXES[by]
    main = document.main_context
    context = "" if by == "context" or main is None else f" with {main} tokens of context"
    columns = ("model", x, _SHARE, "low", "high", "sequences")
    return Chart(
        id=f"recitation-by-{by}",
        title=title,
        caption=f"The share of sequences whose last {document.settings.suffix} tokens greedy decoding writes exactly{context}, with "
        f"exact {100 * document.settings.confidence:g}% intervals.",
        rows=[{**row, "name": names[row["model"]]} for row in rows],
        columns=columns,
        x=Axis(column=x, scale="log", format="~s", grid=False),
        y=Axis(column=_SHARE, format="~%"),
        marks=(
            Marks(kind="line", dashed=True),
            intervals("low", "high"),
            Marks(kind="points", shows=columns),
        ),
        color="name",
        colors=named_colors(list(names.values())),
        leads=True,
    )


def _points(document: Recitation, by: By) -> Rows:
    """The shares that were measured, each at its place."""
    sizes = {one.name: one.parameters for one in document.models if one.role == "asked"}
    rows: Rows = []
    for group in document.groups:
        x = {
            "repetitions": rounded(group.mean_copies, 3),
            "context": group.context,
            "size": sizes.get(group.model),
        }[by]
        elsewhere = by != "context" and group.context != document.main_context
        part = (by == "repetitions") != (group.bucket is not None)
        if x is not None and not part and not elsewhere and group.recited.status == "measured":
            share, low, high = (
                rounded(one, 6) for one in (group.recited.value, group.recited.low, group.recited.high)
            )
            row = {_AXES[by][1]: x, _SHARE: share, "low": low, "high": high, "sequences": group.recited.n}
            rows.append({"model": group.model, **row})
    return rows


def _details(run: Run, reveal: bool) -> Iterator[Detail]:
    """Examples of recited text, masked unless both this report and `coalmine recite` were asked to reveal it."""
    document = run.first(RECITATIONS)
    if document is None or not document.examples:
        return
    examples = document.examples
    if not (reveal and document.revealed):
        examples = tuple(
            msgspec.structs.replace(one, prompt=hidden(one.prompt)[:60], suffix=hidden(one.suffix)[:60])
            for one in examples
        )
    title, caption = "Examples of what is recited", "Examples of recited text"
    yield EXAMPLES.detail(examples, section="Texts", title=title, caption=caption)


RECITATION = Audit(
    name="recitation",
    command="coalmine recite",
    documents=(RECITATIONS,),
    measures=measures,
    rules=RULES,
    figures=lambda run: [
        chart for one in [run.first(RECITATIONS)] if one for chart in recitation_charts(one)
    ],
    details=_details,
)
