"""Comparison of trainings: differences in exposure with their significance, and the frontier of utility against exposure.

Formats are compared one by one: exposures in spaces of different size have no common median. The numbers are those of models that were
audited already; nothing is measured here.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coalmine.audits.comparison.records import (
    ComparedRun,
    Comparison,
    ComparisonOptions,
    PairDifference,
    Strategy,
    UtilityRelation,
)
from coalmine.audits.comparison.references import (
    difference_errors,
    is_among_others,
    widened_difference,
    widened_median,
)
from coalmine.audits.exposure.results import ExposureResult
from coalmine.errors import InputError, NotMeasurableError
from coalmine.formats.naming import format_name
from coalmine.grouped import grouped
from coalmine.records import Estimate
from coalmine.statistics.differences import (
    FEWEST_RUNS,
    SAME_RUNS,
    Difference,
    paired_difference,
    run_difference,
    unpaired_difference,
)
from coalmine.statistics.intervals import median_estimate
from coalmine.statistics.multiple_tests import adjusted_p_values

# With fewer references for each canary, their common error decides how sure a comparison is.
_OTHERS_PER_CANARY = 10
_OPEN = "{} exposures have no value, only a bound or none; measure them by the exact or guided method"
Found = tuple[Difference | None, str | None]


class _Format(NamedTuple):
    """What is compared: the planted canaries of one format, and of no other."""

    options: ComparisonOptions
    template: str
    # How a sentence says which format that is, where there are several.
    named: str = ""

    def planted(self, one: Strategy) -> list[ExposureResult]:
        """The canaries of a training."""
        of_format = {facts.format_id for facts in one.exposure.formats if facts.template == self.template}
        return [
            result
            for result in one.exposure.results
            if result.planted
            and result.format_id in of_format
            and self.options.repetitions in (None, result.repetitions)
        ]

    def most(self, runs: Sequence[Strategy]) -> float:
        """The largest exposure that is possible."""
        facts = (one for run in runs for one in run.exposure.formats)
        return max(one.size_bits for one in facts if one.template == self.template)

    def median(self, one: Strategy) -> Estimate:
        """The median exposure; an unmeasured canary may have any value, and one with a lower bound any value above it."""
        results, most = self.planted(one), self.most([one])
        estimates = [result.estimate for result in results]
        lows = [float((one.low if one.value is None else one.value) or 0.0) for one in estimates]
        highs = [most if one.value is None else one.value for one in estimates]
        most = max(most, *highs)
        level: dict[str, Any] = {"most": most, "confidence": self.options.confidence}
        found = median_estimate(lows, highs, **level)
        return widened_median(
            one, results, found, np.array(lows), np.array(highs), seed=self.options.seed, **level
        )


def compare(
    strategies: Sequence[Strategy], options: ComparisonOptions | None = None, **changes: Any
) -> Comparison:
    """Trainings side by side, format by format.

    The fields of `ComparisonOptions` can be given as keywords, such as `repetitions=4`, instead of a record or on top of one. Only planted
    canaries count. Trainings with the same canaries are compared canary by canary; sides of several trainings by the mean of each,
    because a canary says nothing about another seed. Exposures and their differences are in bits.

    >>> compare([Strategy("a", read_exposures("a"), None), Strategy("b", read_exposures("b"), None)])  # doctest: +SKIP
    """
    asked = ComparisonOptions.of(options, changes)
    if len(strategies) < 2:
        raise InputError(f"comparing takes at least two runs, got {len(strategies)}; name another one")
    asked.check()
    sides = _sides(strategies)
    templates = _templates(strategies, asked)
    obstacles = _utility_obstacles(strategies, asked)
    runs: list[ComparedRun] = []
    pairs: list[PairDifference] = []
    strata: list[str] = []
    for template in templates:
        of_format = _Format(asked, template, f", on `{format_name(template)}`" if len(templates) > 1 else "")
        present = [one for one in strategies if of_format.planted(one)]
        first, *others = (Counter(r.repetitions for r in of_format.planted(one)) for one in present)
        mixed = any(other != first for other in others)
        if mixed:
            strata.append(
                f"the runs had canaries of different repetitions{of_format.named}, so their medians cannot be compared and there is no "
                "frontier; choose some with --repetitions"
            )
        places = {} if obstacles or mixed else _places(sides, of_format)
        runs += [_compared(one, places, of_format) for one in present]
        pairs += [_pair(*two, sides, of_format) for two in itertools.combinations(sides, 2)]
    single = any(pair.unit == "canaries" for pair in pairs)
    adjusted = iter(adjusted_p_values([pair.exposure.p_value for pair in pairs if pair.exposure is not None]))
    return Comparison(
        **msgspec.structs.asdict(asked),
        runs=tuple(runs),
        pairs=tuple(
            _concluded(pair, None if pair.exposure is None else next(adjusted), asked, len(templates) > 1)
            for pair in pairs
        ),
        warnings=(
            *obstacles,
            *strata,
            *_warnings(strategies, runs, single=single),
            *((SAME_RUNS,) if single else ()),
        ),
    )


def _sides(strategies: Sequence[Strategy]) -> dict[str, list[Strategy]]:
    """The runs of each side, by its name; a run without one is a side of its own."""
    sides: dict[str, list[Strategy]] = {}
    named = {one.side for one in strategies if one.side is not None}
    for one in strategies:
        if one.side is None and one.name in named:
            raise InputError(
                f"{one.name!r} is both a run without a label and the label of others; give it a label too"
            )
        sides.setdefault(one.side or one.name, []).append(one)
    if len(sides) < 2:
        raise InputError(
            f"comparing takes at least two sides, got {', '.join(sides) or 'none'}; name a run of another one"
        )
    return sides


def _templates(strategies: Sequence[Strategy], options: ComparisonOptions) -> list[str]:
    """The formats of planted canaries, in order of appearance; a run without any canaries is rejected."""
    found: dict[str, None] = {}
    for one in strategies:
        own = {
            facts.template: None
            for facts in one.exposure.formats
            if _Format(options, facts.template).planted(one)
        }
        if not own:
            which = "" if options.repetitions is None else f" that were planted {options.repetitions} times"
            raise InputError(
                f"{one.name} has no canaries{which} among its exposures; name a run with planted canaries, or other repetitions"
            )
        found |= own
    return list(found)


def _utility_obstacles(strategies: Sequence[Strategy], options: ComparisonOptions) -> list[str]:
    """Why no run can be placed in the figure."""
    found = []
    missing = [one.name for one in strategies if one.utility is None]
    if missing:
        found.append(
            f"there is no {options.utility_name} for {', '.join(missing)}, so there is no frontier; give it with --utility"
        )
    if not _on_same_ground(strategies):
        found.append(
            "the validation losses were measured on different documents or in different tokens, so they cannot be compared and "
            "there is no frontier; measure all models on the same documents and give --utility"
        )
    return found


def _on_same_ground(strategies: Sequence[Strategy]) -> bool:
    """Whether utilities can be compared: those that say what they were measured on say the same."""
    return len({one.utility.measured_on for one in strategies if one.utility is not None} - {None}) <= 1


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
            is_among_others(r) and r.estimate.n < _OTHERS_PER_CANARY * len(one.exposure.results)
            for r in one.exposure.results
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


def _places(sides: Mapping[str, Sequence[Strategy]], asked: _Format) -> dict[str, tuple[float, float]]:
    """For each side that has both: its loss, lower being better, and its median exposure; of several trainings, the means."""
    places = {}
    for name, runs in sides.items():
        own = [one for one in runs if asked.planted(one)]
        known = [
            (None if one.utility is None else one.utility.estimate.value, asked.median(one).value)
            for one in own
        ]
        if own and all(None not in both for both in known):
            loss, middle = (float(np.mean(column)) for column in zip(*known, strict=True))
            places[name] = (-loss if asked.options.higher_is_better else loss, middle)
    return places


def _compared(one: Strategy, places: Mapping[str, tuple[float, float]], asked: _Format) -> ComparedRun:
    own, results = places.get(one.side or one.name), asked.planted(one)
    better = [
        name
        for name, place in places.items()
        if own is not None and place != own and place[0] <= own[0] and place[1] <= own[1]
    ]
    return ComparedRun(
        name=one.name,
        side=one.side,
        format_id=results[0].format_id,
        template=asked.template,
        manifest_sha256=one.exposure.manifest_sha256,
        weights_sha256=one.exposure.model.get("weights_sha256"),
        exposures_sha256=one.exposures_sha256,
        methods=tuple(sorted({result.method for result in results})),
        canaries=len(results),
        exposure=asked.median(one),
        utility=None if one.utility is None else one.utility.estimate,
        on_frontier=None if own is None else not better,
        dominated_by=tuple(better),
    )


def _pair(first: str, second: str, sides: Mapping[str, Sequence[Strategy]], asked: _Format) -> PairDifference:
    one, other = sides[first], sides[second]
    rows = [[asked.planted(run) for run in side] for side in (one, other)]
    exposure, problem = _of_sides(one, other, rows, asked)
    by_repetitions = {}
    levels = sorted(set.intersection(*({r.repetitions for r in row} for side in rows for row in side)))
    for level in levels if len(levels) > 1 else []:
        own = [[[r for r in row if r.repetitions == level] for row in side] for side in rows]
        found, _ = _of_sides(one, other, own, asked)
        if found is not None:
            by_repetitions[str(level)] = found
    relation, words = utility_relation(one, other, asked.options)
    planted = [r for side in rows for row in side for r in row]
    return PairDifference(
        first=first,
        second=second,
        format_id=planted[0].format_id,
        template=asked.template,
        unit="canaries" if len(one) == len(other) == 1 else "trainings",
        trainings=(len(one), len(other)),
        exposure=exposure,
        problem=problem,
        adjusted_p_value=None,
        by_repetitions=by_repetitions,
        utility_relation=relation,
        utility_statement=f"{asked.options.utility_name}: {words}",
        statement="",
    )


def _of_sides(
    first: Sequence[Strategy],
    second: Sequence[Strategy],
    rows: Sequence[Sequence[Sequence[ExposureResult]]],
    asked: _Format,
) -> Found:
    """The difference of two sides, by the canaries `rows` of each of their runs; or why there is none."""
    runs = [run for side in rows for run in side]
    without = [run.name for run, row in zip((*first, *second), runs, strict=True) if not row]
    if without:
        return None, f"there are no such canaries in {', '.join(without)}"
    alone = len(first) == len(second) == 1
    if not alone and min(len(first), len(second)) < FEWEST_RUNS:
        return None, (
            f"with {len(first)} against {len(second)} trainings it cannot be known how much a seed matters on the smaller side; train "
            f"at least {FEWEST_RUNS} on each"
        )
    open_ones = sum(result.exposure is None for run in runs for result in run)
    if open_ones:
        # Leaving them out would leave out those that are best remembered.
        return None, _OPEN.format(open_ones)
    if alone:
        return _of_canaries((first[0], second[0]), (rows[0][0], rows[1][0]), asked)
    kinds = [Counter(result.repetitions for result in run) for run in runs]
    if any(kind != kinds[0] for kind in kinds):
        return None, (
            "the trainings had canaries of different repetitions, so their means cannot be compared; choose some with --repetitions"
        )
    means = [[float(np.mean(_values(run))) for run in side] for side in rows]
    try:
        most = asked.most([*first, *second])
        return run_difference(*means, most=most, confidence=asked.options.confidence), None
    except NotMeasurableError as problem:
        return None, str(problem)


def _of_canaries(
    runs: tuple[Strategy, Strategy],
    results: tuple[Sequence[ExposureResult], Sequence[ExposureResult]],
    asked: _Format,
) -> Found:
    """The difference of two trainings over their canaries: paired where these are the same."""
    one, other = results
    test: Callable[..., Difference]
    if runs[0].exposure.manifest_sha256 == runs[1].exposure.manifest_sha256:
        same = {r.canary_id: r for r in other}
        one = [r for r in one if r.canary_id in same]
        other = [same[r.canary_id] for r in one]
        if not one:
            return None, "the runs have no canary in common"
        counted = f"{len(one)} pair{'s' if len(one) > 1 else ''}"
        test = partial(paired_difference, _values(one), _values(other))
        # By how much the difference moves with each exposure.
        parts = ([1 / len(one)] * len(one), [-1 / len(one)] * len(one))
    else:
        sides = [grouped((r.repetitions, r) for r in side) for side in results]
        common = sorted(sides[0].keys() & sides[1].keys())
        if not common:
            return None, "the runs have other canaries, of other repetitions, which cannot be compared"
        test = partial(unpaired_difference, *([_values(side[key]) for key in common] for side in sides))
        sizes = [(len(sides[0][key]), len(sides[1][key])) for key in common]
        weights = [m * n / (m + n) for m, n in sizes]
        shares = [weight / sum(weights) for weight in weights]
        parts = (
            [share / m for share, (m, _) in zip(shares, sizes, strict=True) for _ in range(m)],
            [-share / n for share, (_, n) in zip(shares, sizes, strict=True) for _ in range(n)],
        )
        one, other = ([r for key in common for r in side[key]] for side in sides)
        counted = f"{len(one)} against {len(other)}"
    options, most = asked.options, asked.most(runs)
    again = partial(test, most=most, seed=options.seed)
    found = again(confidence=options.confidence)
    errors = difference_errors(runs, (one, other), parts, options.seed)
    if errors is not None:
        found = widened_difference(found, errors, again, most, counted, confidence=options.confidence)
    return found, None


def _values(results: Sequence[ExposureResult]) -> list[float]:
    return [r.exposure or 0.0 for r in results]


def utility_relation(
    first: Sequence[Strategy], second: Sequence[Strategy], options: ComparisonOptions
) -> tuple[UtilityRelation, str]:
    """How the utilities of two sides compare over their trainings or, of single ones, over documents; and why."""
    measures = [[one.utility for one in side if one.utility is not None] for side in (first, second)]
    values = [[one.estimate.value for one in side if one.estimate.value is not None] for side in measures]
    alone = len(first) == len(second) == 1
    if sum(map(len, values)) < len(first) + len(second):
        return "not known", f"not known for {'both' if alone else 'all trainings'}"
    if not _on_same_ground([*first, *second]):
        return "not known", "measured on different documents or in different tokens"
    numbers = f"{np.mean(values[0]):.4g} and {np.mean(values[1]):.4g}{'' if alone else ' on average'}"
    confidence = options.confidence
    estimate: Estimate | None = None
    if not alone:
        try:
            estimate = run_difference(*values, confidence=confidence, unit="").estimate
        except NotMeasurableError:
            return "not told apart", f"not told apart ({numbers}, without an interval)"
    else:
        documents = [side[0].documents for side in measures]
        if documents[0] is not None and documents[1] is not None and len(documents[0]) == len(documents[1]):
            estimate = paired_difference(documents[0], documents[1], confidence=confidence, unit="").estimate
    low = high = values[0][0] - values[1][0]
    limits = f"{numbers}, without an interval"
    if estimate is not None and estimate.low is not None and estimate.high is not None:
        low, high = estimate.low, estimate.high
        limits = f"{numbers}, difference {low:.3g} to {high:.3g} at {100 * confidence:g}%"
    within = options.equal_within
    if -within <= low and high <= within:
        return "equal", f"equal within {within:g} ({limits})"
    if low <= 0 <= high:
        return "not told apart", f"not told apart ({limits})"
    first_wins = (low > 0) == options.higher_is_better
    return "first better" if first_wins else "second better", f"different ({limits})"


def _concluded(
    pair: PairDifference, p_value: float | None, options: ComparisonOptions, several: bool
) -> PairDifference:
    """A pair with its p-value among all, and the conclusion in one sentence, which names the format if there are `several`."""
    named = f", on `{format_name(pair.template)}`" if several else ""
    statement = _conclusion(pair, p_value, options.confidence, named)
    return msgspec.structs.replace(pair, adjusted_p_value=p_value, statement=statement)


def _conclusion(pair: PairDifference, p_value: float | None, confidence: float, named: str) -> str:
    """The conclusion about a pair.

    Only a difference over several trainings on each side is a reason to prefer a way of training. A difference of two
    models says only which of these two exposes less.
    """
    names = f"{pair.first} and {pair.second}{named}"
    if pair.exposure is None or p_value is None:
        return f"{names}: the difference in exposure could not be measured: {pair.problem}"
    difference = pair.exposure.estimate
    more, less = (pair.first, pair.second) if (difference.value or 0) > 0 else (pair.second, pair.first)
    if p_value > 1 - confidence:
        why = f"p = {p_value:.2g}, {difference.n} {pair.unit}"
        return f"{names}: no difference in exposure is shown ({why}); {pair.utility_statement}"
    adjusted = "" if p_value == pair.exposure.p_value else f" (adjusted {p_value:.2g})"
    said = f"{pair.first} against {pair.second}{named}: {difference.statement}{adjusted}; {pair.utility_statement}"
    better = {"first better": pair.first, "second better": pair.second}.get(pair.utility_relation)
    if pair.unit == "canaries":
        beside = {less: ", and has the better utility", more: f", and {more} has the better utility"}
        return f"{said}: of these two models, {less} exposes less{beside.get(better or '', '')}"
    if pair.utility_relation == "equal" or better == less:
        return f"{said}: prefer {less}"
    if better == more:
        return f"{said}: a trade, because {less} exposes less and {more} has the better utility"
    return f"{said}: {less} exposes less, and whether it costs utility is open"
