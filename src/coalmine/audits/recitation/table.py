"""Tables and sentences about recitation: the share by copies and context, trends, and what only one model recites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coalmine.audits.recitation.options import RecitationOptions
from coalmine.audits.recitation.results import Group, Recitation
from coalmine.evidence.tables import Right, plain_table, rights
from coalmine.records import Estimate
from coalmine.visible import visible

# The maximum number of models whose intervals fit beside their shares.
BESIDE = 3

if TYPE_CHECKING:
    from rich.table import Table


def percent(estimate: Estimate | None, *, below: bool = False) -> str:
    """A share as a table shows it, with its interval beside or below it; "not measured" if there is none."""
    if estimate is None:
        return ""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "not measured"
    value, limits = f"{100 * estimate.value:.1f}%", f"{100 * estimate.low:.1f} to {100 * estimate.high:.1f}"
    return f"{value}\n{limits}" if below else f"{value} ({limits})"


def _many(result: Recitation) -> bool:
    """Whether there are too many models for intervals beside the shares."""
    return len(result.models) > BESIDE


def _copies(group: Group) -> str:
    low, high = group.copies
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _documents_column(result: Recitation) -> list[str]:
    """A column for documents if several sequences are from one: then their number determines the width of intervals."""
    apart = all(group.clusters in {None, group.recited.n} for group in result.groups)
    return [] if apart else ["documents"]


def _counts(result: Recitation, group: Group) -> list[str]:
    """How many sequences, and how many documents if that is a different number."""
    documents = f"{group.clusters:,}" if group.clusters is not None else ""
    return [f"{group.recited.n:,}", *([documents] if _documents_column(result) else [])]


def _names(result: Recitation) -> list[str]:
    return [facts.name for facts in result.models]


def _headed(result: Recitation, first: Sequence[str]) -> Table:
    models = [
        visible(facts.name) + (" (baseline)" if facts.role == "baseline" else "") for facts in result.models
    ]
    return plain_table(*rights(*first, *models))


def no_context_in_words(settings: RecitationOptions) -> str:
    """What is given where it is not a number of tokens: the sequence itself with gaps, or to a chat endpoint the conversation before it."""
    return "conversation" if settings.hidden_share is None else "around gaps"


def by_context_table(result: Recitation) -> Table:
    """The recited share, one row per context and one column per model."""
    table = _headed(result, ["context", "sequences", *_documents_column(result)])
    contexts = sorted({group.context or 0 for group in result.groups})
    for context in contexts:
        groups = [result.overall(name, context or None) for name in _names(result)]
        counts = next((_counts(result, group) for group in groups if group is not None), ["0"])
        shares = [
            percent(group.recited, below=_many(result)) if group is not None else "" for group in groups
        ]
        table.add_row(str(context) if context else no_context_in_words(result.settings), *counts, *shares)
    return table


def by_copies_table(result: Recitation) -> Table:
    """The recited share at the main context, one row per number of copies and one column per model."""
    table = _headed(result, ["copies", "sequences", *_documents_column(result)])
    context = result.main_context
    own = [group for group in result.groups if group.context == context and group.bucket is not None]
    for bucket in sorted({group.bucket for group in own if group.bucket is not None}):
        groups = [group for group in own if group.bucket == bucket]
        shares = {group.model: percent(group.recited, below=_many(result)) for group in groups}
        table.add_row(
            _copies(groups[0]),
            *_counts(result, groups[0]),
            *(shares.get(name, "") for name in _names(result)),
        )
    return table


def other_ways_table(result: Recitation) -> Table | None:
    """Besides greedy decoding: sampling, beams, matches anywhere, near matches; at the main context; None if none was asked for."""
    found = [result.overall(name, result.main_context) for name in _names(result)]
    groups = [group for group in found if group is not None]
    if len(groups) < len(found):
        return None
    rows: list[tuple[str, list[Estimate | None]]] = []
    for place, one in enumerate(groups[0].sampled):
        tries = "1 try" if one.tries == 1 else f"{one.tries:,} tries"
        rows.append((f"sampled, in {tries}", [group.sampled[place].share for group in groups]))
    settings = result.settings
    if settings.beam is not None:
        rows.append((f"best of {settings.beam} beams", [group.beam for group in groups]))
        rows.append((f"among {settings.beam} beams", [group.among_beams for group in groups]))
    if settings.anywhere:
        rows.append(("output anywhere in the corpus", [group.anywhere for group in groups]))
    if settings.near is not None:
        rows.append((f"up to {settings.near} edits", [group.near for group in groups]))
    if not rows:
        return None
    table = _headed(result, ["by"])
    table.columns[0].justify = "left"
    rows.insert(0, ("greedy decoding", [group.recited for group in groups]))
    for label, shares in rows:
        table.add_row(label, *(percent(share, below=_many(result)) for share in shares))
    return table


def trends_table(result: Recitation) -> Table | None:
    """Each trend at the main context; None if none has enough points."""
    table = plain_table("trend with", "of", *rights("points for ten times as much", "p", "R²"))
    for one in result.trends:
        slope = one.trend.slope
        if one.context not in {None, result.main_context} or slope.value is None:
            continue
        low, high = (100 * float(limit or 0.0) for limit in slope.interval)
        table.add_row(
            one.by,
            visible(one.model) if one.model is not None else "all models",
            f"{100 * slope.value:+.1f} ({low:+.1f} to {high:+.1f})",
            "" if one.trend.p_value is None else f"{one.trend.p_value:.2g}",
            "" if one.trend.r_squared is None else f"{one.trend.r_squared:.2f}",
        )
    return table if table.row_count else None


def trend_notes(result: Recitation) -> list[str]:
    """What the trends of the table do not show, in sentences."""
    notes: dict[str, str] = {}
    for one in result.trends:
        if one.context in {None, result.main_context}:
            about = f"{one.by}, {'all models' if one.model is None else visible(one.model)}"
            notes |= {warning: f"{about}: {visible(warning)}" for warning in one.trend.slope.warnings}
    return list(notes.values())


def exclusive_table(result: Recitation) -> Table | None:
    """How many sequences one model recites and another does not, at the main context; None for a single model."""
    names = _names(result)
    if len(names) < 2:
        return None
    table = plain_table("model", *rights("recites", *(f"not {visible(name)}" for name in names)))
    for row in result.exclusive:
        if row.context == result.main_context:
            others = (
                f"{row.not_recited_by[name]:,}" if name in row.not_recited_by else "-" for name in names
            )
            table.add_row(visible(row.model), f"{row.recited:,}", *others)
    return table


def examples_table(result: Recitation) -> Table | None:
    """Some of what was recited, the least repeated first."""
    if not result.examples:
        return None
    table = plain_table("document:offset", Right("copies"), "recited suffix", "by")
    for one in result.examples:
        table.add_row(
            f"{one.document}:{one.offset}",
            f"{one.copies:,}",
            visible(one.suffix),
            visible(", ".join(one.recited_by)),
        )
    return table


def in_plain_words(result: Recitation) -> str:
    """The answer in a sentence or two."""
    asked = [facts.name for facts in result.models if facts.role == "asked"]
    context, settings = result.main_context, result.settings
    shares = [result.overall(name, context) for name in asked]
    said = ", ".join(
        f"{visible(name)} recites {percent(group.recited)}"
        for name, group in zip(asked, shares, strict=True)
        if group is not None
    )
    baseline = [result.overall(facts.name, context) for facts in result.models if facts.role == "baseline"]
    beside = "".join(
        f"; the baseline {visible(group.model)} {percent(group.recited)}"
        for group in baseline
        if group is not None
    )
    if context is None and settings.hidden_share is None:
        return f"Given the conversation before it, {said} of the first {settings.suffix} tokens of the assistant's turns{beside}."
    if context is None:
        return (
            f"With {100 * (settings.hidden_share or 0):.0f}% of the tokens hidden, {said} of the sequences."
        )
    return f"Given {context} tokens, {said} of the suffixes of {settings.suffix} tokens{beside}."
