"""Comparison of trainings: differences in exposure with their significance, and the frontier of utility against exposure.

Formats are compared one by one: exposures in spaces of different size have no common median.

The numbers are those of models that were audited already; nothing is measured here.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from coalmine.audits.comparison.options import ComparisonOptions
from coalmine.audits.comparison.references import (
    difference_errors,
    is_among_others,
    widened_difference,
    widened_median,
)
from coalmine.audits.comparison.results import ComparedRun, Comparison, PairDifference, Strategy
from coalmine.audits.comparison.sides import (
    conclusion,
    sides_of,
    training_difference,
    utility_of_sides,
    utility_relation,
)
from coalmine.audits.exposure.results import ExposureResult
from coalmine.errors import InputError
from coalmine.formats.naming import format_name
from coalmine.grouped import grouped
from coalmine.records import Estimate
from coalmine.statistics.differences import (
    SAME_RUNS,
    Difference,
    paired_difference,
    unpaired_difference,
)
from coalmine.statistics.intervals import median_estimate
from coalmine.statistics.multiple_tests import adjusted_p_values


class _OfFormat(ComparisonOptions, frozen=True, kw_only=True):
    """The options, for the canaries of one format."""

    # What is compared: canaries of this format, and those of no other.
    template: str = ""
    # How a sentence says which format that is, where there are several.
    named: str = ""


def compare(
    strategies: Sequence[Strategy], options: ComparisonOptions | None = None, **changes: Any
) -> Comparison:
    """Trainings side by side, format by format.

    The fields of `ComparisonOptions` can be given as keywords, such as `repetitions=4`, instead of a record or on top of one. Only planted
    canaries count. Trainings with the same canaries are compared canary by canary; sides of several trainings by the mean of each,
    because a canary says nothing about another seed. Exposures and their differences are in bits.

    >>> compare([Strategy("a", read_exposures("a"), None), Strategy("b", read_exposures("b"), None)])  # doctest: +SKIP
    """
    chosen = ComparisonOptions.of(options, changes)
    if len(strategies) < 2:
        raise InputError(f"comparing takes at least two runs, got {len(strategies)}; name another one")
    chosen.check()
    sides = sides_of(strategies)
    asked = _OfFormat(**msgspec.structs.asdict(chosen))
    templates = _templates(strategies, asked)
    several = len(templates) > 1
    obstacles = _utility_obstacles(strategies, asked)
    runs: list[ComparedRun] = []
    pairs: list[PairDifference] = []
    strata: list[str] = []
    for template in templates:
        of_format = msgspec.structs.replace(
            asked, template=template, named=f", on `{format_name(template)}`" if several else ""
        )
        present = [one for one in strategies if _planted(one, of_format)]
        strata += (mixed := _strata_obstacles(present, of_format))
        places = {} if obstacles or mixed else _places(sides, of_format)
        runs += [_compared(one, places, of_format) for one in present]
        pairs += [_pair(*two, sides, of_format) for two in itertools.combinations(sides, 2)]
    single = any(pair.unit == "canaries" for pair in pairs)
    return Comparison(
        **msgspec.structs.asdict(chosen),
        runs=tuple(runs),
        pairs=_adjusted(pairs, asked, several=several),
        warnings=(
            *obstacles,
            *strata,
            *_warnings(strategies, runs, single=single),
            *((SAME_RUNS,) if single else ()),
        ),
    )


def _templates(strategies: Sequence[Strategy], options: _OfFormat) -> list[str]:
    """The formats of planted canaries, in order of appearance; a run without any canaries is rejected."""
    found: dict[str, None] = {}
    for one in strategies:
        own = {
            facts.template: None
            for facts in one.exposure.formats
            if _planted(one, msgspec.structs.replace(options, template=facts.template))
        }
        if not own:
            which = "" if options.repetitions is None else f" that were planted {options.repetitions} times"
            raise InputError(
                f"{one.name} has no canaries{which} among its exposures; name a run with planted canaries, or other repetitions"
            )
        found |= own
    return list(found)


def _planted(one: Strategy, options: _OfFormat) -> list[ExposureResult]:
    of_format = {facts.format_id for facts in one.exposure.formats if facts.template == options.template}
    return [
        result
        for result in one.exposure.results
        if result.planted
        and result.format_id in of_format
        and options.repetitions in (None, result.repetitions)
    ]


def _most(runs: Sequence[Strategy], options: _OfFormat) -> float:
    """The largest exposure that is possible in the format."""
    return max(
        facts.size_bits
        for run in runs
        for facts in run.exposure.formats
        if facts.template == options.template
    )


def _median(one: Strategy, options: _OfFormat) -> Estimate:
    """The median exposure; an unmeasured canary may have any value, and one with a lower bound any value above it."""
    most = _most([one], options)
    lows, highs = [], []
    for result in _planted(one, options):
        estimate = result.estimate
        unknown = estimate.status == "not_measured"
        lows.append(
            0.0 if unknown else float((estimate.low if estimate.value is None else estimate.value) or 0.0)
        )
        highs.append(most if estimate.value is None else estimate.value)
    most = max(most, *highs)
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


def _utility_obstacles(strategies: Sequence[Strategy], options: _OfFormat) -> list[str]:
    """Why no run can be placed in the figure."""
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
    return found


def _strata_obstacles(strategies: Sequence[Strategy], options: _OfFormat) -> list[str]:
    """Why the medians of a format cannot be compared."""
    first, *others = (Counter(r.repetitions for r in _planted(one, options)) for one in strategies)
    if all(other == first for other in others):
        return []
    problem = (
        f"the runs had canaries of different repetitions{options.named}, so their medians cannot be compared"
    )
    return [f"{problem} and there is no frontier; choose some with --repetitions"]


def _warnings(strategies: Sequence[Strategy], runs: Sequence[ComparedRun], *, single: bool) -> list[str]:
    found = []
    for template in dict.fromkeys(run.template for run in runs):
        own = [run for run in runs if run.template == template]
        if len({run.methods for run in own}) > 1:
            methods = "; ".join(f"{run.name}: {', '.join(run.methods)}" for run in own)
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
    about = grouped((warning, one.name) for one in strategies for warning in one.exposure.warnings)
    found += [f"{', '.join(names)}: {warning}" for warning, names in about.items()]
    if single and any(run.utility is not None and run.utility.low is None for run in runs):
        found.append(
            "a single number for utility has no interval, so how sure its differences are is not known; give --utility a file with "
            "one number for each document"
        )
    return found


def _places(sides: Mapping[str, Sequence[Strategy]], options: _OfFormat) -> dict[str, tuple[float, float]]:
    """For each side that has both: its loss, lower being better, and its median exposure; of several trainings, the means."""
    places = {}
    for name, runs in sides.items():
        own = [one for one in runs if _planted(one, options)]
        middles = [_median(one, options).value for one in own]
        values = [None if one.utility is None else one.utility.estimate.value for one in own]
        known = [(value, middle) for value, middle in zip(values, middles, strict=True)]
        if own and all(value is not None and middle is not None for value, middle in known):
            loss, middle = (float(np.mean(column)) for column in zip(*known, strict=True))
            places[name] = (-loss if options.higher_is_better else loss, middle)
    return places


def _compared(one: Strategy, places: dict[str, tuple[float, float]], options: _OfFormat) -> ComparedRun:
    own = places.get(one.side or one.name)
    better: tuple[str, ...] = ()
    if own is not None:
        better = tuple(
            name
            for name, place in places.items()
            if place != own and place[0] <= own[0] and place[1] <= own[1]
        )
    return ComparedRun(
        name=one.name,
        side=one.side,
        format_id=_planted(one, options)[0].format_id,
        template=options.template,
        manifest_sha256=one.exposure.manifest_sha256,
        weights_sha256=one.exposure.model.get("weights_sha256"),
        exposures_sha256=one.exposures_sha256,
        methods=tuple(sorted({result.method for result in _planted(one, options)})),
        canaries=len(_planted(one, options)),
        exposure=_median(one, options),
        utility=None if one.utility is None else one.utility.estimate,
        on_frontier=None if own is None else not better,
        dominated_by=better,
    )


def _pair(
    first: str, second: str, sides: Mapping[str, Sequence[Strategy]], options: _OfFormat
) -> PairDifference:
    one, other = sides[first], sides[second]
    alone = len(one) == len(other) == 1
    rows = [[_planted(run, options) for run in side] for side in (one, other)]
    exposure, problem = _of_sides(one, other, rows, options)
    by_repetitions = {}
    levels = sorted(set.intersection(*({r.repetitions for r in row} for side in rows for row in side)))
    for level in levels if len(levels) > 1 else []:
        own = [[[r for r in row if r.repetitions == level] for row in side] for side in rows]
        found, _ = _of_sides(one, other, own, options)
        if found is not None:
            by_repetitions[str(level)] = found
    judge = partial(utility_relation, one[0], other[0]) if alone else partial(utility_of_sides, one, other)
    relation, words = judge(
        equal_within=options.equal_within,
        higher_is_better=options.higher_is_better,
        confidence=options.confidence,
    )
    planted = [r for side in rows for row in side for r in row]
    return PairDifference(
        first=first,
        second=second,
        format_id=planted[0].format_id,
        template=options.template,
        unit="canaries" if alone else "trainings",
        trainings=(len(one), len(other)),
        exposure=exposure,
        problem=problem,
        adjusted_p_value=None,
        by_repetitions=by_repetitions,
        utility_relation=relation,
        utility_statement=f"{options.utility_name}: {words}",
        statement="",
    )


def _of_sides(
    first: Sequence[Strategy],
    second: Sequence[Strategy],
    rows: Sequence[Sequence[Sequence[ExposureResult]]],
    options: _OfFormat,
) -> tuple[Difference | None, str | None]:
    """The difference of two sides, by the canaries `rows` of each of their runs; or why there is none."""
    without = [
        run.name
        for side, own in zip((first, second), rows, strict=True)
        for run, row in zip(side, own, strict=True)
        if not row
    ]
    if without:
        return None, f"there are no such canaries in {', '.join(without)}"
    if len(first) == len(second) == 1:
        return _difference(first[0], second[0], rows[0][0], rows[1][0], options)
    return training_difference(*rows, most=_most([*first, *second], options), confidence=options.confidence)


def _difference(
    first: Strategy,
    second: Strategy,
    one: Sequence[ExposureResult],
    other: Sequence[ExposureResult],
    options: _OfFormat,
) -> tuple[Difference | None, str | None]:
    open_ones = sum(r.exposure is None for r in (*one, *other))
    if open_ones:
        # Leaving them out would leave out those that are best remembered.
        return None, (
            f"{open_ones} exposures have no value, only a bound or none; measure them by the exact or guided method"
        )
    most = _most([first, second], options)
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
        sides = [grouped((r.repetitions, r) for r in side) for side in (one, other)]
        common = sorted(sides[0].keys() & sides[1].keys())
        if not common:
            return (
                None,
                "the runs have other canaries, of other repetitions, which cannot be compared",
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


def _parts(first: Sequence[int], second: Sequence[int]) -> tuple[list[float], list[float]]:
    """By how much the unpaired difference moves with each number, for strata of these sizes on both sides."""
    weights = [m * n / (m + n) for m, n in zip(first, second, strict=True)]
    one = [weight / sum(weights) / m for weight, m in zip(weights, first, strict=True) for _ in range(m)]
    other = [-weight / sum(weights) / n for weight, n in zip(weights, second, strict=True) for _ in range(n)]
    return one, other


def _adjusted(
    pairs: Sequence[PairDifference], options: _OfFormat, *, several: bool
) -> tuple[PairDifference, ...]:
    adjusted = iter(adjusted_p_values([pair.exposure.p_value for pair in pairs if pair.exposure is not None]))
    found = []
    for pair in pairs:
        p_value = None if pair.exposure is None else next(adjusted)
        named = f", on `{format_name(pair.template)}`" if several else ""
        statement = conclusion(pair, p_value, options.confidence, named=named)
        found.append(msgspec.structs.replace(pair, adjusted_p_value=p_value, statement=statement))
    return tuple(found)
