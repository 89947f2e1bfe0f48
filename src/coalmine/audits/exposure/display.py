"""Tables, sentences and figures of exposure, with an interval for every number.

The figures are after Figures 1, 3, 4 and 6 of The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural Networks,
Carlini, Liu, Erlingsson, Kos and Song, 2019, arXiv:1802.08232.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from coalmine.audits.exposure.candidate_scores import CandidateScores, read_candidates
from coalmine.audits.exposure.results import EXPOSURES, ExposureResult, Exposures, scores_beside
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

FIGURE_ID = "exposure-by-repetitions"
# Secrets of one kind that a table of the terminal shows.
MOST_SECRETS = 20
# More points than this cannot be distinguished, and make the page slow.
MOST_POINTS = 2_000
# Without memorization, 95 of 100 canaries stay below this many bits.
GUESSING_BITS = math.log2(20)
BINS, MOST_LINES = 60, 60
# Scores that represent their format, and what they are. Guided draws are not here: they were drawn for their scores.
_UNIFORM = {
    "member": "All {:,} members",
    "sample": "{:,} members drawn at random",
    "reference": "{:,} references",
}


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


def exposure_table(results: Exposures, texts: Mapping[str, str] | None = None) -> Group:
    """A table per format, or per kind of secrets, of those that are most exposed; `texts` are shown only if the user asked for them."""
    names = format_names(results.formats)
    table, what = canary_table(names, texts, "secret" if results.natural else "canary"), "Format"
    if results.natural:
        what = "Kind"
        kinds = grouped((str(one.kind), one) for one in most_exposed_first(results))
        rows = {
            kind
            if len(some) <= MOST_SECRETS
            else f"{kind} (the {MOST_SECRETS} most exposed of {len(some):,})": some[:MOST_SECRETS]
            for kind, some in kinds.items()
        }
    else:
        ordered = sorted(results, key=lambda one: -one.repetitions)
        rows = grouped((names[one.format_id], one) for one in ordered)
    return under_names(
        what, {name: table.terminal(some, reveal=texts is not None) for name, some in rows.items()}
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
        if one.is_automatic and not results.natural
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
    """What the exposures mean for each format, from never trained on to most repeated; a bound is called a bound."""
    names, lines = format_names(results.formats), []
    ordered = sorted(results, key=lambda one: one.repetitions)
    for (format_id, times), group in grouped(
        ((one.format_id, one.repetitions), one) for one in ordered
    ).items():
        trained = f"Trained on {times_in_words(times)}" if times else "Never trained on"
        if len(results.formats) > 1:
            trained = f"{visible(names[format_id])}, {trained[0].lower()}{trained[1:]}"
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


def exposure_figure(
    document: Exposures | None, *, figure_id: str = FIGURE_ID, what: tuple[str, str] = ("canary", "canaries")
) -> Chart | None:
    """Exposure against repetitions, a panel per format; `what` is what one of these and several are called. None without exposures."""
    if document is None or not document.results:
        return None
    one, several = what
    names = format_names(document.formats)
    measured = sorted(
        (result for result in document.results if result.estimate.status != "not_measured"),
        key=lambda result: (result.repetitions, height(result)),
    )
    drawn = [measured[place] for place in thinned(len(measured), MOST_POINTS)]
    shown = ""
    if len(drawn) < len(measured):
        shown = f" {len(drawn):,} of {len(measured):,} {several} are drawn, spread evenly over their exposures; all are in the data."
    if unmeasured := len(document.results) - len(measured):
        shown += f" {unmeasured:,} of {len(document.results):,} {several} could not be measured, and have no point."
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
        id=figure_id,
        title="Exposure against repetitions"
        if figure_id == FIGURE_ID
        else f"Exposure of {several} against copies",
        caption=f"Each point is a {one} with its interval; a triangle is a lower bound, because the {one} beat everything it was "
        f"compared with. The gray band holds 95 of 100 {several} of a model that memorized nothing. The dashed line is the maximum."
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
        notes={
            name: f"{len(bits):,} {several}; the maximum is {max(bits):.1f} bits."
            for name, bits in most.items()
        },
        height=300,
        leads=True,
    )


def histogram_figure(run: Run) -> Chart | None:
    """One histogram per format with scored members, with a line per canary and the curve that was fitted; of several sets, the largest."""
    best: dict[str, tuple[Exposures, CandidateScores]] = {}
    for path, document in run.all(EXPOSURES):
        beside = scores_beside(path)
        for scores in [] if beside is None else read_candidates(beside, indices=False):
            largest = best[scores.format_id][1] if scores.format_id in best else None
            enough = 1 if largest is None else len(largest.log_perplexities_bits)
            if scores.kind in _UNIFORM and len(scores.log_perplexities_bits) > enough:
                best[scores.format_id] = document, scores
    names, bars, curves, lines = names_of_formats(run), Rows(), Rows(), Rows()
    notes: dict[str, str] = {}
    for format_id, (document, scores) in sorted(best.items()):
        bits, name = scores.log_perplexities_bits, names[format_id]
        counts, edges = np.histogram(bits, bins=BINS)
        bars += [
            {"format": name, "from (bits)": rounded(low), "to (bits)": rounded(high), "members": int(count)}
            for low, high, count in zip(edges, edges[1:], counts, strict=False)
        ]
        known = [one for one in document.results if one.known_log_perplexity_bits is not None]
        canaries = sorted(
            (one for one in known if one.format_id == format_id), key=lambda one: one.log_perplexity_bits
        )[:MOST_LINES]
        lines += [
            {
                "format": name,
                "canary": one.canary_id,
                "log-perplexity (bits)": rounded(one.log_perplexity_bits),
                "trained on": times_in_words(one.repetitions),
            }
            for one in canaries
        ]
        notes[name] = f"{_UNIFORM[scores.kind].format(len(bits))}; lines of at most {MOST_LINES} canaries."
        fit = document.tail_fits.get(format_id)
        if fit is not None:
            tested = "rejected" if fit.rejected else "not rejected"
            notes[name] += f" The test of the skew-normal curve has {tested} it (p = {fit.ks_p_value:.2g})."
            lowest = min([edges[0], *(one.log_perplexity_bits for one in canaries)])
            places = np.linspace(lowest, edges[-1], 160)
            heights = np.exp(np.asarray(fit.curve.log_pdf(places))) * len(bits) * (edges[1] - edges[0])
            curves += [
                {"format": name, "bits": rounded(x), "members": rounded(y)}
                for x, y in zip(places, heights, strict=True)
            ]
    if not bars:
        return None
    return Chart(
        id="log-perplexity",
        title="Log-perplexity of members and canaries",
        caption="Each line is a canary: the further left of the bulk, the better remembered.",
        rows=bars,
        columns=("format", "from (bits)", "to (bits)", "members"),
        x=Axis(column="from (bits)", title="log-perplexity (bits)", grid=False),
        y=Axis(column="members", title="members per bin", scale="linear"),
        marks=(
            Marks(kind="bars", x_to="to (bits)", shows=("from (bits)", "to (bits)", "members")),
            Marks(kind="line", rows=curves, x="bits"),
            Marks(
                kind="rule",
                rows=lines,
                x="log-perplexity (bits)",
                y="",
                shows=("canary", "trained on", "log-perplexity (bits)"),
            ),
        ),
        color="trained on",
        colors=copies_colors(one.repetitions for document, _ in best.values() for one in document.results),
        legend="canaries trained on",
        panel="format",
        notes=notes,
        height=260,
    )
