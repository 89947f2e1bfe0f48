"""How well can members be told from others? The ROC on logarithmic axes with its intervals, and below it the bounds on epsilon."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure_results import ExposureDocument
from coalmine.audits.membership_sources import times_planted
from coalmine.reports.figures.epsilon import epsilon_figure
from coalmine.reports.figures.histogram import UniformScores, read_uniform_scores
from coalmine.reports.figures.style import (
    INK,
    Figure,
    Spec,
    axis,
    colors_of,
    data,
    named,
    rounded,
    spec,
    tooltips,
)
from coalmine.reports.runs.reading import Run
from coalmine.statistics.intervals import clopper_pearson

FloatArray = NDArray[np.float64]
# False positive rates at which a curve is drawn, at most.
MOST_STEPS = 120
MOST_CURVES = 8


def membership_figures(run: Run) -> Iterator[Figure]:
    """The ROC of each format whose scores are there, and the bounds on epsilon where `membership` was run."""
    best: dict[str, tuple[list[dict[str, Any]], int]] = {}
    for located in run.exposures:
        path = run.scores_path(located)
        for scores in [] if path is None else read_uniform_scores(path):
            curves, others = _curves(located.document, scores)
            if curves and others > best.get(scores.format_id, ([], 0))[1]:
                best[scores.format_id] = (curves, others)
    for number, (format_id, (curves, others)) in enumerate(sorted(best.items()), 1):
        yield _roc(curves, others, (number, format_id) if len(best) > 1 else None)
    if run.membership is not None:
        yield epsilon_figure(run.membership)


def _roc(curves: list[dict[str, Any]], others: int, which: tuple[int, str] | None) -> Figure:
    names = list(dict.fromkeys(point["planted"] for point in curves))
    caption = (
        f"The share of planted canaries that scores recognize, against the share of {others:,} others that they take for planted, by how "
        "often the canaries were planted. Bands are exact 95 % intervals at each point; the dashed line is guessing. A false positive "
        "rate of 0 is drawn at half of the smallest that can be seen."
    )
    if len(names) >= MOST_CURVES:
        caption += f" Of all numbers of copies, {len(names)} are drawn."
    return Figure(
        figure_id="roc" if which is None else f"roc-{which[0]}",
        title="Telling planted canaries from others" + ("" if which is None else f", format {which[1]}"),
        caption=caption,
        specs={
            "log axes": _roc_drawing(curves, names, others, log=True),
            "linear axes": _roc_drawing(curves, names, others, log=False),
        },
        datasets={"curves": curves},
        columns=("planted", "false positive rate", "true positive rate", "low", "high"),
        rows=tuple((p["planted"], p["fpr"], p["tpr"], p["low"], p["high"]) for p in curves),
    )


def _curves(document: ExposureDocument, scores: UniformScores) -> tuple[list[dict[str, Any]], int]:
    """Points of the curve of each number of copies, and how many others they are compared with."""
    here = [
        result
        for result in document.results
        if result.format_id == scores.format_id and result.known_log_perplexity_bits is not None
    ]
    planted = np.array([-r.log_perplexity_bits for r in here if r.planted])
    withheld = np.array([-r.log_perplexity_bits for r in here if not r.planted])
    others = np.sort(-scores.bits)
    # All members hold the canaries: withheld ones are among the others already, and planted ones are taken out by counting.
    everyone = scores.kind == "member"
    if not everyone:
        others = np.sort(np.concatenate([others, withheld]))
    n = len(others) - (len(planted) if everyone else 0)
    copies = sorted({r.repetitions for r in here if r.planted})
    if n < 1 or not copies:
        return [], 0
    points: list[dict[str, Any]] = []
    for times in copies[:: max(1, -(-len(copies) // MOST_CURVES))]:
        own = np.sort([-r.log_perplexity_bits for r in here if r.planted and r.repetitions == times])
        thresholds = np.append(np.unique(np.concatenate([own, _quantiles(others)]))[::-1], -np.inf)
        above = len(others) - np.searchsorted(others, thresholds, side="right")
        if everyone:
            above = above - (len(planted) - np.searchsorted(np.sort(planted), thresholds, side="right"))
        fpr = np.clip(above, 0, n) / n
        hits = len(own) - np.searchsorted(own, thresholds, side="right")
        low, high = clopper_pearson(hits, len(own), 0.95)
        points += [
            {
                "planted": times_planted(times),
                "fpr": rounded(fpr[place], 7),
                "drawn": rounded(max(float(fpr[place]), 0.5 / n), 7),
                "tpr": rounded(hits[place] / len(own)),
                "low": rounded(low[place]),
                "high": rounded(high[place]),
                "canaries": len(own),
            }
            for place in _corners(fpr, hits)
        ]
    return points, n


def _quantiles(others: FloatArray) -> FloatArray:
    """Thresholds at false positive rates that are evenly spread on a logarithmic axis."""
    n = len(others)
    ranks = np.unique(np.round(np.logspace(0, np.log10(n), MOST_STEPS)).astype(int))
    return np.asarray(others[n - ranks])


def _corners(fpr: FloatArray, hits: NDArray[np.int64]) -> list[int]:
    """Places where the curve turns, at most so many that it can be drawn."""
    changed = [0]
    for place in range(1, len(fpr)):
        if fpr[place] != fpr[changed[-1]] or hits[place] != hits[changed[-1]]:
            changed.append(place)
    if len(changed) <= 2 * MOST_STEPS:
        return changed
    step = len(changed) / (2 * MOST_STEPS)
    return sorted({changed[int(place * step)] for place in range(2 * MOST_STEPS)} | {changed[-1]})


def _roc_drawing(curves: list[dict[str, Any]], names: list[str], others: int, *, log: bool) -> Spec:
    least = 0.5 / others
    scale: Spec = {"type": "log", "domain": [least, 1], "nice": False} if log else {"domain": [0, 1]}
    shares = sorted({point["tpr"] for point in curves if point["tpr"] > 0})
    lowest = min([0.01, *shares]) if log else 0.0
    up: Spec = (
        {"type": "log", "domain": [lowest / 2, 1], "nice": False, "clamp": True}
        if log
        else {"domain": [0, 1]}
    )
    x = axis(
        "drawn" if log else "fpr",
        "false positive rate",
        scale=scale,
        axis={"format": "~g", "tickCount": 6, "grid": False},
    )
    y_axis = {"format": "~g", "tickCount": 6, "grid": False}
    color = colors_of(names, "planted", "planted")
    diagonal = np.logspace(np.log10(least), 0, 40) if log else np.linspace(0, 1, 2)
    layers: list[Spec] = [
        {
            "data": data(
                [{"drawn": rounded(p, 7), "fpr": rounded(p, 7), "tpr": rounded(p, 7)} for p in diagonal]
            ),
            "mark": {
                "type": "line",
                "strokeDash": [4, 4],
                "color": INK,
                "strokeWidth": 1,
                "aria": False,
                "clip": True,
            },
            "encoding": {"x": x, "y": axis("tpr", "true positive rate", scale=up, axis=y_axis)},
        },
        {
            "data": named("curves"),
            "mark": {
                "type": "area",
                "opacity": 0.07,
                "interpolate": "step-after",
                "aria": False,
                "clip": True,
            },
            "encoding": {
                "x": x,
                "y": axis("low", "true positive rate", scale=up, axis=y_axis),
                "y2": {"field": "high"},
                "color": color,
            },
        },
        {
            "data": named("curves"),
            "mark": {
                "type": "line",
                "interpolate": "step-after",
                "strokeWidth": 2,
                "clip": True,
                "point": {"size": 40, "opacity": 0},
            },
            "encoding": {
                "x": x,
                "y": axis("tpr", "true positive rate", scale=up, axis=y_axis),
                "color": color,
                "tooltip": tooltips(
                    planted="planted",
                    fpr="false positive rate",
                    tpr="true positive rate",
                    low="low",
                    high="high",
                    canaries="canaries",
                ),
            },
        },
    ]
    return spec(
        layers, description="True positive rate against false positive rate, by copies planted.", height=340
    )
