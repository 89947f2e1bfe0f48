"""Which of several trainings remembers less, at what cost in utility? Differences with their significance, and the frontier.

The numbers are those of models that were audited already; nothing is measured here.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from coalmine.audits.comparing_references import (
    difference_errors,
    is_among_others,
    widened_difference,
    widened_median,
)
from coalmine.audits.comparing_results import ComparedRun, Comparison, PairDifference, Strategy
from coalmine.audits.comparing_utility import conclusion, utility_relation
from coalmine.audits.exposure_results import ExposureResult
from coalmine.errors import InputError
from coalmine.records import Estimate
from coalmine.statistics.differences import (
    SAME_RUNS,
    Difference,
    holm,
    paired_difference,
    unpaired_difference,
)
from coalmine.statistics.medians import median_estimate

# A format and a number of repetitions: only canaries with the same of both are alike.
_Stratum = tuple[str, int]


class _Options(NamedTuple):
    repetitions: int | None
    utility_name: str
    higher_is_better: bool
    equal_within: float
    confidence: float
    seed: int


def compare(
    strategies: Sequence[Strategy],
    *,
    repetitions: int | None = None,
    utility_name: str = "validation loss",
    higher_is_better: bool = False,
    equal_within: float = 0.02,
    confidence: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Trainings side by side.

    Only planted canaries count, with `repetitions` only those that were planted so often. Utilities that differ by no more than
    `equal_within`, in their own unit, count as equal. Trainings with the same canaries are compared canary by canary.
    """
    if len(strategies) < 2:
        raise InputError(f"comparing takes at least two runs, got {len(strategies)}; name another one")
    if not math.isfinite(equal_within) or equal_within < 0:
        raise InputError(f"equal_within must be a number of at least 0, got {equal_within}")
    options = _Options(repetitions, utility_name, higher_is_better, equal_within, confidence, seed)
    for one in strategies:
        if not _planted(one, options):
            which = "" if repetitions is None else f" that were planted {repetitions} times"
            raise InputError(
                f"{one.name} has no canaries{which} among its exposures; name a run with planted canaries, or other repetitions"
            )
    obstacles = _obstacles(strategies, options)
    places = {} if obstacles else _places(strategies, options)
    runs = tuple(_compared(one, places, options) for one in strategies)
    pairs = [_pair(*two, options) for two in itertools.combinations(strategies, 2)]
    return Comparison(
        utility_name=utility_name,
        higher_is_better=higher_is_better,
        equal_within=equal_within,
        repetitions=repetitions,
        confidence=confidence,
        seed=seed,
        runs=runs,
        pairs=_adjusted(pairs, options),
        warnings=(*obstacles, *_warnings(strategies, runs), SAME_RUNS),
    )


def _planted(one: Strategy, options: _Options) -> list[ExposureResult]:
    return [
        result
        for result in one.exposure.results
        if result.planted and options.repetitions in (None, result.repetitions)
    ]


def _median(one: Strategy, options: _Options) -> Estimate:
    """The median exposure; a canary that was not measured can have any, and one with a bound anything above it."""
    sizes = {facts.format_id: facts.size_bits for facts in one.exposure.formats}
    lows, highs = [], []
    for result in _planted(one, options):
        estimate = result.estimate
        unknown = estimate.status == "not_measured"
        lows.append(
            0.0 if unknown else float((estimate.low if estimate.value is None else estimate.value) or 0.0)
        )
        highs.append(sizes[result.format_id] if estimate.value is None else estimate.value)
    most = max(*sizes.values(), *highs)
    found = median_estimate(lows, highs, most=most, confidence=options.confidence)
    return widened_median(
        one,
        _planted(one, options),
        found,
        np.array(lows),
        np.array(highs),
        most,
        confidence=options.confidence,
        seed=options.seed,
    )


