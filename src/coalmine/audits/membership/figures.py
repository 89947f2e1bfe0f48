"""The figures of membership: the ROC on logarithmic axes with its bands, one panel per format, and the bounds on epsilon."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.format_panels import names_of_formats
from coalmine.audits.exposure.histogram_figure import UniformScores, largest_scores
from coalmine.audits.exposure.results import Exposures
from coalmine.audits.membership.epsilon_figure import epsilon_figure
from coalmine.audits.membership.results import MEMBERSHIPS
from coalmine.evidence import figures as draw
from coalmine.evidence.figures import Cell, Figure, Panel, Points, Spec
from coalmine.evidence.run import Run
from coalmine.evidence.words import times_in_words
from coalmine.statistics.roc import tpr_band

FloatArray = NDArray[np.float64]
# False positive rates at which a curve and its band are drawn, at most.
MOST_STEPS, BAND_STEPS = 120, 25
MOST_CURVES = 8
CONFIDENCE = 0.95


class _Curves(NamedTuple):
    """The curves of one format."""

    curves: Points
    bands: Points
    others: int
    # The numbers of copies that are drawn, and of how many.
    copies: tuple[int, ...]
    of: int


def membership_figures(run: Run) -> Iterator[Figure]:
    """The ROC of each format that has scores, and the bounds on epsilon if `membership` was run."""
    found = {format_id: _curves(*one) for format_id, one in largest_scores(run).items()}
    curves = {format_id: one for format_id, one in found.items() if one is not None}
    if curves:
        yield _roc(run, curves)
    members = run.first(MEMBERSHIPS)
    if members is not None:
        yield epsilon_figure(members, names_of_formats(run))


def _roc(run: Run, found: dict[str, _Curves]) -> Figure:
    names = names_of_formats(run)
    colors = draw.copies_colors(times for one in found.values() for times in one.copies)
    panels: list[Panel] = []
    rows: list[tuple[Cell, ...]] = []
    for format_id, one in found.items():
        left_out = (
            ""
            if len(one.copies) == one.of
            else f" {len(one.copies)} of {one.of} numbers of copies are drawn."
        )
        panels.append(
            Panel(
                title=names[format_id],
                note=f"Against {one.others:,} that were not trained on.{left_out}{_alike(one)}",
                specs={
                    "log axes": _drawing(one, colors, log=True),
                    "linear axes": _drawing(one, colors, log=False),
                },
                datasets={"curves": one.curves, "bands": one.bands},
            )
        )
        rows += [(names[format_id], p["trained on"], p["fpr"], p["tpr"], None, None) for p in one.curves]
        rows += [(names[format_id], p["trained on"], p["fpr"], None, p["low"], p["high"]) for p in one.bands]
    return Figure(
        figure_id="roc",
        title="Telling planted canaries from others",
        caption="The share of planted canaries that the scores identify, against the share of others that they mistake for planted, by "
        "how often the canaries were trained on. A band holds the true-positive rate at each false-positive rate with "
        f"{100 * CONFIDENCE:g}% confidence, the error of the threshold included; the dashed line is guessing. A false-positive rate "
        "of 0 is drawn at half of the smallest that can be seen.",
        panels=tuple(panels),
        columns=("format", "trained on", "false-positive rate", "true-positive rate", "low", "high"),
        rows=tuple(rows),
    )


def _alike(one: _Curves) -> str:
    """Which curves coincide, so that only the last of them is visible."""
    courses: dict[tuple[tuple[float, float], ...], list[str]] = {}
    for times in map(times_in_words, one.copies):
        highest: dict[float, float] = {}
        for point in one.curves:
            if point["trained on"] == times:
                highest[point["fpr"]] = max(point["tpr"], highest.get(point["fpr"], 0.0))
        courses.setdefault(tuple(highest.items()), []).append(times)
    same = [f"{', '.join(some[:-1])} and {some[-1]}" for some in courses.values() if len(some) > 1]
    return "".join(f" The curves of {names} are the same." for names in same)


def _curves(document: Exposures, scores: UniformScores) -> _Curves | None:
    """The curve and band of each number of copies; None if there is nothing to compare, or nothing to compare it with."""
    here = [
        result
        for result in document.results
        if result.format_id == scores.format_id and result.known_log_perplexity_bits is not None
    ]
    planted = np.array([-r.log_perplexity_bits for r in here if r.planted])
    withheld = np.array([-r.log_perplexity_bits for r in here if not r.planted])
    others = np.sort(-scores.bits)
    # All members hold the canaries: withheld ones are among the others already, and planted ones are taken out.
    others = (
        _without(others, planted) if scores.kind == "member" else np.sort(np.concatenate([others, withheld]))
    )
    copies = sorted({r.repetitions for r in here if r.planted})
    if not len(others) or not copies:
        return None
    drawn = copies[:: max(1, -(-len(copies) // MOST_CURVES))]
    curves: Points = []
    bands: Points = []
    for times in drawn:
        own = np.sort([-r.log_perplexity_bits for r in here if r.planted and r.repetitions == times])
        curves += _curve(own, others, times)
        bands += _band(own, others, times)
    return _Curves(curves, bands, len(others), tuple(drawn), len(copies))


def _without(everyone: FloatArray, some: FloatArray) -> FloatArray:
    """Sorted scores without the closest one to each of some, each taken out once."""
    taken: set[int] = set()
    for score, place in zip(some.tolist(), np.searchsorted(everyone, some).tolist(), strict=True):
        below, above = place - 1, place
        while below in taken:
            below -= 1
        while above in taken:
            above += 1
        near = [at for at in (below, above) if 0 <= at < len(everyone)]
        if near:
            taken.add(min(near, key=lambda at: abs(float(everyone[at]) - score)))
    return np.delete(everyone, sorted(taken))


def _curve(own: FloatArray, others: FloatArray, times: int) -> Points:
    n = len(others)
    thresholds = np.append(np.unique(np.concatenate([own, _quantiles(others)]))[::-1], -np.inf)
    fpr = (n - np.searchsorted(others, thresholds, side="right")) / n
    hits = len(own) - np.searchsorted(own, thresholds, side="right")
    return [
        {
            "trained on": times_in_words(times),
            "fpr": draw.rounded(fpr[place], 7),
            "drawn": draw.rounded(max(float(fpr[place]), 0.5 / n), 7),
            "tpr": draw.rounded(hits[place] / len(own)),
            "canaries": len(own),
        }
        for place in _corners(fpr, hits)
    ]


def _band(own: FloatArray, others: FloatArray, times: int) -> Points:
    """Limits at rates that are evenly spread on a logarithmic axis; below one of the others nothing can be said."""
    n = len(others)
    rates = np.unique(np.round(np.logspace(np.log10(min(0.5, 1.0 / n)), 0.0, BAND_STEPS)[:-1], 7))
    low, high = tpr_band(own, others, rates, CONFIDENCE)
    return [
        {
            "trained on": times_in_words(times),
            "fpr": draw.rounded(rate, 7),
            "drawn": draw.rounded(rate, 7),
            "low": draw.rounded(low[place]),
            "high": draw.rounded(high[place]),
        }
        for place, rate in enumerate(rates)
    ]


def _quantiles(others: FloatArray) -> FloatArray:
    """Thresholds at false-positive rates that are evenly spread on a logarithmic axis."""
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


def _drawing(one: _Curves, colors: dict[int, str], *, log: bool) -> Spec:
    least = 0.5 / one.others
    scale: Spec = {"type": "log", "domain": [least, 1], "nice": False} if log else {"domain": [0, 1]}
    lowest = min([0.01, *(point["tpr"] for point in one.curves if point["tpr"] > 0)])
    up: Spec = (
        {"type": "log", "domain": [lowest / 2, 1], "nice": False, "clamp": True}
        if log
        else {"domain": [0, 1]}
    )
    ticks: Spec = {"format": "~g", "tickCount": 6, "grid": False}
    x = draw.axis("drawn" if log else "fpr", "false-positive rate", scale=scale, axis=ticks)
    diagonal = np.logspace(np.log10(least), 0, 40) if log else np.linspace(0, 1, 2)
    color = draw.copies_channel(one.copies, colors, "trained on", "trained on")
    low, tpr = (draw.axis(field, "true-positive rate", scale=up, axis=ticks) for field in ("low", "tpr"))
    guessing = [dict.fromkeys(("drawn", "fpr", "tpr"), draw.rounded(p, 7)) for p in diagonal]
    dashed = {
        "type": "line",
        "strokeDash": [4, 4],
        "color": draw.RULE,
        "strokeWidth": 1,
        "aria": False,
        "clip": True,
    }
    steps = {"type": "line", "interpolate": "step-after", "strokeWidth": 2, "clip": True}
    shown = draw.tooltips(
        "trained on", ("fpr", "false-positive rate"), ("tpr", "true-positive rate"), "canaries"
    )
    band = {"type": "area", "opacity": 0.1, "aria": False, "clip": True}
    layers = [
        draw.layer(guessing, dashed, x=x, y=tpr),
        draw.layer("bands", band, x=x, y=low, y2="high", color=color),
        draw.layer(
            "curves", steps | {"point": {"size": 40, "opacity": 0}}, x=x, y=tpr, color=color, tooltip=shown
        ),
    ]
    description = "True-positive rate against false-positive rate, by how often canaries were trained on."
    return draw.spec(layers, description=description)
