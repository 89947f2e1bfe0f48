"""How do the utilities of two trainings compare, and what follows for the choice between them?"""

from __future__ import annotations

from coalmine.audits.comparison.results import PairDifference, Strategy, UtilityRelation
from coalmine.statistics.differences import paired_difference


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
    first_better: UtilityRelation = "first better"
    second_better: UtilityRelation = "second better"
    if (
        one.documents is not None
        and other.documents is not None
        and len(one.documents) == len(other.documents)
    ):
        found = paired_difference(one.documents, other.documents, confidence=confidence, unit="").estimate
        if found.low is not None and found.high is not None:
            limits = f"{numbers}, difference {found.low:.3g} to {found.high:.3g} at {100 * (found.confidence or 0):g}%"
            if -equal_within <= found.low and found.high <= equal_within:
                return "equal", f"equal within {equal_within:g} ({limits})"
            if found.low <= 0 <= found.high:
                return "not told apart", f"not told apart ({limits})"
            first_wins = (found.low > 0) == higher_is_better
            return (first_better if first_wins else second_better), f"different ({limits})"
    difference = one.estimate.value - other.estimate.value
    if abs(difference) <= equal_within:
        return "equal", f"equal within {equal_within:g} ({numbers}, without an interval)"
    first_wins = (difference > 0) == higher_is_better
    return (first_better if first_wins else second_better), f"different ({numbers}, without an interval)"


def conclusion(pair: PairDifference, p_value: float | None, confidence: float, *, named: str = "") -> str:
    """What to make of a pair, in a sentence; `named` says of which format where there are several.

    Only a difference over several trainings on each side is a reason to prefer a way of training. One of two models says which of
    these two exposes less, and no more.
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