def _strata(one: Strategy, options: _Options) -> Counter[_Stratum]:
    templates = {facts.format_id: facts.template for facts in one.exposure.formats}
    return Counter((templates[r.format_id], r.repetitions) for r in _planted(one, options))


def _obstacles(strategies: Sequence[Strategy], options: _Options) -> list[str]:
    """Why the runs cannot stand in one figure."""
    found = []
    missing = [one.name for one in strategies if one.utility is None]
    if missing:
        found.append(
            f"there is no {options.utility_name} for {', '.join(missing)}, so there is no frontier; give it with --utility"
        )
    grounds = {one.utility.measured_on for one in strategies if one.utility is not None} - {None}
    if len(grounds) > 1:
        found.append(
            "the validation losses were measured on different documents or in different tokens, so they cannot be compared and "
            "there is no frontier; measure all models on the same documents and give --utility"
        )
    first, *others = (_strata(one, options) for one in strategies)
    if any(other != first for other in others):
        found.append(
            "the runs had canaries of different formats or repetitions, so their medians cannot be compared and there is no "
            "frontier; choose some with --repetitions"
        )
    return found


def _warnings(strategies: Sequence[Strategy], runs: Sequence[ComparedRun]) -> list[str]:
    found = []
    if len({run.methods for run in runs}) > 1:
        methods = "; ".join(f"{run.name}: {', '.join(run.methods)}" for run in runs)
        found.append(f"exposure was measured by different methods ({methods}), whose errors differ")
    shared = [
        one.name
        for one in strategies
        if any(
            is_among_others(r) and r.estimate.n < 10 * len(one.exposure.results) for r in one.exposure.results
        )
    ]
    if shared:
        found.append(
            f"the canaries of {', '.join(shared)} were compared with fewer than ten references or samples for each: all of them share "
            "the error of those, which widens the intervals; draw more, or measure by the exact or guided method"
        )
    for one in strategies:
        found += [f"{one.name}: {warning}" for warning in one.exposure.warnings]
    if any(run.utility is not None and run.utility.low is None for run in runs):
        found.append(
            "a single number for utility has no interval, so how sure its differences are is not known; give --utility a file with "
            "one number for each document"
        )
    return found


def _places(strategies: Sequence[Strategy], options: _Options) -> dict[str, tuple[float, float]]:
    """For each run that has both: its loss, lower being better, and its median exposure."""
    places = {}
    for one in strategies:
        middle = _median(one, options).value
        value = None if one.utility is None else one.utility.estimate.value
        if middle is not None and value is not None:
            places[one.name] = (-value if options.higher_is_better else value, middle)
    return places


def _compared(one: Strategy, places: dict[str, tuple[float, float]], options: _Options) -> ComparedRun:
    own = places.get(one.name)
    better: tuple[str, ...] = ()
    if own is not None:
        better = tuple(
            name
            for name, place in places.items()
            if place != own and place[0] <= own[0] and place[1] <= own[1]
        )
    return ComparedRun(
        name=one.name,
        manifest_sha256=one.exposure.manifest_sha256,
        methods=tuple(sorted({result.method for result in _planted(one, options)})),
        canaries=len(_planted(one, options)),
        exposure=_median(one, options),
        utility=None if one.utility is None else one.utility.estimate,
        on_frontier=None if own is None else not better,
        dominated_by=better,
    )


def _pair(first: Strategy, second: Strategy, options: _Options) -> PairDifference:
    one, other = _planted(first, options), _planted(second, options)
    exposure, problem = _difference(first, second, one, other, options)
    by_repetitions = {}
    levels = sorted({r.repetitions for r in one} & {r.repetitions for r in other})
    for level in levels if len(levels) > 1 else []:
        own, others = ([r for r in side if r.repetitions == level] for side in (one, other))
        found, _ = _difference(first, second, own, others, options)
        if found is not None:
            by_repetitions[str(level)] = found
    relation, words = utility_relation(
        first,
        second,
        equal_within=options.equal_within,
        higher_is_better=options.higher_is_better,
        confidence=options.confidence,
    )
    return PairDifference(
        first=first.name,
        second=second.name,
        exposure=exposure,
        problem=problem,
        adjusted_p_value=None,
        by_repetitions=by_repetitions,
        utility_relation=relation,
        utility_statement=f"{options.utility_name}: {words}",
        statement="",
    )


