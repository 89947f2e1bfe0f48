"""The figure of exposure against repetitions: each canary with its interval, compared with guessing.

After Figures 1, 4 and 6 of The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural Networks, Carlini, Liu,
Erlingsson, Kos and Song, 2019, arXiv:1802.08232.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from coalmine.audits.exposure.results import EXPOSURES, ExposureResult, Exposures
from coalmine.audits.exposure.table import exposure_in_words, interval_in_words
from coalmine.evidence import figures as draw
from coalmine.evidence.figures import Figure, Panel, Points, Spec
from coalmine.evidence.run import Run
from coalmine.evidence.words import FormatNames, format_names, times_in_words

FIGURE_ID = "exposure-by-repetitions"
# More points than this cannot be distinguished, and make the page slow.
MOST_POINTS = 2_000
# Without memorization, 95 of 100 canaries stay below this many bits.
GUESSING_BITS = math.log2(20)


def exposure_figure(run: Run) -> Figure | None:
    """Exposure against repetitions; None if there are no exposures."""
    document = run.first(EXPOSURES)
    return None if document is None or not document.results else exposure_figure_of(document)


def exposure_figure_of(
    document: Exposures, *, figure_id: str = FIGURE_ID, what: tuple[str, str] = ("canary", "canaries")
) -> Figure:
    """The figure of some exposures; `what` is what one of these and several are called."""
    one, several = what
    names = format_names(document.formats)
    points = _points(document, names)
    unmeasured = sum(result.estimate.status == "not_measured" for result in document.results)
    measured = len(document.results) - unmeasured
    shown = ""
    if len(points) < measured:
        shown = f" {len(points):,} of {measured:,} {several} are drawn, spread evenly over their exposures; all are in the data."
    if unmeasured:
        shown += f" {unmeasured:,} of {len(document.results):,} {several} could not be measured, and have no point."
    caption = (
        f"Each point is a {one} with its interval; a triangle is a lower bound, because the {one} beat everything it was compared "
        f"with. The gray band holds 95 of 100 {several} of a model that memorized nothing. The dashed line is the maximum."
        + shown
    )
    return Figure(
        figure_id=figure_id,
        title="Exposure against repetitions"
        if figure_id == FIGURE_ID
        else f"Exposure of {several} against copies",
        caption=caption,
        panels=_panels(document, names, points, several),
        columns=CANARY_COLUMNS,
        rows=tuple(canary_row(result, names) for result in most_exposed_first(document)),
    )


def _panels(document: Exposures, names: FormatNames, points: Points, several: str) -> tuple[Panel, ...]:
    """One panel per format, all with the same numbers of copies on their axis."""
    times = sorted({point["times"] for point in points})
    colors = draw.copies_colors(times)
    found = draw.by_format(points)
    panels = []
    for facts in document.formats:
        name = names[facts.format_id]
        own = [result for result in document.results if result.format_id == facts.format_id]
        if not own:
            continue
        most = max(result.most_possible_bits for result in own)
        description = (
            f"Exposure in bits of {len(own):,} {several} of {name} by how often each was trained on."
        )
        panels.append(
            Panel(
                title=name,
                note=f"{len(own):,} {several}; the maximum is {most:.1f} bits.",
                specs={
                    "log axis": _drawing(times, colors, most, description, log=True),
                    "linear axis": _drawing(times, colors, most, description, log=False),
                },
                datasets={"points": found.get(name, [])},
            )
        )
    return tuple(panels)


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
        draw.rounded(result.exposure),
        draw.rounded(low),
        draw.rounded(high),
        draw.rounded(result.most_possible_bits, 2),
        result.estimate.status,
        result.rank,
        draw.rounded(result.known_log_perplexity_bits),
        result.method,
    )


def _points(document: Exposures, names: FormatNames) -> Points:
    measured = [result for result in document.results if result.estimate.status != "not_measured"]
    ordered = sorted(measured, key=lambda result: (result.repetitions, _height(result)))
    chosen = [ordered[place] for place in draw.thinned(len(ordered), MOST_POINTS)]
    sizes = Counter((result.format_id, result.repetitions) for result in chosen)
    seen: Counter[tuple[str, int]] = Counter()
    points = []
    for result in chosen:
        times, group = result.repetitions, (result.format_id, result.repetitions)
        place, many = seen[group], sizes[group]
        seen[group] += 1
        # Side by side, so that equal exposures do not hide each other.
        aside = 0.0 if many == 1 else 0.5 * (place / (many - 1) - 0.5)
        low, high = result.interval
        points.append(
            {
                "canary": result.canary_id,
                "times": times,
                "trained on": times_in_words(times),
                "format": names[result.format_id],
                "place": draw.rounded(_log_place(times) + aside, 3),
                "bits": draw.rounded(_height(result), 3),
                "low": draw.rounded(low, 3),
                "high": draw.rounded(_height(result) if high is None else high, 3),
                "exposure": exposure_in_words(result),
                "interval": interval_in_words(result),
                "known": "at least" if result.estimate.status == "lower_bound" else "measured",
            }
        )
    return points


def _height(result: ExposureResult) -> float:
    return float(result.estimate.low or 0.0) if result.exposure is None else result.exposure


def _log_place(times: int) -> float:
    """A place on an axis where 0 is beside 1 and each doubling is a step."""
    return 0.0 if times == 0 else 1.0 + math.log2(times)


def _drawing(
    times: Sequence[int], colors: dict[int, str], most: float, description: str, *, log: bool
) -> Spec:
    x = _copies_axis(times, log=log)
    y = draw.axis("bits", "exposure (bits)", scale={"domain": [0, max(most * 1.04, 1.0)], "nice": False})
    chosen = "repetitions == null || datum.times == repetitions"
    # The axis has the numbers; the colors are those of the other figures.
    color = draw.copies_channel(times, colors, None, "trained on") | {"legend": None}
    shape = draw.shape_channel({"measured": "circle", "at least": "triangle-up"}, "known")
    shown = draw.tooltips("canary", "trained on", ("exposure", "exposure (bits)"), "interval")
    guessing, low = draw.axis("from", "exposure (bits)"), draw.axis("low", "exposure (bits)")
    band = {"type": "rect", "color": draw.BAND, "opacity": 0.22, "aria": False}
    dashed = {"type": "rule", "strokeDash": [5, 4], "color": draw.RULE, "aria": False}
    layers = [
        draw.layer([{"from": 0, "to": draw.rounded(GUESSING_BITS)}], band, y=guessing, y2="to"),
        draw.layer([{"most": draw.rounded(most)}], dashed, y={"field": "most", "type": "quantitative"}),
        draw.layer("points", draw.INTERVAL, chosen, x=x, y=low, y2="high", color=color),
        draw.layer(
            "points", draw.dots(55, opacity=0.9), chosen, x=x, y=y, color=color, shape=shape, tooltip=shown
        ),
    ]
    return draw.spec(layers, description=description, params=[_choice(times)], height=300)


def _copies_axis(times: Sequence[int], *, log: bool) -> Spec:
    """The axis of how often canaries were trained on."""
    title = "times trained on"
    if not log:
        return draw.axis("times", title, axis={"grid": False}, scale={"nice": True})
    places = [round(_log_place(one), 3) for one in times]
    names = {f"{place:g}": str(one) for place, one in zip(places, times, strict=True)}
    # The labels are numbers of our own making; no text of the run enters an expression.
    label = " : ".join(f"datum.value == {place} ? '{name}'" for place, name in names.items()) + " : ''"
    return draw.axis(
        "place",
        title,
        axis={"values": places, "labelExpr": label, "grid": False},
        scale={"domain": [min(places, default=0) - 0.6, max(places, default=1) + 0.6], "nice": False},
    )


def _choice(times: Sequence[int]) -> Spec:
    """The choice of which canaries are drawn."""
    return {
        "name": "repetitions",
        "value": None,
        "bind": {
            "input": "select",
            "options": [None, *times],
            "labels": ["all", *(times_in_words(one) for one in times)],
            "name": "Show canaries trained on ",
        },
    }
