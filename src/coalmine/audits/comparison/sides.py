"""The two sides of a comparison, of one training or several seeds each: their difference, their utilities, and the conclusion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from coalmine.audits.comparison.results import PairDifference, Strategy, UtilityRelation
from coalmine.audits.exposure.results import ExposureResult
from coalmine.errors import InputError, NotMeasurableError
from coalmine.statistics.differences import FEWEST_RUNS, Difference, paired_difference, run_difference


def sides_of(strategies: Sequence[Strategy]) -> dict[str, list[Strategy]]:
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


def training_difference(
    first: Sequence[Sequence[ExposureResult]],
    second: Sequence[Sequence[ExposureResult]],
    *,
    most: float,
    confidence: float,
) -> tuple[Difference | None, str | None]:
    """The difference of the sides' mean exposures over trainings, or why there is none; one row of canaries per training."""
    if min(len(first), len(second)) < FEWEST_RUNS:
        return None, (
            f"with {len(first)} against {len(second)} trainings it cannot be known how much a seed matters on the smaller side; train "
            f"at least {FEWEST_RUNS} on each"
        )
    runs = [*first, *second]
    open_ones = sum(result.exposure is None for run in runs for result in run)
    if open_ones:
        return None, (
            f"{open_ones} exposures have no value, only a bound or none; measure them by the exact or guided method"
        )
    kinds = [Counter(result.repetitions for result in run) for run in runs]
    if any(kind != kinds[0] for kind in kinds):
        return None, (
            "the trainings had canaries of different repetitions, so their means cannot be compared; choose some with --repetitions"
        )
    means = [[float(np.mean([r.exposure or 0.0 for r in run])) for run in side] for side in (first, second)]
    try:
        return run_difference(*means, most=most, confidence=confidence), None
    except NotMeasurableError as problem:
        return None, str(problem)


def utility_of_sides(
    first: Sequence[Strategy],
    second: Sequence[Strategy],
    *,
    equal_within: float,
    higher_is_better: bool,
    confidence: float,
) -> tuple[UtilityRelation, str]:
    """How the utilities of two sides compare over their trainings, and why."""
    measures = [one.utility for side in (first, second) for one in side]
    values = [
        [one.utility.estimate.value for one in side if one.utility is not None] for side in (first, second)
    ]
    known = [[value for value in side if value is not None] for side in values]
    if sum(map(len, known)) < len(measures):
        return "not known", "not known for all trainings"
    if len({one.measured_on for one in measures if one is not None} - {None}) > 1:
        return "not known", "measured on different documents or in different tokens"
    numbers = f"{np.mean(known[0]):.4g} and {np.mean(known[1]):.4g} on average"
    try:
        found = run_difference(*known, confidence=confidence, unit="").estimate
    except NotMeasurableError:
        return "not told apart", f"not told apart ({numbers}, without an interval)"
    low, high = found.low or 0.0, found.high or 0.0
    limits = f"{numbers}, difference {low:.3g} to {high:.3g} at {100 * confidence:g}%"
    return _relation(low, high, limits, equal_within, higher_is_better=higher_is_better)


def _relation(
    low: float, high: float, limits: str, equal_within: float, *, higher_is_better: bool
) -> tuple[UtilityRelation, str]:
    """How two utilities compare whose difference is between two limits."""
    if -equal_within <= low and high <= equal_within:
        return "equal", f"equal within {equal_within:g} ({limits})"
    if low <= 0 <= high:
        return "not told apart", f"not told apart ({limits})"
    first_wins = (low > 0) == higher_is_better
    return "first better" if first_wins else "second better", f"different ({limits})"


def utility_relation(
    first: Strategy,
    second: Strategy,
    *,
    equal_within: float,
    higher_is_better: bool,
    confidence: float = 0.95,
) -> tuple[UtilityRelation, str]:
    """How the utilities of two trainings compare, and why."""
    one, other = first.utility, second.utility
    if one is None or other is None or one.estimate.value is None or other.estimate.value is None:
        return "not known", "not known for both"
    if one.measured_on != other.measured_on and None not in (one.measured_on, other.measured_on):
        return "not known", "measured on different documents or in different tokens"
    numbers = f"{one.estimate.value:.4g} and {other.estimate.value:.4g}"
    difference = one.estimate.value - other.estimate.value
    low, high, limits = difference, difference, f"{numbers}, without an interval"
    if (
        one.documents is not None
        and other.documents is not None
        and len(one.documents) == len(other.documents)
    ):
        found = paired_difference(one.documents, other.documents, confidence=confidence, unit="").estimate
        if found.low is not None and found.high is not None:
            low, high = found.low, found.high
            limits = f"{numbers}, difference {low:.3g} to {high:.3g} at {100 * (found.confidence or 0):g}%"
    return _relation(low, high, limits, equal_within, higher_is_better=higher_is_better)


def conclusion(pair: PairDifference, p_value: float | None, confidence: float, *, named: str = "") -> str:
    """The conclusion about a pair, in one sentence; `named` says which format it is about if there are several.

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
