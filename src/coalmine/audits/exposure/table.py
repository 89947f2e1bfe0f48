"""Tables and sentences about exposures, with an interval for every number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from coalmine.audits.exposure.results import ExposureResult, Exposures
from coalmine.evidence.charts import rounded
from coalmine.evidence.tables import Column, Table
from coalmine.evidence.words import format_names, times_in_words
from coalmine.grouped import grouped
from coalmine.visible import visible

# Secrets of one kind that a table of the terminal shows.
MOST_SECRETS = 20

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table as RichTable


def canary_table(
    names: Mapping[str, str], texts: Mapping[str, str] | None = None, what: str = "canary"
) -> Table[ExposureResult]:
    """One row per canary, or what these are called: for the terminal, the page and the data of the figure; texts where revealed."""
    texts = {} if texts is None else texts
    return Table(
        (
            Column(what, lambda one: one.canary_id),
            Column("format", lambda one: names[one.format_id], short=""),
            Column("trained on", lambda one: one.repetitions),
            Column("planted", lambda one: one.planted, short=""),
            Column("exposure (bits)", lambda one: one.estimate),
            Column("most possible", lambda one: rounded(one.most_possible_bits, 2), short="of at most"),
            Column("status", lambda one: one.estimate.status, short=""),
            Column("rank", lambda one: one.rank),
            Column("log-perplexity (bits)", lambda one: rounded(one.known_log_perplexity_bits), short=""),
            Column("method", lambda one: one.method),
            Column("text", lambda one: texts.get(one.canary_id), secret=True),
        )
    )


def height(result: ExposureResult) -> float:
    """The exposure, or its lower bound (bits)."""
    return float(result.estimate.low or 0.0) if result.exposure is None else result.exposure


def most_exposed_first(document: Exposures) -> list[ExposureResult]:
    """The canaries by their exposure or its lower bound, the highest first; those without a number last."""
    return sorted(
        document.results, key=lambda result: (result.estimate.status == "not_measured", -height(result))
    )


def exposure_table(results: Exposures, texts: Mapping[str, str] | None = None) -> Group:
    """A table per format, under its name; `texts` are shown only if the user asked for them.

    Secrets that were found have a format each, so there is a table per kind, of those that are most exposed.
    """
    names = format_names(results.formats)
    table = canary_table(names, texts, "secret" if results.natural else "canary")

    def shown(rows: Sequence[ExposureResult]) -> RichTable:
        # The most repeated first; stable, so that ties stay in their order.
        ordered = sorted(rows, key=lambda result: -result.repetitions)
        return table.terminal(ordered, reveal=texts is not None)

    if not results.natural:
        rows = grouped((one.format_id, one) for one in results)
        return under_names("Format", {names[name]: shown(some) for name, some in rows.items()})
    tables = {}
    for kind, some in grouped((str(one.kind), one) for one in most_exposed_first(results)).items():
        more = "" if len(some) <= MOST_SECRETS else f" (the {MOST_SECRETS} most exposed of {len(some):,})"
        tables[kind + more] = shown(some[:MOST_SECRETS])
    return under_names("Kind", tables)


def under_names(what: str, tables: Mapping[str, RichTable]) -> Group:
    """Tables one below the other, each under a name of something."""
    from rich.console import Group

    shown: list[RenderableType] = []
    for name, table in tables.items():
        shown += [*([""] if shown else []), f"{what}: {visible(name)}", table]
    return Group(*shown)


def exposure_warnings(results: Exposures) -> list[str]:
    """Each different warning once, with the canaries it is about."""
    about = grouped((text, result.canary_id) for result in results for text in result.estimate.warnings)
    return [f"Warning: {visible(warning)}." for warning in results.warnings] + _about(about, "Warning")


def not_measured_in_words(results: Exposures) -> list[str]:
    """Each reason why a number is missing, once, with the canaries that have none."""
    missing = [result for result in results if result.estimate.status == "not_measured"]
    return _about(
        grouped((result.estimate.statement, result.canary_id) for result in missing), "Not measured"
    )


def _about(reasons: Mapping[str, Sequence[str]], what: str) -> list[str]:
    return [
        f"{what} ({visible(', '.join(names[:3]))}"
        f"{f' and {len(names) - 3} more' if len(names) > 3 else ''}): {visible(why)}."
        for why, names in reasons.items()
    ]


def methods_in_words(results: Exposures) -> list[str]:
    """Which method was chosen if the user did not choose, for each format or kind of secrets, and the speed that decided it."""
    kinds = {one.format_id: f"secrets of the kind {one.kind}" for one in results} if results.natural else {}
    names = format_names(results.formats) | kinds
    lines = []
    for one in results.formats:
        choice = results.choices.get(one.format_id)
        measured = f" ({choice.in_words})" if choice is not None and choice.in_words else ""
        if one.automatic:
            lines.append(
                f"Method for {visible(names[one.format_id])}: {one.method}, because {visible(one.why)}{measured}."
            )
    return list(dict.fromkeys(lines))


def exposure_in_plain_words(results: Exposures) -> list[str]:
    """What the exposures mean for each format, from never trained on to most repeated; a bound is called a bound."""
    names = format_names(results.formats)
    lines = []
    for facts in results.formats:
        if len(results.formats) > 1:
            lines.append(f"Format: {visible(names[facts.format_id])}")
        own = sorted(
            (one for one in results if one.format_id == facts.format_id), key=lambda one: one.repetitions
        )
        for times, group in grouped((one.repetitions, one) for one in own).items():
            lines += _in_plain_words(
                f"Trained on {times_in_words(times)}" if times else "Never trained on", group
            )
    return lines


def _in_plain_words(trained: str, group: Sequence[ExposureResult]) -> Iterable[str]:
    # The value, or the lower bound of a canary without a value.
    known = [one.estimate.low if one.exposure is None else one.exposure for one in group]
    values = [value for value in known if value is not None]
    if len(values) < len(group):
        yield f"{trained}: {len(group) - len(values)} of {len(group)} could not be measured."
    if values:
        middle = median(values)
        at_least = "at least " if any(result.exposure is None for result in group) else ""
        yield f"{trained}: median exposure {at_least}{middle:.1f} bits, {_meaning(middle, group)}."


def _meaning(middle: float, group: Sequence[ExposureResult]) -> str:
    # Exact and proven ranks alone: a rank among references is not one among all possible secrets.
    first = sum(result.rank == 1 and result.estimate.confidence is None for result in group)
    if first:
        whose = "it is" if first == len(group) == 1 else f"{first} of {len(group)} are"
        return f"and {whose} the model's first guess among all possible secrets: extractable"
    if middle < 3:
        return "about what guessing gives (1)"
    return (
        f"so guessing with the model takes {2 ** (middle - 1):,.0f} times fewer tries than guessing blindly"
    )
