"""The error that all canaries of a run share because their exposure was measured among the same few references or samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.comparison.records import Strategy
from coalmine.audits.exposure.candidate_scores import CandidateScores
from coalmine.audits.exposure.estimators import estimator_of
from coalmine.audits.exposure.results import ExposureResult
from coalmine.randomness import arrays
from coalmine.records import Estimate
from coalmine.records.estimate import rounded_down, rounded_up
from coalmine.statistics.differences import Difference

FloatArray = NDArray[np.float64]
# How often others are drawn in their place; a p-value that includes their error is at least twice one over this number.
_DRAWS = 9_999
# A p-value that has the error of references is known to this factor, and reported at its upper end.
_P_VALUE_FACTOR = 1.02
_LIKE_OTHERS = "the references or samples of a run are independent draws, and others would have been as good"


class _Among(NamedTuple):
    """The canaries of one format, among the references or samples of one run."""

    method: str
    # The places of the canaries among all that were asked about, and their exposures.
    places: NDArray[np.int64]
    values: FloatArray
    # How many others there are, and how many of them are no more surprising than each canary.
    n: int
    counts: NDArray[np.int64]
    # The largest exposure that is possible.
    most: float
    scores: CandidateScores | None


def _among_others(run: Strategy, results: Sequence[ExposureResult]) -> dict[tuple[str, int], _Among]:
    """The canaries that were placed among others, by template; the number distinguishes formats with the same template."""
    found: dict[tuple[str, int], _Among] = {}
    for number, facts in enumerate(run.exposure.formats):
        places = [
            place for place, r in enumerate(results) if r.format_id == facts.format_id and is_among_others(r)
        ]
        if not places:
            continue
        method, n = results[places[0]].method, results[places[0]].estimate.n
        scores = run.others.get(facts.format_id)
        if scores is not None and (estimator_of(method).keeps, n) != (scores.kind, len(scores.indices)):
            scores = None
        earlier = sum(other.template == facts.template for other in run.exposure.formats[:number])
        found[facts.template, earlier] = _Among(
            method=method,
            places=np.array(places),
            values=np.array([results[place].exposure or 0.0 for place in places]),
            n=n,
            counts=np.array([_count(results[place]) for place in places], dtype=np.int64),
            most=facts.size_bits,
            scores=scores,
        )
    return found


def is_among_others(result: ExposureResult) -> bool:
    """Whether a canary's exposure is its place among references or samples."""
    return estimator_of(result.method).among_others and result.estimate.status != "not_measured"


def _count(result: ExposureResult) -> int:
    if result.rank is not None:
        return result.rank - 1
    if result.exposure is None:
        return 0
    return round(result.estimate.n / math.exp2(result.exposure)) - int(
        estimator_of(result.method).among == "references"
    )


def difference_errors(
    runs: Sequence[Strategy],
    results: Sequence[Sequence[ExposureResult]],
    parts: Sequence[Sequence[float]],
    seed: int,
) -> FloatArray | None:
    """Draws of how far off a difference is because of references, in bits; None where no canary was placed among any.

    `results` are those of the two runs, and `parts` by how much the difference moves with each.
    """
    chance = arrays(seed, "differences", "references")
    groups = [_among_others(run, own) for run, own in zip(runs, results, strict=True)]
    total = np.zeros(_DRAWS)
    for key in sorted(groups[0].keys() | groups[1].keys()):
        sides = [group[key] for group in groups if key in group]
        weights = [np.array(part) for part, group in zip(parts, groups, strict=True) if key in group]
        known = [side.scores.indices.astype(str).tolist() for side in sides if side.scores is not None]
        shared = len(known) == 2 and known[0] == known[1]
        draws = _exposure_draws(sides, chance) if shared else [_exposure_draws([s], chance)[0] for s in sides]
        # How far each draw moves the difference, in which each canary has its part.
        errors = [
            (drawn - side.values) @ part[side.places]
            for side, drawn, part in zip(sides, draws, weights, strict=True)
        ]
        if len(sides) == 2 and len(known) < 2 and sides[0].method == sides[1].method:
            # They may be the same others, and how their errors correlate is unknown: the worst case is taken.
            errors = [chance.permutation(np.sort(errors[0]) + np.sort(errors[1]))]
        total += np.sum(errors, axis=0)
    return total if any(groups) else None


