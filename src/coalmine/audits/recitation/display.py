"""What recitation shows: the share by context, by copies and in other ways, trends, what one model recites alone, and the figures.

The figures are after Figures 1 and 2 of Quantifying Memorization Across Neural Language Models, Carlini, Ippolito, Jagielski, Lee,
Tramer and Zhang, 2022, arXiv:2202.07646.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from coalmine.audits.recitation.records import (
    RECITATIONS,
    Example,
    Exclusive,
    Group,
    Recitation,
    RecitationTrend,
)
from coalmine.evidence.charts import Axis, Chart, Marks, Rows, intervals, named_colors, rounded, short_names
from coalmine.evidence.run import Run
from coalmine.evidence.tables import Column, Table
from coalmine.records import Estimate
from coalmine.visible import visible

if TYPE_CHECKING:
    from rich.table import Table as RichTable

By = Literal["repetitions", "context", "size"]
_AXES: dict[By, tuple[str, str]] = {
    "repetitions": ("Recitation by repetitions", "copies in the corpus"),
    "context": ("Recitation by context", "tokens of context"),
    "size": ("Recitation by model size", "parameters"),
}
_SHARE = "share recited"


class _Shares(NamedTuple):
    """The shares of models under one heading; `documents` is how many these are of where several sequences are of one."""

    heading: str
    shares: dict[str, Estimate]
    sequences: int | None = None
    documents: int | None = None


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
        Column("recited suffix", lambda one: one.suffix),
        Column("by", lambda one: ", ".join(one.recited_by)),
    )
)


def terminal_tables(result: Recitation) -> Iterator[RichTable]:
    """The tables of a result: shares by context, by copies and in other ways, trends, what is recited by one model alone, and examples."""
    contexts = sorted({group.context or 0 for group in result.groups})
    whole = [[result.overall(one.name, context or None) for one in result.models] for context in contexts]
    names = [str(context) if context else no_context_in_words(result) for context in contexts]
    yield _shares_table(
        result, "context", [_shares(name, own) for name, own in zip(names, whole, strict=True)]
    )
    own = [one for one in result.groups if one.context == result.main_context and one.bucket is not None]
    buckets = [
        [one for one in own if one.bucket == bucket] for bucket in sorted({one.bucket or 0 for one in own})
    ]
    yield _shares_table(result, "copies", [_shares(_copies(some[0]), some) for some in buckets])
    main = [group for one in result.models if (group := result.overall(one.name, result.main_context))]
    if main and main[0].ways:
        rows = [_Shares("greedy decoding", {group.model: group.recited for group in main})]
        rows += [_Shares(way, {group.model: group.ways[way] for group in main}) for way in main[0].ways]
        yield _shares_table(result, "by", rows)
    trends = [one for one in _main_trends(result) if one.trend.slope.value is not None]
    if trends:
        yield TRENDS.terminal(trends)
    if len(result.models) > 1:
        names = [one.name for one in result.models]
        not_by = [Column(f"not {visible(name)}", partial(_not_recited_by, name=name)) for name in names]
        alone: Table[Exclusive] = Table(
            (Column("model", lambda one: one.model), Column("recites", lambda one: one.recited), *not_by)
        )
        yield alone.terminal(result.exclusive)
    if result.examples:
        yield EXAMPLES.terminal(result.examples)


def _shares_table(result: Recitation, heading: str, rows: list[_Shares]) -> RichTable:
    """One column per model."""
    models = [
        Column(
            visible(one.name) + (" (baseline)" if one.role == "baseline" else ""),
            partial(_share_of, model=one.name),
            "%",
        )
        for one in result.models
    ]
    table: Table[_Shares] = Table(
        (
            Column(heading, lambda row: row.heading),
            Column("sequences", lambda row: row.sequences),
            Column("documents", lambda row: row.documents),
            *models,
        )
    )
    return table.terminal(rows)


def _shares(heading: str, groups: list[Any]) -> _Shares:
    own = [group for group in groups if group is not None]
    first = own[0].recited.n if own else 0
    documents = own[0].clusters if own and own[0].clusters != first else None
    return _Shares(heading, {group.model: group.recited for group in own}, first, documents)


def _share_of(row: _Shares, model: str) -> Estimate | None:
    return row.shares.get(model)


def _not_recited_by(row: Exclusive, name: str) -> int | str:
    return row.not_recited_by.get(name, "-")


def _copies(group: Group) -> str:
    low, high = group.copies
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def no_context_in_words(result: Recitation) -> str:
    """What is given where it is not a number of tokens: the sequence itself with gaps, or to a chat endpoint the conversation before it."""
    return "conversation" if result.settings.hidden_share is None else "around gaps"


def _main_trends(result: Recitation) -> list[RecitationTrend]:
    return [one for one in result.trends if one.context in {None, result.main_context}]


def trend_notes(result: Recitation) -> list[str]:
    """What the trends of the table do not show, in sentences."""
    notes = {
        warning: f"{one.by}, {one.model or 'all models'}: {warning}"
        for one in _main_trends(result)
        for warning in one.trend.slope.warnings
    }
    return [visible(note) for note in notes.values()]


def in_plain_words(result: Recitation) -> str:
    """The answer in a sentence or two."""
    context, settings = result.main_context, result.settings
    shares = {"asked": list[str](), "baseline": list[str]()}
    for one in result.models:
        group = result.overall(one.name, context)
        if group is not None:
            verb = " recites " if one.role == "asked" else " "
            shares[one.role].append(f"{visible(one.name)}{verb}{group.recited.text('%')}")
    said = ", ".join(shares["asked"])
    beside = "".join(f"; the baseline {one}" for one in shares["baseline"])
    if context is not None:
        return f"Given {context} tokens, {said} of the suffixes of {settings.suffix} tokens{beside}."
    if settings.hidden_share is None:
        return f"Given the conversation before it, {said} of the first {settings.suffix} tokens of the assistant's turns{beside}."
    return f"With {100 * settings.hidden_share:.0f}% of the tokens hidden, {said} of the sequences."


def recitation_figures(run: Run) -> list[Chart]:
    """One figure for each quantity of which at least two values were tried."""
    document = run.first(RECITATIONS)
    return [] if document is None else recitation_charts(document)


def recitation_charts(document: Recitation) -> list[Chart]:
    """The same for one result."""
    found = ((by, _points(document, by)) for by in _AXES)
    return [_chart(document, by, rows) for by, rows in found if len({row[_AXES[by][1]] for row in rows}) > 1]


def _chart(document: Recitation, by: By, rows: Rows) -> Chart:
    names = short_names(
        [one.name for one in document.models if any(row["model"] == one.name for row in rows)]
    )
    title, x = _AXES[by]
    context = "" if document.main_context is None else f" with {document.main_context} tokens of context"
    trends = [
        one
        for one in document.trends
        if one.by == by and one.trend.intercept is not None and one.context in {None, document.main_context}
    ]
    words = (
        f"The share of sequences whose last {document.settings.suffix} tokens greedy decoding writes exactly"
        f"{'' if by == 'context' else context}, with exact {100 * document.settings.confidence:g}% intervals; lines are least-squares "
        "fits on the logarithm."
    )
    columns = ("model", x, _SHARE, "low", "high", "sequences")
    return Chart(
        id=f"recitation-by-{by}",
        title=title,
        caption=" ".join([words, *(f"{one.model or 'All models'}: {_fit_words(one)}." for one in trends)]),
        rows=[{**row, "name": names[row["model"]]} for row in rows],
        columns=columns,
        x=Axis(column=x, scales=("log", "linear"), format="~s", grid=False),
        y=Axis(column=_SHARE, format="~%"),
        marks=(
            *(
                Marks(kind="line", rows=own, dashed=True)
                for one in trends
                if (own := _fit(one, x, rows, names))
            ),
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
        part = group.length is not None or (by == "repetitions") != (group.bucket is not None)
        if x is not None and not part and not elsewhere and group.recited.status == "measured":
            rows.append(
                {
                    "model": group.model,
                    _AXES[by][1]: x,
                    _SHARE: rounded(group.recited.value, 6),
                    "low": rounded(group.recited.low, 6),
                    "high": rounded(group.recited.high, 6),
                    "sequences": group.recited.n,
                }
            )
    return rows


def _fit(one: RecitationTrend, x: str, rows: Rows, names: dict[str, str]) -> Rows:
    """The fitted line as points along it; that of all models together has no color."""
    own = [row[x] for row in rows if one.model in {None, row["model"]}]
    if not own:
        return []
    name = {} if one.model is None else {"name": names[one.model]}
    places = np.logspace(np.log10(min(own)), np.log10(max(own)), 30).tolist()
    rates = [(place, one.trend.rate_at(place)) for place in places]
    return [
        {x: rounded(place, 4), _SHARE: rounded(rate, 6), **name}
        for place, rate in rates
        if rate is not None and 0.0 <= rate <= 1.0
    ]


def _fit_words(one: RecitationTrend) -> str:
    fit = "" if one.trend.r_squared is None else f" (R² {one.trend.r_squared:.2f})"
    return f"{one.trend.slope.statement}{fit}"
