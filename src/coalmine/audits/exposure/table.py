"""Tables and sentences about exposures, with an interval for every number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from msgspec import UNSET

from coalmine.audits.exposure.results import ExposureResult, Exposures
from coalmine.evidence.tables import plain_table, rights
from coalmine.evidence.words import format_names, times_in_words
from coalmine.grouped import grouped
from coalmine.records.estimate import rounded_down, rounded_up
from coalmine.visible import visible

# Secrets of one kind that a table of the terminal shows.
MOST_SECRETS = 20

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table


def exposure_table(results: Exposures, texts: Mapping[str, str] | None = None) -> Group:
    """A table per format, under its name; `texts` are shown only if the user asked for them.

    Secrets that were found have a format each, so there is a table per kind, of those that are most exposed.
    """
    if results.natural:
        return under_names(
            "Kind", {kind: _rows(some, results.confidence, texts) for kind, some in _by_kind(results).items()}
        )
    names = format_names(results.formats)
    tables = {
        names[facts.format_id]: _rows(
            [result for result in results if result.format_id == facts.format_id], results.confidence, texts
        )
        for facts in results.formats
    }
    return under_format_names(tables)


def under_format_names(tables: Mapping[str, Table]) -> Group:
    """Tables one below the other, each under the name of its format."""
    return under_names("Format", tables)


def under_names(what: str, tables: Mapping[str, Table]) -> Group:
    """Tables one below the other, each under a name of something."""
    from rich.console import Group

    shown: list[RenderableType] = []
    for name, table in tables.items():
        shown += [*([""] if shown else []), f"{what}: {visible(name)}", table]
    return Group(*shown)


def _by_kind(results: Exposures) -> dict[str, list[ExposureResult]]:
    """Secrets that were found, by what they are: the most exposed of each kind, as many as fit on a screen."""
    found = grouped((str(one.kind), one) for one in results)
    shown = {}
    for kind, some in found.items():
        more = "" if len(some) <= MOST_SECRETS else f" (the {MOST_SECRETS} most exposed of {len(some):,})"
        most_exposed = sorted(some, key=lambda one: -(one.exposure or one.estimate.low or 0.0))
        shown[kind + more] = most_exposed[:MOST_SECRETS]
    return shown


def _rows(results: Sequence[ExposureResult], confidence: float, texts: Mapping[str, str] | None) -> Table:
    """One row per canary, the most repeated first."""
    numbers = rights("trained on", "exposure", f"{100 * confidence:g}% interval", "of at most", "rank")
    what = "secret" if any(one.kind is not UNSET for one in results) else "canary"
    table = plain_table(what, *numbers, "method", *(() if texts is None else ("text",)))
    # Stable: ties stay in the manifest's order.
    for result in sorted(results, key=lambda result: -result.repetitions):
        row = [
            visible(result.canary_id),
            times_in_words(result.repetitions),
            exposure_in_words(result),
            interval_in_words(result),
            f"{result.most_possible_bits:.2f}",
            "" if result.rank is None else f"{result.rank:,}",
            result.method,
        ]
        if texts is not None:
            row.append(visible(texts[result.canary_id]))
        table.add_row(*row)
    return table


def exposure_in_words(result: ExposureResult) -> str:
    """The exposure as a table shows it: a number, a bound, or "not measured"."""
    if result.exposure is not None:
        return f"{result.exposure:.2f}"
    if result.estimate.status == "lower_bound" and result.estimate.low is not None:
        return f"at least {rounded_down(result.estimate.low)}"
    return "not measured"


def interval_in_words(result: ExposureResult) -> str:
    """The interval as a table shows it."""
    low, high = result.interval
    if low is None or result.estimate.status == "not_measured":
        return ""
    if low == high:
        return "exact"
    # Rounded outwards, so that the interval shown is never narrower than the one measured.
    return f"{rounded_down(low)} to {'?' if high is None else rounded_up(high)}"


def exposure_warnings(results: Exposures) -> list[str]:
    """Each different warning once, with the canaries it is about."""
    about = grouped((text, result.canary_id) for result in results for text in result.estimate.warnings)
    lines = [f"Warning: {visible(warning)}." for warning in results.warnings]
    for warning, names in about.items():
        lines.append(f"Warning ({visible(_some(names))}): {visible(warning)}.")
    return lines


def not_measured_in_words(results: Exposures) -> list[str]:
    """Each reason why a number is missing, once, with the canaries that have none."""
    missing = [result for result in results if result.estimate.status == "not_measured"]
    about = grouped((result.estimate.statement, result.canary_id) for result in missing)
    return [f"Not measured ({visible(_some(names))}): {visible(why)}." for why, names in about.items()]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def methods_in_words(results: Exposures) -> list[str]:
    """Which method was chosen for each format if the user did not choose, and the speed that decided it."""
    if results.natural:
        return _methods_by_kind(results)
    names = format_names(results.formats)
    lines = []
    for one in results.formats:
        choice = results.choices.get(one.format_id)
        measured = f" ({choice.in_words})" if choice is not None and choice.in_words else ""
        if one.automatic:
            lines.append(
                f"Method for {visible(names[one.format_id])}: {one.method}, because {visible(one.why)}{measured}."
            )
    return lines


def _methods_by_kind(results: Exposures) -> list[str]:
    """The same for secrets, each of which has a format of its own."""
    kinds = {one.format_id: str(one.kind) for one in results}
    why = {(kinds[one.format_id], one.method): one.why for one in results.formats if one.automatic}
    used = grouped((kinds[one.format_id], one.method) for one in results.formats if one.automatic)
    return [
        f"Method for {methods.count(method):,} of the kind {visible(kind)}: {method}, because {visible(why[kind, method])}."
        for kind, methods in used.items()
        for method in dict.fromkeys(methods)
    ]


def exposure_in_plain_words(results: Exposures) -> list[str]:
    """What the exposures mean for each format, from never trained on to most repeated; a bound is called a bound."""
    names = format_names(results.formats)
    lines = []
    for facts in results.formats:
        if len(results.formats) > 1:
            lines.append(f"Format: {visible(names[facts.format_id])}")
        lines += _in_plain_words([result for result in results if result.format_id == facts.format_id])
    return lines


def _in_plain_words(results: Sequence[ExposureResult]) -> list[str]:
    lines = []
    for repetitions in sorted({result.repetitions for result in results}):
        group = [result for result in results if result.repetitions == repetitions]
        # The value, or the lower bound of a canary without a value.
        known = [r.estimate.low if r.exposure is None else r.exposure for r in group]
        values = [value for value in known if value is not None]
        if len(values) < len(group):
            lines.append(
                f"{_times(repetitions)}: {len(group) - len(values)} of {len(group)} could not be measured."
            )
        if values:
            middle = median(values)
            at_least = "at least " if any(result.exposure is None for result in group) else ""
            lines.append(
                f"{_times(repetitions)}: median exposure {at_least}{middle:.1f} bits, {_meaning(middle, group)}."
            )
    return lines


def _times(repetitions: int) -> str:
    if repetitions == 0:
        return "Never trained on"
    return f"Trained on {times_in_words(repetitions)}"


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