def _exposure_draws(sides: Sequence[_Among], chance: np.random.Generator) -> list[FloatArray]:
    """Exposures that agree with the counts, (draws, canaries) in bits for each side; two sides are models asked about the same others.

    The shares of the space between n others that were drawn at random are those between n uniform numbers: n + 1 exponentials, each
    over their sum. A canary lies somewhere between two others; a coin decides at which end, as Clopper-Pearson takes both.
    """
    edges = [np.unique(side.counts) for side in sides]
    places = [np.arange(sides[0].n)]
    if len(sides) == 2:
        places = [
            np.argsort(np.argsort(s.scores.log_perplexities_bits, kind="stable")) for s in sides if s.scores
        ]
    # Others that lie between the same canaries on all sides count together.
    cells = [np.searchsorted(edge, place, side="right") for edge, place in zip(edges, places, strict=True)]
    kinds, sizes = np.unique(np.stack(cells), axis=1, return_counts=True)
    shares = chance.standard_gamma(sizes, (_DRAWS, len(sizes)))
    last = chance.standard_exponential((_DRAWS, 1))
    whole = shares.sum(axis=1, keepdims=True) + last
    found = []
    for side, edge, kind in zip(sides, edges, kinds, strict=True):
        below = shares @ (kind[:, None] <= np.arange(len(edge)))
        probabilities = (below + last * chance.integers(0, 2, (_DRAWS, 1))) / whole
        bits = -np.log2(np.maximum(probabilities, np.finfo(float).tiny))
        found.append(np.clip(bits[:, np.searchsorted(edge, side.counts)], 0.0, side.most))
    return found


def _error_limits(errors: FloatArray, outside: float) -> tuple[float, float]:
    """How far down and up the errors go, with the share `outside` beyond each; infinite if there are too few draws to say."""
    place = math.floor(outside * (len(errors) + 1) * (1 + 1e-12)) - 1
    if place < 0:
        return math.inf, math.inf
    ordered = np.sort(errors)
    return max(0.0, -float(ordered[place])), max(0.0, float(ordered[-1 - place]))


def widened_difference(
    found: Difference,
    errors: FloatArray,
    again: Callable[..., Difference],
    most: float,
    counted: str,
    *,
    confidence: float,
) -> Difference:
    """A difference whose interval and p-value include the error of references; `again` gives it at another confidence.

    Both errors are independent, so the distances to the limits add as squares do.
    """
    value = found.estimate.value or 0.0

    def limits(level: float) -> tuple[float, float]:
        estimate = found.estimate if level == confidence else again(confidence=level).estimate
        down, up = _error_limits(errors, (1.0 - level) / 2.0)
        low = value - math.hypot(value - (estimate.low or 0.0), down)
        high = value + math.hypot((estimate.high or 0.0) - value, up)
        return max(-most, low), min(most, high)

    def has_zero(level: float) -> bool:
        low, high = limits(level)
        return low <= 0.0 <= high

    # The p-value is the least share outside at which the interval excludes 0.
    low_p, high_p = found.p_value, 1.0
    middle = 1.0 - confidence
    while high_p > low_p * _P_VALUE_FACTOR:
        if not low_p < middle < high_p:
            middle = math.sqrt(low_p * high_p)
        low_p, high_p = (middle, high_p) if has_zero(1.0 - middle) else (low_p, middle)
    low, high = limits(confidence)
    shown = (math.floor(low * 100) / 100, math.ceil(high * 100) / 100)
    if value < 0:
        shown = (-shown[1], -shown[0])
    estimate = msgspec.structs.replace(
        found.estimate,
        method=f"{found.estimate.method} with the error of references",
        low=low,
        high=high,
        statement=f"{abs(value):.2f} bits {'less' if value < 0 else 'more'} ({100 * confidence:g}% interval {shown[0]:.2f} to "
        f"{shown[1]:.2f}), p = {high_p:.2g}, {counted}",
        assumptions=(*found.estimate.assumptions, _LIKE_OTHERS),
    )
    least = max(found.least_p_value, 2.0 / (_DRAWS + 1))
    return msgspec.structs.replace(found, estimate=estimate, p_value=high_p, least_p_value=least)


def widened_median(
    run: Strategy,
    results: Sequence[ExposureResult],
    found: Estimate,
    lows: FloatArray,
    highs: FloatArray,
    most: float,
    *,
    confidence: float,
    seed: int,
) -> Estimate:
    """A median whose interval includes the error of references."""
    groups = _among_others(run, results)
    if not groups:
        return found
    chance = arrays(seed, "medians", "references")
    rows = np.tile(lows, (_DRAWS, 1))
    for group in groups.values():
        rows[:, group.places] = _exposure_draws([group], chance)[0]
    drawn, middles = np.median(rows, axis=1), (float(np.median(lows)), float(np.median(highs)))
    outside = (1.0 - confidence) / 2.0
    down, up = _error_limits(drawn - middles[0], outside)[0], _error_limits(drawn - middles[1], outside)[1]
    low = max(0.0, middles[0] - math.hypot(middles[0] - (found.low or 0.0), down))
    high = min(most, middles[1] + math.hypot((found.high or 0.0) - middles[1], up))
    limits = f"{rounded_down(low)} to {rounded_up(high)}"
    return msgspec.structs.replace(
        found,
        low=low,
        high=high,
        statement=f"median {'' if found.value is not None else 'at least '}{middles[0]:.2f} bits ({100 * confidence:g}% interval "
        f"{limits}) of {found.n}",
        assumptions=(*found.assumptions, _LIKE_OTHERS),
    )
