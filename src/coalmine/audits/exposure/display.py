"""Tables, sentences and the figure of exposure, with an interval for every number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from coalmine.audits.exposure.results import ASKED_FOR, EXPOSURES, ExposureResult, Exposures
from coalmine.corpus.planting.manifest import MANIFESTS
from coalmine.evidence.charts import Axis, Chart, Marks, Rows, copies_colors, intervals, rounded, thinned
from coalmine.evidence.run import Run
from coalmine.evidence.tables import Column, Table
from coalmine.evidence.words import FormatNames, format_names, times_in_words
from coalmine.grouped import grouped
from coalmine.visible import visible

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table as RichTable

# Secrets that a table of the terminal shows.
MOST_SECRETS = 20
# More points than this cannot be distinguished, and make the page slow.
MOST_POINTS = 2_000
# Without memorization, 95 of 100 canaries stay below this many bits.
GUESSING_BITS = math.log2(20)


def names_of_formats(run: Run) -> FormatNames:
    """The names of all formats that the results or the manifests of a run describe."""
    templates: dict[str, str] = {}
    for _, canaries in reversed(run.all(MANIFESTS)):
        templates |= {format_id: form.template for format_id, form in canaries.formats.items()}
    for _, document in reversed(run.all(EXPOSURES)):
        templates |= {facts.format_id: facts.template for facts in document.formats}
    return format_names(templates)


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


def exposure_table(results: Exposures, texts: Mapping[str, str] | None = None) -> RenderableType:
    """A table per format, or of the most exposed secrets; `texts` are shown only if the user asked for them."""
    names = format_names(results.formats)
    table = canary_table(names, texts, "secret" if results.natural else "canary")
    if results.natural:
        return table.terminal(most_exposed_first(results)[:MOST_SECRETS], reveal=texts is not None)
    rows = grouped((names[one.format_id], one) for one in sorted(results, key=lambda one: -one.repetitions))
    return under_names(
        "Format", {name: table.terminal(some, reveal=texts is not None) for name, some in rows.items()}
    )


def under_names(what: str, tables: Mapping[str, RichTable]) -> Group:
    """Tables one below the other, each under a name of something."""
    from rich.console import Group

    shown: list[RenderableType] = []
    for name, table in tables.items():
        shown += [*([""] if shown else []), f"{what}: {visible(name)}", table]
    return Group(*shown)


def remarks_in_words(results: Exposures) -> list[str]:
    """Which method was chosen for each format if the user did not choose, and each warning and missing number once, with its canaries."""
    names = format_names(results.formats)
    lines = [
        f"Method for {visible(names[one.format_id])}: {one.method}, because {visible(one.why)}."
        for one in results.formats
        if one.why != ASKED_FOR and not results.natural
    ]
    about = [
        (("Not measured", one.estimate.statement), one.canary_id)
        for one in results
        if one.estimate.status == "not_measured"
    ]
    about += [(("Warning", text), one.canary_id) for one in results for text in one.estimate.warnings]
    for (what, why), canaries in grouped(about).items():
        more = f" and {len(canaries) - 3} more" if len(canaries) > 3 else ""
        lines.append(f"{what} ({visible(', '.join(canaries[:3]))}{more}): {visible(why)}.")
    return [*lines, *(f"Warning: {visible(warning)}." for warning in results.warnings)]


def exposure_in_plain_words(results: Exposures) -> list[str]:
    """What the exposures mean, from never trained on to most repeated; a bound is called a bound."""
    names, lines = format_names(results.formats), []
    ordered = sorted(results, key=lambda one: one.repetitions)
    for (format_id, times), group in grouped(
        ((one.format_id, one.repetitions), one) for one in ordered
    ).items():
        trained = f"Trained on {times_in_words(times)}" if times else "Never trained on"
        if len(results.formats) > 1:
            trained = f"{visible(names[format_id])}: {trained}"
        known = [one for one in group if one.estimate.status != "not_measured"]
        if len(known) < len(group):
            lines.append(f"{trained}: {len(group) - len(known)} of {len(group)} could not be measured.")
        if known:
            bits = median(map(height, known))
            at_least = "at least " if any(one.exposure is None for one in known) else ""
            lines.append(f"{trained}: median exposure {at_least}{bits:.1f} bits, {_meaning(bits, known)}.")
    return lines


def _meaning(bits: float, group: Sequence[ExposureResult]) -> str:
    # Exact and proven ranks alone: a rank among references is not one among all possible secrets.
    first = sum(result.rank == 1 and result.estimate.confidence is None for result in group)
    if first:
        whose = "it is" if first == len(group) == 1 else f"{first} of {len(group)} are"
        return f"and {whose} the model's first guess among all possible secrets: extractable"
    if bits < 3:
        return "about what guessing gives (1)"
    return f"so guessing with the model takes {2 ** (bits - 1):,.0f} times fewer tries than guessing blindly"


def exposure_figure(document: Exposures | None) -> Chart | None:
    """Exposure against repetitions, a panel per format; None without exposures."""
    if document is None or not document.results:
        return None
    names = format_names(document.formats)
    measured = sorted(
        (result for result in document.results if result.estimate.status != "not_measured"),
        key=lambda result: (result.repetitions, height(result)),
    )
    drawn = [measured[place] for place in thinned(len(measured), MOST_POINTS)]
    shown = ""
    if len(drawn) < len(measured):
        shown = f" {len(drawn):,} of {len(measured):,} canaries are drawn, spread evenly over their exposures; all are in the data."
    if unmeasured := len(document.results) - len(measured):
        shown += (
            f" {unmeasured:,} of {len(document.results):,} canaries could not be measured, and have no point."
        )
    most = grouped((names[result.format_id], result.most_possible_bits) for result in document.results)
    rows: Rows = [
        {
            "canary": result.canary_id,
            "trained on": times_in_words(times),
            "format": names[result.format_id],
            # Side by side, so that equal exposures do not hide each other.
            "beside": 0.0 if len(some) == 1 else rounded(place / (len(some) - 1) - 0.5, 3),
            "bits": rounded(height(result), 3),
            "low": rounded(result.estimate.low, 3),
            "high": rounded(height(result) if result.estimate.high is None else result.estimate.high, 3),
            "exposure (bits)": result.estimate.text(),
            "known": "at least" if result.estimate.status == "lower_bound" else "measured",
        }
        for (_, times), some in grouped(((one.format_id, one.repetitions), one) for one in drawn).items()
        for place, result in enumerate(some)
    ]
    columns, data = canary_table(names).data(most_exposed_first(document))
    return Chart(
        id="exposure-by-repetitions",
        title="Exposure against repetitions",
        caption="Each point is a canary with its interval; a triangle is a lower bound, because the canary beat everything it was "
        "compared with. The gray band holds 95 of 100 canaries of a model that memorized nothing. The dashed line is the maximum."
        + shown,
        rows=rows,
        columns=columns,
        data=tuple(data),
        x=Axis(column="trained on", title="times trained on", scale="names", grid=False, beside="beside"),
        y=Axis(
            column="bits", title="exposure (bits)", domain=(0, max(1.04 * max(map(max, most.values())), 1))
        ),
        marks=(
            Marks(kind="band", rows=[{"from": 0, "to": rounded(GUESSING_BITS)}], x="", y="from", y_to="to"),
            Marks(
                kind="rule",
                rows=[{"format": name, "most": rounded(max(bits))} for name, bits in most.items()],
                x="",
                y="most",
                dashed=True,
            ),
            intervals("low", "high"),
            Marks(kind="points", shows=("canary", "trained on", "exposure (bits)")),
        ),
        color="trained on",
        colors=copies_colors(result.repetitions for result in document.results),
        legend="",
        shape="known",
        shapes={"measured": "circle", "at least": "triangle-up"},
        panel="format",
        height=300,
        leads=True,
    )
