"""The error that all canaries of a run share because their exposure was measured among the same few references or samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.comparison.records import Strategy
from coalmine.audits.exposure.estimators import estimator_of
from coalmine.audits.exposure.results import ExposureResult
from coalmine.errors import NotMeasurableError
from coalmine.randomness import arrays
from coalmine.records import Estimate
from coalmine.records.estimate import rounded_down, rounded_up
from coalmine.statistics.differences import Difference, difference_words

FloatArray = NDArray[np.float64]
# How often others are drawn in their place; a p-value that includes their error is at least twice one over this number.
_DRAWS = 9_999
# A p-value that has the error of references is known to this factor, and reported at its upper end.
_P_VALUE_FACTOR = 1.02
_LIKE_OTHERS = "the references or samples of a run are independent draws, and others would have been as good"


class _Among(NamedTuple):
    """The canaries of one format, among the references or samples of one run."""

    # The places of the canaries among all that were asked about, and their exposures.
    places: NDArray[np.int64]
    values: FloatArray
    # How many of the others are no more surprising than each canary.
    counts: NDArray[np.int64]
    # The order of the others, from the least surprising on.
    order: NDArray[np.int64]
    # The largest exposure that is possible.
    most: float


def is_among_others(result: ExposureResult) -> bool:
    """Whether a canary's exposure is its place among references or samples."""
    return estimator_of(result.method).among_others and result.estimate.status != "not_measured"


def _among_others(
    run: Strategy, results: Sequence[ExposureResult]
) -> Iterator[tuple[tuple[str, ...], _Among]]:
    """The canaries that were placed among others, after what says which others these are."""
    for facts in run.exposure.formats:
        own = [
            (place, r)
            for place, r in enumerate(results)
            if r.format_id == facts.format_id and is_among_others(r)
        ]
        if not own:
            continue
        scores, (_, first) = run.others.get(facts.format_id), own[0]
        if scores is None or (estimator_of(first.method).keeps, first.estimate.n) != (
            scores.kind,
            len(scores.indices),
        ):
            raise NotMeasurableError(
                f"the scores of the references or samples of {run.name} are not there, so their error is not known; keep scores.parquet "
                "beside its exposure.json, or measure by the exact or guided method"
            )
        bits = np.sort(scores.log_perplexities_bits)
        yield (
            (facts.template, *scores.indices.astype(str).tolist()),
            _Among(
                np.array([place for place, _ in own]),
                np.array([r.exposure or 0.0 for _, r in own]),
                np.searchsorted(bits, [r.log_perplexity_bits for _, r in own], side="right"),
                np.argsort(np.argsort(scores.log_perplexities_bits, kind="stable")),
                facts.size_bits,
            ),
        )


def difference_errors(
    runs: Sequence[Strategy],
    results: Sequence[Sequence[ExposureResult]],
    seed: int,
) -> FloatArray | None:
    """Draws of how far off a difference is because of references, in bits; None where no canary was placed among any.

    `results` are those of the two runs, of the same canaries in the same order. Runs with the same references share their error.
    """
    chance = arrays(seed, "differences", "references")
    groups = [dict(_among_others(run, own)) for run, own in zip(runs, results, strict=True)]
    total = np.zeros(_DRAWS)
    for key in sorted(groups[0].keys() | groups[1].keys()):
        sides = [(group[key], sign) for group, sign in zip(groups, (1, -1), strict=True) if key in group]
        draws = _exposure_draws([side for side, _ in sides], chance)
        for (side, sign), drawn in zip(sides, draws, strict=True):
            total += sign * (drawn - side.values).sum(axis=1) / len(results[0])
    return total if any(groups) else None


def _exposure_draws(sides: Sequence[_Among], chance: np.random.Generator) -> list[FloatArray]:
    """Exposures that agree with the counts, (draws, canaries) in bits for each side; two sides are models asked about the same others.

    The shares of the space between n others that were drawn at random are those between n uniform numbers: n + 1 exponentials, each
    over their sum. A canary lies somewhere between two others; a coin decides at which end, as Clopper-Pearson takes both.
    """
    edges = [np.unique(side.counts) for side in sides]
    # Others that lie between the same canaries on all sides count together.
    cells = [np.searchsorted(edge, side.order, side="right") for edge, side in zip(edges, sides, strict=True)]
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
    again: Callable[[float], Difference], errors: FloatArray, most: float, confidence: float
) -> Difference:
    """A difference whose interval and p-value include the error of references; `again` gives it at any confidence.

    Both errors are independent, so the distances to the limits add as squares do.
    """
    found = again(confidence)
    value = found.estimate.value or 0.0

    def limits(level: float) -> tuple[float, float]:
        estimate = again(level).estimate
        down, up = _error_limits(errors, (1.0 - level) / 2.0)
        low = value - math.hypot(value - (estimate.low or 0.0), down)
        high = value + math.hypot((estimate.high or 0.0) - value, up)
        return max(-most, low), min(most, high)

    # The p-value is the least share outside at which the interval excludes 0; it agrees with the interval at `confidence`.
    low_p, high_p, middle = found.p_value, 1.0, 1.0 - confidence
    while high_p > low_p * _P_VALUE_FACTOR:
        if not low_p < middle < high_p:
            middle = math.sqrt(low_p * high_p)
        low, high = limits(1.0 - middle)
        low_p, high_p = (middle, high_p) if low <= 0.0 <= high else (low_p, middle)
    low, high = limits(confidence)
    counted = f"{found.estimate.n} pair{'s' if found.estimate.n > 1 else ''}"
    estimate = msgspec.structs.replace(
        found.estimate,
        method=f"{found.estimate.method} with the error of references",
        low=low,
        high=high,
        statement=difference_words(value, (low, high), confidence, high_p, counted, "bits"),
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
    seed: int,
) -> Estimate:
    """A median whose interval includes the error of references."""
    groups = [group for _, group in _among_others(run, results)]
    if not groups or found.confidence is None:
        return found
    chance = arrays(seed, "medians", "references")
    rows = np.tile(lows, (_DRAWS, 1))
    for group in groups:
        rows[:, group.places] = _exposure_draws([group], chance)[0]
    drawn, middles = np.median(rows, axis=1), (float(np.median(lows)), float(np.median(highs)))
    outside = (1.0 - found.confidence) / 2.0
    down, up = _error_limits(drawn - middles[0], outside)[0], _error_limits(drawn - middles[1], outside)[1]
    low = max(0.0, middles[0] - math.hypot(middles[0] - (found.low or 0.0), down))
    high = min(most, middles[1] + math.hypot((found.high or 0.0) - middles[1], up))
    return msgspec.structs.replace(
        found,
        low=low,
        high=high,
        statement=f"median of {found.n}: {'' if found.value is not None else 'at least '}{middles[0]:.2f} bits "
        f"({100 * found.confidence:g}% interval {rounded_down(low)} to {rounded_up(high)})",
        assumptions=(*found.assumptions, _LIKE_OTHERS),
    )
