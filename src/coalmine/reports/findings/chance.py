"""Is a canary more exposed than guessing explains? The arithmetic behind the findings about exposure.

Without memorization a canary's rank is uniform, so its exposure reaches x bits with probability 2^-x. That gives each canary a
p-value, from its lower limit where the exposure was measured in the whole space, and from its rank where it was measured among
references or samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from coalmine.audits.exposure_results import ExposureDocument, ExposureResult
from coalmine.records import Estimate
from coalmine.statistics.intervals import clopper_pearson

# The chance of calling anything memorized in a run of a model that remembers nothing, for each kind of statement.
LEVEL = 0.05
# Fewer than this many canaries cannot say much: none of 4 memorized leaves room for half of all such canaries.
FEWEST = 5
_AMONG_OTHERS = frozenset({"references", "sampled"})


class Judged(NamedTuple):
    """A canary, with the probability of its exposure without memorization and the limits of its exposure in bits."""

    result: ExposureResult
    # 1 where nothing was measured.
    p_value: float
    low: float
    # What the exposure can be at most: its upper limit, or log2 of the size of the space.
    high: float
    space_bits: float
    measured_in_space: bool
    # Whether there is a number, and one to rely on: a curve that its own test rejects gives none.
    known: bool = True

    @property
    def fully_exposed(self) -> bool:
        """Whether it is one of the first two guesses in its whole space, even at the lower limit."""
        return self.measured_in_space and self.low >= self.space_bits - 1.0

    def shown(self, canaries: int) -> bool:
        """Whether this canary alone shows memorization, where so many were looked at."""
        return self.p_value < LEVEL / canaries

    def open(self, canaries: int) -> bool:
        """Whether it shows nothing, but would at the upper limit of its exposure: it may be memorized for all that is known."""
        return not self.known or (not self.shown(canaries) and 2.0**-self.high < LEVEL / canaries)


def judged(document: ExposureDocument) -> list[Judged]:
    """All canaries of a document, in its order."""
    sizes = {facts.format_id: facts.size_bits for facts in document.formats}
    unfit = {format_id for format_id, fit in document.tail_fits.items() if fit.warnings}
    return [
        _judge(
            result,
            sizes.get(result.format_id, result.most_possible_bits),
            reliable=result.estimate.method != "extrapolated" or result.format_id not in unfit,
        )
        for result in document.results
    ]


def _judge(result: ExposureResult, space_bits: float, *, reliable: bool) -> Judged:
    estimate = result.estimate
    among_others = estimate.method in _AMONG_OTHERS
    if estimate.status == "not_measured" or not reliable:
        return Judged(result, 1.0, 0.0, space_bits, space_bits, measured_in_space=False, known=False)
    low = estimate.low if estimate.low is not None else estimate.value or 0.0
    high = space_bits if estimate.high is None else min(estimate.high, space_bits)
    return Judged(result, _p_value(estimate, low), low, high, space_bits, measured_in_space=not among_others)


def _p_value(estimate: Estimate, low: float) -> float:
    if estimate.method not in _AMONG_OTHERS:
        return float(min(1.0, 2.0**-low))
    if estimate.value is None:
        return 1.0 / (estimate.n + 1)
    # The rank from 1: references count the canary itself already, samples do not.
    rank = estimate.n * 2.0**-estimate.value + (estimate.method == "sampled")
    return float(min(1.0, rank / (estimate.n + 1)))


def group_p_value(group: Sequence[Judged]) -> float:
    """The probability of exposures as high as those of a group of canaries, without memorization.

    Exposures in the whole space are independent, and Fisher's method joins them. Those among the same references are not, but
    every order of canaries and references is equally likely, which gives the exact chance of the median.
    """
    if not group:
        return 1.0
    if all(one.measured_in_space for one in group):
        from scipy.special import gammaincc

        return float(gammaincc(len(group), -sum(math.log(one.p_value) for one in group)))
    from coalmine.statistics.guessing import RandomGuessing

    n = min(one.result.estimate.n for one in group)
    if n < 1:
        return 1.0
    middle = len(group) // 2 + 1
    better = math.ceil(sorted(one.p_value for one in group)[middle - 1] * (n + 1) - 1 - 1e-6)
    return RandomGuessing(references=n, canaries=len(group)).chance_of(middle, max(0, better))


def share(hits: int, n: int, what: str, confidence: float = 0.95) -> Estimate:
    """The share of canaries that something was found of, with its exact interval.

    >>> share(1, 12, "came out").statement
    '1 of 12 canaries came out (8 %, 95 % interval 0 % to 39 %)'
    """
    low, high = clopper_pearson(hits, n, confidence)
    percent = f"{100 * confidence:g} % interval {math.floor(100 * low)} % to {math.ceil(100 * high)} %"
    return Estimate(
        method="share of canaries, Clopper-Pearson",
        status="measured",
        value=hits / n,
        low=low,
        high=high,
        confidence=confidence,
        n=n,
        statement=f"{hits:,} of {n:,} {'canary' if n == 1 else 'canaries'} {what} ({100 * hits / n:.0f} %, {percent})",
        assumptions=("the canaries stand for others that were drawn and planted alike",),
    )


def at_most_share(n: int, confidence: float = 0.95) -> float:
    """The share that stays possible, one-sided, where none of n canaries showed anything.

    >>> round(at_most_share(5), 2)
    0.45
    """
    return float(1.0 - (1.0 - confidence) ** (1.0 / n))