def _difference(
    first: Strategy,
    second: Strategy,
    one: Sequence[ExposureResult],
    other: Sequence[ExposureResult],
    options: _Options,
) -> tuple[Difference | None, str | None]:
    open_ones = sum(r.exposure is None for r in (*one, *other))
    if open_ones:
        # Leaving them out would leave out those that are best remembered.
        return None, (
            f"{open_ones} exposures have no value, only a bound or none; measure them by the exact or guided method"
        )
    most = max(facts.size_bits for run in (first, second) for facts in run.exposure.formats)
    test: Callable[..., Difference]
    if first.exposure.manifest_sha256 == second.exposure.manifest_sha256:
        same = {r.canary_id: r for r in other}
        one = [r for r in one if r.canary_id in same]
        other = [same[r.canary_id] for r in one]
        if not one:
            return None, "the runs have no canary in common"
        counted = f"{len(one)} pair{'s' if len(one) > 1 else ''}"
        test = partial(paired_difference, _values(one), _values(other))
        parts = ([1 / len(one)] * len(one), [-1 / len(one)] * len(one))
    else:
        sides = [_by_stratum(first, one), _by_stratum(second, other)]
        common = sorted(sides[0].keys() & sides[1].keys())
        if not common:
            return (
                None,
                "the runs have other canaries, of other formats or repetitions, which cannot be compared",
            )
        test = partial(unpaired_difference, *([_values(side[key]) for key in common] for side in sides))
        sizes = [[len(side[key]) for key in common] for side in sides]
        one, other = ([r for key in common for r in side[key]] for side in sides)
        counted = f"{len(one)} against {len(other)}"
        parts = _parts(*sizes)
    again = partial(test, most=most, seed=options.seed)
    found = again(confidence=options.confidence)
    errors = difference_errors((first, second), (one, other), parts, options.seed)
    if errors is not None:
        found = widened_difference(found, errors, again, most, counted, confidence=options.confidence)
    return found, None


def _values(results: Sequence[ExposureResult]) -> list[float]:
    return [r.exposure or 0.0 for r in results]


def _by_stratum(run: Strategy, results: Sequence[ExposureResult]) -> dict[_Stratum, list[ExposureResult]]:
    templates = {facts.format_id: facts.template for facts in run.exposure.formats}
    strata: dict[_Stratum, list[ExposureResult]] = {}
    for r in results:
        strata.setdefault((templates[r.format_id], r.repetitions), []).append(r)
    return strata


def _parts(first: Sequence[int], second: Sequence[int]) -> tuple[list[float], list[float]]:
    """By how much the unpaired difference moves with each number, for strata of these sizes on both sides."""
    weights = [m * n / (m + n) for m, n in zip(first, second, strict=True)]
    one = [weight / sum(weights) / m for weight, m in zip(weights, first, strict=True) for _ in range(m)]
    other = [-weight / sum(weights) / n for weight, n in zip(weights, second, strict=True) for _ in range(n)]
    return one, other


def _adjusted(pairs: Sequence[PairDifference], options: _Options) -> tuple[PairDifference, ...]:
    adjusted = iter(holm([pair.exposure.p_value for pair in pairs if pair.exposure is not None]))
    found = []
    for pair in pairs:
        p_value = None if pair.exposure is None else next(adjusted)
        found.append(
            msgspec.structs.replace(
                pair, adjusted_p_value=p_value, statement=conclusion(pair, p_value, options.confidence)
            )
        )
    return tuple(found)
