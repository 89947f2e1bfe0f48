"""The p-values of findings and of the gate: whether canaries are more exposed than guessing explains.

Without memorization a canary's rank is uniform, so its exposure reaches x bits with probability 2^-x, and it is among the first k
guesses with probability k / |R|. That gives each canary a p-value: from its lower limit if the exposure was measured in the whole
space, from its rank if it was measured among references or samples, and from its place if a search found it. The limits of an
extrapolated curve are not used: they do not hold deep in the tail.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from coalmine.audits.exposure.estimators import estimator_of
from coalmine.audits.exposure.results import ExposureResult, Exposures
from coalmine.grouped import grouped
from coalmine.records import Estimate
from coalmine.statistics.exposure.order_tests import OrderTest, order_test, shared_order_test
from coalmine.statistics.intervals import clopper_pearson

# Fewer canaries than this show little: if none of 4 is memorized, half of all such canaries may still be.
FEWEST = 5
EXTRAPOLATED = (
    "its exposure was extrapolated, and the limits of a curve do not hold deep in its tail; measure with --method splitting, guided "
    "or references"
)


WRONG_SIDE = (
    "they are more surprising than guessing explains, which memorization does not do: either the scores have the wrong sign, or "
    "something pushed the canaries away, as unlearning does"
)


class Judged(NamedTuple):
    """A canary with its p-value, and with the limits of its exposure in bits."""

    result: ExposureResult
    # 1 where nothing was measured.
    p_value: float
    low: float
    # The maximum of the exposure: its upper limit, or log2 of the size of the space.
    high: float
    space_bits: float
    measured_in_space: bool
    # Whether there is a number that can be relied on.
    known: bool = True
    # How many of the n references or samples are no more surprising; None if it was not compared with any.
    better: int | None = None

    @property
    def fully_exposed(self) -> bool:
        """Whether it is one of the first two guesses in its whole space, even at the lower limit."""
        return self.measured_in_space and self.low >= self.space_bits - 1.0

    @property
    def group(self) -> tuple[str, int]:
        """The canaries that it can be compared with: of the same format, and trained on as often."""
        return (self.result.format_id, self.result.repetitions)


def judged(document: Exposures) -> list[Judged]:
    """All canaries of a document, in its order."""
    sizes = {facts.format_id: facts.size_bits for facts in document.formats}
    return [
        judge(result, sizes.get(result.format_id, result.most_possible_bits)) for result in document.results
    ]


def judge(result: ExposureResult, space_bits: float) -> Judged:
    """One canary of a format with this many bits."""
    estimate = result.estimate
    if not is_relied_on(estimate):
        return Judged(result, 1.0, 0.0, space_bits, space_bits, measured_in_space=False, known=False)
    low = estimate.low if estimate.low is not None else estimate.value or 0.0
    high = space_bits if estimate.high is None else min(estimate.high, space_bits)
    better = counted_better(estimate)
    p_value = float(min(1.0, 2.0**-low)) if better is None else (better + 1) / (estimate.n + 1)
    return Judged(result, p_value, low, high, space_bits, measured_in_space=better is None, better=better)


def is_relied_on(estimate: Estimate) -> bool:
    """Whether an exposure was measured, and in a way whose limits are evidence."""
    return estimate.status != "not_measured" and estimator_of(estimate.method).is_evidence


def counted_better(estimate: Estimate) -> int | None:
    """How many references or samples are no more surprising than the canary; None if it was measured in another way.

    >>> from coalmine.statistics.exposure.ranks import reference_exposure
    >>> counted_better(reference_exposure(20.0, [30.0, 19.0, 41.0, 22.0]))
    1
    """
    estimator = estimator_of(estimate.method)
    if not estimator.among_others or estimate.status == "not_measured":
        return None
    if estimate.value is None:
        return 0
    # References count the canary itself already, and rank n counts as n + 1 does; samples do not count it.
    counted: float = estimate.n * 2.0**-estimate.value
    if estimator.among == "samples":
        return min(estimate.n, round(counted))
    return estimate.n if estimate.value <= 0.0 else max(0, round(counted) - 1)


def group_test(group: Sequence[Judged]) -> OrderTest:
    """How likely canaries as exposed as the best of these are without memorization, and how many of them show it best.

    The best 1, 2, 4, 8, ... are compared with chance, so a few that are recited show among many that are not; findings and gate use the
    same test. Exposures in the whole space are independent. Those among the same references are not, but every order of canaries and
    references is equally likely; see `shared_order_test`. The ways in which canaries were measured share the error.
    """
    known = [one for one in group if one.known]
    inside = [one.p_value for one in known if one.measured_in_space]
    return _joined([*([order_test(inside)] if inside else []), *_among_others(known)])


def pushed_away(canaries: Sequence[Judged], level: float) -> bool:
    """Whether canaries are more surprising than guessing explains; the groups of a format and a number of repetitions share the level.

    Canaries that share a score are left out: other members share it too, and ranks count those before the canary.
    """
    scores = Counter(one.result.known_log_perplexity_bits for one in canaries)
    alone = (one for one in canaries if one.known and scores[one.result.known_log_perplexity_bits] == 1)
    groups = grouped((one.group, _mirrored(one)) for one in alone)
    return any(group_test(group).p_value <= level / len(groups) for group in groups.values())


def _mirrored(one: Judged) -> Judged:
    """The same canary, as if the most surprising member were the first guess."""
    if one.better is not None:
        return one._replace(better=one.result.estimate.n - one.better)
    return one._replace(p_value=min(1.0, 1.0 - 2.0**-one.high + 2.0**-one.space_bits))


def _among_others(known: Sequence[Judged]) -> list[OrderTest]:
    """One test for each set of references or samples."""
    outside = [one for one in known if one.better is not None and one.result.estimate.n >= 1]
    keys = sorted(
        {(one.result.format_id, one.result.estimate.method, one.result.estimate.n) for one in outside}
    )
    return [
        shared_order_test(
            [
                one.better or 0
                for one in outside
                if (one.result.format_id, one.result.estimate.method, one.result.estimate.n) == key
            ],
            key[2],
        )
        for key in keys
    ]


def _joined(tests: Sequence[OrderTest]) -> OrderTest:
    if not tests:
        return OrderTest(1.0, 1)
    best = min(tests, key=lambda one: one.p_value)
    return best._replace(p_value=min(1.0, len(tests) * best.p_value))


def share(hits: int, n: int, what: str, confidence: float = 0.95) -> Estimate:
    """The share of canaries of which something was found, with its exact interval.

    >>> share(1, 12, "came out").statement
    '1 of 12 canaries came out (8%, 95% interval 0% to 39%)'
    """
    low, high = clopper_pearson(hits, n, confidence)
    percent = f"{100 * confidence:g}% interval {math.floor(100 * low)}% to {math.ceil(100 * high)}%"
    return Estimate(
        method="share of canaries, Clopper-Pearson",
        status="measured",
        value=hits / n,
        low=low,
        high=high,
        confidence=confidence,
        n=n,
        statement=f"{hits:,} of {n:,} {'canary' if n == 1 else 'canaries'} {what} ({100 * hits / n:.0f}%, {percent})",
        assumptions=("the canaries represent others that were drawn and planted the same way",),
    )


def at_most_share(n: int, confidence: float = 0.95) -> float:
    """The upper limit of the share, one-sided, if none of n canaries showed anything.

    >>> round(at_most_share(5), 2)
    0.45
    """
    return float(1.0 - (1.0 - confidence) ** (1.0 / n))


def chance_in_words(p_value: float) -> str:
    """A probability in a sentence."""
    return "below 1e-12" if p_value <= 1e-12 else f"{p_value:.2g}"
