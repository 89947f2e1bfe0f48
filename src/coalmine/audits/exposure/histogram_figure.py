"""The figure of log-perplexities: a histogram of the members of each format, its skew-normal fit, and a line per canary.

After Figure 3 of The Secret Sharer, Carlini, Liu, Erlingsson, Kos and Song, 2019, arXiv:1802.08232.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.candidate_scores import read_candidates
from coalmine.audits.exposure.format_panels import names_of_formats
from coalmine.audits.exposure.results import EXPOSURES, Exposures, scores_beside
from coalmine.errors import NotMeasurableError
from coalmine.evidence import figures as draw
from coalmine.evidence.figures import Cell, Figure, Panel, Points, Spec
from coalmine.evidence.run import Run
from coalmine.evidence.words import times_in_words
from coalmine.randomness import arrays
from coalmine.statistics.exposure.skew_normal import SkewNormal
from coalmine.statistics.exposure.skew_normal_fit import FEWEST_SCORES, fit_skew_normal

BINS = 60
MOST_LINES = 60
# A curve for the eye needs no more scores than this.
MOST_FITTED = 20_000
# Guided draws are not here: they were drawn for their scores.
_UNIFORM = ("member", "sample", "reference")
_KINDS = {
    "member": "all {:,} members",
    "sample": "{:,} members drawn at random",
    "reference": "{:,} references",
}


class UniformScores(NamedTuple):
    """Log-perplexities in bits of members of one format that were drawn the same way."""

    format_id: str
    kind: str
    bits: NDArray[np.float64]


def read_uniform_scores(path: Path) -> list[UniformScores]:
    """The scores of a scores.parquet that represent their format; only the columns that are needed are read."""
    candidates = read_candidates(path, indices=False)
    return [
        UniformScores(one.format_id, one.kind, one.log_perplexities_bits)
        for kind in _UNIFORM
        for one in candidates
        if one.kind == kind
    ]


def largest_scores(run: Run) -> dict[str, tuple[Exposures, UniformScores]]:
    """The largest set of scores for each format that has any, with the exposures that it was written with."""
    best: dict[str, tuple[Exposures, UniformScores]] = {}
    for located in run.all(EXPOSURES):
        path = scores_beside(located.path)
        for scores in [] if path is None else read_uniform_scores(path):
            if scores.format_id not in best or len(scores.bits) > len(best[scores.format_id][1].bits):
                best[scores.format_id] = (located.document, scores)
    return dict(sorted(best.items()))


def histogram_figure(run: Run) -> Figure | None:
    """One histogram per format with scored members; of several sets of scores, the largest."""
    best, names = largest_scores(run), names_of_formats(run)
    colors = draw.copies_colors(one.repetitions for document, _ in best.values() for one in document.results)
    panels: list[Panel] = []
    rows: list[tuple[Cell, ...]] = []
    for format_id, (document, scores) in best.items():
        panel = _panel(run, document, scores, names[format_id], colors)
        if panel is not None:
            panels.append(panel)
            rows += [(panel.title, bar["from"], bar["to"], bar["members"]) for bar in panel.datasets["bars"]]
    if not panels:
        return None
    return Figure(
        figure_id="log-perplexity",
        title="Log-perplexity of members and canaries",
        caption="Each line is a canary: the further left of the bulk, the better remembered.",
        panels=tuple(panels),
        columns=("format", "from (bits)", "to (bits)", "members"),
        rows=tuple(rows),
    )


def _panel(
    run: Run, document: Exposures, scores: UniformScores, name: str, colors: dict[int, str]
) -> Panel | None:
    bits = scores.bits[np.isfinite(scores.bits)]
    if len(bits) < 2:
        return None
    counts, edges = np.histogram(bits, bins=BINS)
    bars = [
        {"from": draw.rounded(edges[place]), "to": draw.rounded(edges[place + 1]), "members": int(count)}
        for place, count in enumerate(counts)
    ]
    curve, whence = _curve(run, scores.format_id, bits)
    lines, left_out = _lines(document, scores.format_id)
    low = min([edges[0], *(line["bits"] for line in lines)])
    drawn = _curve_points(curve, float(low), float(edges[-1]), len(bits) * float(edges[1] - edges[0]))
    about = _KINDS[scores.kind].format(len(bits))
    description = f"Histogram of the log-perplexity of {about} of {name}, with the canaries as lines."
    return Panel(
        title=name,
        note=f"{about[0].upper()}{about[1:]}{whence}.{left_out}",
        specs={
            axes: _drawing(lines, colors, description, scale=scale, curve=bool(drawn))
            for axes, scale in (("linear count", "linear"), ("log count", "symlog"))
        },
        datasets={"bars": bars, "curve": drawn, "lines": lines},
    )


def _curve(run: Run, format_id: str, bits: NDArray[np.float64]) -> tuple[SkewNormal | None, str]:
    for located in run.all(EXPOSURES):
        fit = located.document.tail_fits.get(format_id)
        if fit is not None:
            tested = "rejected" if fit.rejected else "not rejected"
            return (
                fit.curve,
                f", with the skew-normal curve of `expose`, which its test has {tested} (p = {fit.ks_p_value:.2g})",
            )
    if len(bits) < FEWEST_SCORES:
        return None, ""
    some = bits
    if len(bits) > MOST_FITTED:
        some = arrays(0, "report", "histogram", format_id).choice(bits, MOST_FITTED, replace=False)
    try:
        curve = fit_skew_normal(some)
    except NotMeasurableError:
        return None, ""
    return curve, ", with a skew-normal curve for the eye that no test was made of"


def _curve_points(curve: SkewNormal | None, low: float, high: float, mass: float) -> Points:
    if curve is None:
        return []
    places = np.linspace(low, high, 160)
    heights = np.exp(np.asarray(curve.log_pdf(places))) * mass
    return [
        {"bits": draw.rounded(x), "members": draw.rounded(y)} for x, y in zip(places, heights, strict=True)
    ]


def _lines(document: Exposures, format_id: str) -> tuple[Points, str]:
    canaries = [
        one
        for one in document.results
        if one.format_id == format_id
        and one.known_log_perplexity_bits is not None
        and np.isfinite(one.log_perplexity_bits)
    ]
    canaries.sort(key=lambda one: one.log_perplexity_bits)
    shown = canaries[:MOST_LINES]
    left_out = (
        f" The {MOST_LINES} least surprising of {len(canaries):,} canaries are drawn."
        if len(shown) < len(canaries)
        else ""
    )
    return [
        {
            "canary": one.canary_id,
            "bits": draw.rounded(one.log_perplexity_bits),
            "trained on": times_in_words(one.repetitions),
            "times": one.repetitions,
        }
        for one in shown
    ], left_out


def _drawing(lines: Points, colors: dict[int, str], description: str, *, scale: str, curve: bool) -> Spec:
    on_x: Spec = {"scale": {"zero": False, "nice": False, "padding": 12}, "axis": {"grid": False}}
    binned = draw.axis("from", "log-perplexity (bits)", bin="binned", **on_x)
    x = draw.axis("bits", "log-perplexity (bits)", **on_x)
    y = draw.axis("members", "members per bin", scale={"type": scale, "domainMin": 0})
    color = draw.copies_channel(
        (line["times"] for line in lines), colors, "canaries trained on", "trained on"
    )
    in_bar = draw.tooltips(("from", "from (bits)"), ("to", "to (bits)"), "members")
    on_line = draw.tooltips("canary", "trained on", ("bits", "log-perplexity (bits)"))
    bars = {"type": "bar", "color": draw.BAND, "opacity": 0.55, "binSpacing": 1}
    fitted = {"type": "line", "color": "#000000", "opacity": 0.55, "strokeWidth": 1.5, "aria": False}
    rules = {"type": "rule", "strokeWidth": 2, "opacity": 0.85}
    layers = [
        draw.layer("bars", bars, x=binned, x2="to", y=y, tooltip=in_bar),
        *([draw.layer("curve", fitted, x=x, y=y)] if curve else []),
        draw.layer("lines", rules, x=x, color=color, tooltip=on_line),
    ]
    return draw.spec(layers, description=description, height=260)
