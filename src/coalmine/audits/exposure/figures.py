"""The figure of exposure against repetitions: each canary with its interval, compared with guessing.

After Figures 1, 4 and 6 of The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural Networks, Carlini, Liu,
Erlingsson, Kos and Song, 2019, arXiv:1802.08232.
"""

from __future__ import annotations

import math
from collections import Counter

from coalmine.audits.exposure.results import EXPOSURES, ExposureResult, Exposures
from coalmine.audits.exposure.table import exposure_in_words, interval_in_words
from coalmine.evidence.charts import Axis, Chart, Marks, Rows, copies_colors, intervals, rounded, thinned
from coalmine.evidence.run import Run
from coalmine.evidence.words import FormatNames, format_names, times_in_words

FIGURE_ID = "exposure-by-repetitions"
# More points than this cannot be distinguished, and make the page slow.
MOST_POINTS = 2_000
# Without memorization, 95 of 100 canaries stay below this many bits.
GUESSING_BITS = math.log2(20)
CANARY_COLUMNS = (
    "canary",
    "format",
    "trained on",
    "planted",
    "exposure (bits)",
    "low",
    "high",
    "most possible",
    "status",
    "rank",
    "log-perplexity (bits)",
    "method",
)


def exposure_figure(run: Run) -> Chart | None:
    """Exposure against repetitions; None if there are no exposures."""
    document = run.first(EXPOSURES)
    return None if document is None or not document.results else exposure_figure_of(document)


def exposure_figure_of(
    document: Exposures, *, figure_id: str = FIGURE_ID, what: tuple[str, str] = ("canary", "canaries")
) -> Chart:
    """The figure of some exposures, a panel per format; `what` is what one of these and several are called."""
    one, several = what
    names = format_names(document.formats)
    rows = _rows(document, names)
    unmeasured = sum(result.estimate.status == "not_measured" for result in document.results)
    measured = len(document.results) - unmeasured
    shown = ""
    if len(rows) < measured:
        shown = f" {len(rows):,} of {measured:,} {several} are drawn, spread evenly over their exposures; all are in the data."
    if unmeasured:
        shown += f" {unmeasured:,} of {len(document.results):,} {several} could not be measured, and have no point."
    most: dict[str, list[float]] = {}
    for result in document.results:
        most.setdefault(names[result.format_id], []).append(result.most_possible_bits)
    limits: Rows = [{"format": name, "most": rounded(max(bits))} for name, bits in most.items()]
    return Chart(
        id=figure_id,
        title="Exposure against repetitions"
        if figure_id == FIGURE_ID
        else f"Exposure of {several} against copies",
        caption=f"Each point is a {one} with its interval; a triangle is a lower bound, because the {one} beat everything it was "
        f"compared with. The gray band holds 95 of 100 {several} of a model that memorized nothing. The dashed line is the maximum."
        + shown,
        rows=rows,
        columns=CANARY_COLUMNS,
        data=tuple(canary_row(result, names) for result in most_exposed_first(document)),
        x=Axis(column="trained on", title="times trained on", scales=("names",), grid=False, beside="beside"),
        y=Axis(
            column="bits", title="exposure (bits)", domain=(0, max(1.04 * max(map(max, most.values())), 1))
        ),
        marks=(
            Marks(kind="band", rows=[{"from": 0, "to": rounded(GUESSING_BITS)}], x="", y="from", y_to="to"),
            Marks(kind="rule", rows=limits, x="", y="most", dashed=True),
            intervals("low", "high"),
            Marks(kind="points", shows=("canary", "trained on", "exposure (bits)", "interval")),
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
        choice="trained on",
        height=300,
        leads=True,
    )


def most_exposed_first(document: Exposures) -> list[ExposureResult]:
    """The canaries by their exposure or its lower bound, the highest first; those without a number last."""
    return sorted(
        document.results, key=lambda result: (result.estimate.status == "not_measured", -_height(result))
    )


def canary_row(result: ExposureResult, names: FormatNames) -> tuple[str | int | float | bool | None, ...]:
    """One canary as a row of data, its format by name; the text of the canary is not in it."""
    low, high = result.interval
    return (
        result.canary_id,
        names[result.format_id],
        result.repetitions,
        result.planted,
        rounded(result.exposure),
        rounded(low),
        rounded(high),
        rounded(result.most_possible_bits, 2),
        result.estimate.status,
        result.rank,
        rounded(result.known_log_perplexity_bits),
        result.method,
    )


def _rows(document: Exposures, names: FormatNames) -> Rows:
    measured = [result for result in document.results if result.estimate.status != "not_measured"]
    ordered = sorted(measured, key=lambda result: (result.repetitions, _height(result)))
    chosen = [ordered[place] for place in thinned(len(ordered), MOST_POINTS)]
    sizes = Counter((result.format_id, result.repetitions) for result in chosen)
    seen: Counter[tuple[str, int]] = Counter()
    rows: Rows = []
    for result in chosen:
        group = (result.format_id, result.repetitions)
        # Side by side, so that equal exposures do not hide each other.
        beside = 0.0 if sizes[group] == 1 else seen[group] / (sizes[group] - 1) - 0.5
        seen[group] += 1
        low, high = result.interval
        rows.append(
            {
                "canary": result.canary_id,
                "trained on": times_in_words(result.repetitions),
                "format": names[result.format_id],
                "beside": rounded(beside, 3),
                "bits": rounded(_height(result), 3),
                "low": rounded(low, 3),
                "high": rounded(_height(result) if high is None else high, 3),
                "exposure (bits)": exposure_in_words(result),
                "interval": interval_in_words(result),
                "known": "at least" if result.estimate.status == "lower_bound" else "measured",
            }
        )
    return rows


def _height(result: ExposureResult) -> float:
    return float(result.estimate.low or 0.0) if result.exposure is None else result.exposure
