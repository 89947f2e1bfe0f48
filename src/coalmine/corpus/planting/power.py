"""Power of a set of canaries: the most that an audit can show, whatever the model remembers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from coalmine.corpus.planting.manifest import CanarySet
from coalmine.formats.naming import format_name
from coalmine.records import Canary
from coalmine.statistics.epsilon.best import CoinScores, epsilon_best
from coalmine.statistics.roc import tpr_at_fpr
from coalmine.statistics.scores import MembershipScores

# The false-positive rates that an audit of membership reports.
FALSE_POSITIVE_RATES = (0.1, 0.01, 0.001)


class CopiesPower(msgspec.Struct, frozen=True, kw_only=True):
    """The most that the canaries of one format and one planned number of copies can show."""

    copies: int
    planted: int
    withheld: int
    # The highest lower bound on epsilon that their coins could prove: for a canary with all its copies, and for one record. None
    # where no bound is possible at all, which `why_no_epsilon` explains.
    epsilon: float | None
    epsilon_per_copy: float | None
    why_no_epsilon: str | None = None


class FormatPower(msgspec.Struct, frozen=True, kw_only=True):
    """The most that the canaries of one format can show."""

    format_id: str
    template: str
    # Exposure, in bits: among all members, and among the references of the manifest (None where there are none).
    exposure_bits: float | None
    reference_exposure_bits: float | None
    # Members that a planted canary is compared with: references and withheld canaries.
    compared_with: int
    # The false-positive rates at which this many comparisons allow a true-positive rate, and those of them at which its
    # confidence interval can have a lower limit above 0.
    false_positive_rates: tuple[float, ...]
    bounded_false_positive_rates: tuple[float, ...]
    # The smallest p-value that a single planted canary can have; None without comparisons.
    smallest_p_value: float | None
    by_copies: tuple[CopiesPower, ...]


class Power(msgspec.Struct, frozen=True, kw_only=True):
    """The most that an audit can show."""

    delta: float
    confidence: float
    formats: tuple[FormatPower, ...]
    # One sentence each, with what to do about it.
    warnings: tuple[str, ...]


def power_of(canaries: CanarySet, *, delta: float = 1e-5, confidence: float = 0.95) -> Power:
    """The most that an audit of one model trained with these canaries can show.

    The numbers are those of scores that separate planted canaries from all others without a mistake; real scores show less.
    Epsilon is the lower bound that assumes nothing but the coins, at `delta` and `confidence`.

    >>> known = CanarySet.of("my pin is {digits:4}", ["my pin is 0451"], references=1000)
    >>> power = power_of(known).formats[0]
    >>> power.false_positive_rates, round(power.reference_exposure_bits, 2), power.by_copies[0].epsilon
    ((0.1, 0.01, 0.001), 9.97, None)
    """
    formats = tuple(_format_power(canaries, name, delta, confidence) for name in canaries.formats)
    return Power(
        delta=delta, confidence=confidence, formats=formats, warnings=tuple(_warnings(canaries, formats))
    )


def _format_power(canaries: CanarySet, format_id: str, delta: float, confidence: float) -> FormatPower:
    group = [canary for canary in canaries if canary.format_id == format_id]
    references = len(canaries.references[format_id])
    compared_with = references + sum(not canary.planted for canary in group)
    secret = canaries.formats[format_id]
    by_copies = tuple(
        _copies_power(copies, group, references, canaries.withhold, delta, confidence)
        for copies in sorted({canary.repetitions for canary in group})
    )
    most_planted = max((one.planted for one in by_copies), default=0)
    rates = _rates(most_planted, compared_with, confidence)
    return FormatPower(
        format_id=format_id,
        template=secret.template,
        exposure_bits=None if format_id in canaries.listed else math.log2(secret.size),
        reference_exposure_bits=math.log2(references) if references else None,
        compared_with=compared_with,
        false_positive_rates=tuple(rates),
        bounded_false_positive_rates=tuple(rate for rate, low in rates.items() if low > 0.0),
        smallest_p_value=1 / (compared_with + 1) if compared_with else None,
        by_copies=by_copies,
    )


def _rates(planted: int, compared_with: int, confidence: float) -> dict[float, float]:
    """The false-positive rates at which perfect scores have a true-positive rate, each with its lower limit."""
    if not compared_with:
        return {}
    shown = {
        rate: tpr_at_fpr(np.ones(max(1, planted)), np.zeros(compared_with), rate, confidence)
        for rate in FALSE_POSITIVE_RATES
    }
    return {
        rate: (one.low or 0.0) if planted else 0.0
        for rate, one in shown.items()
        if one.status != "not_measured"
    }


def _copies_power(
    copies: int,
    group: Sequence[Canary],
    references: int,
    withhold: float | None,
    delta: float,
    confidence: float,
) -> CopiesPower:
    here = [canary for canary in group if canary.repetitions == copies]
    planted = sum(canary.planted for canary in here)
    withheld = len(here) - planted
    why = _why_no_epsilon(planted, withheld, withhold)
    epsilon = per_copy = None
    if why is None and withhold is not None:
        all_withheld = sum(not canary.planted for canary in group)
        in_scores, out_scores = np.ones(planted), np.zeros(references + all_withheld)
        coins = CoinScores(MembershipScores(in_scores, np.zeros(withheld)), 1.0 - withhold)
        bounds = [
            epsilon_best(
                in_scores, out_scores, coins=coins, delta=delta, confidence=confidence, copies=each
            ).low
            for each in (1, copies)
        ]
        if any(bounds):
            epsilon, per_copy = bounds
        else:
            why = f"{len(here)} coins are too few for any bound at {100 * confidence:g}%"
    return CopiesPower(
        copies=copies,
        planted=planted,
        withheld=withheld,
        epsilon=epsilon,
        epsilon_per_copy=per_copy,
        why_no_epsilon=why,
    )


def _why_no_epsilon(planted: int, withheld: int, withhold: float | None) -> str | None:
    if withhold is None:
        return "it is not known that a coin was tossed for each canary"
    if withhold == 0.0:
        return "no coin withholds any of them"
    if not planted:
        return "the coins planted none of them"
    if not withheld:
        return "the coins withheld none of them"
    return None


def _warnings(canaries: CanarySet, formats: Sequence[FormatPower]) -> list[str]:
    warnings = []
    if not any(canary.planted for canary in canaries):
        warnings.append(
            "the coins planted no canary at all, so an audit can show nothing; plant more canaries, or use another seed"
        )
    elif canaries.withhold == 0.0:
        warnings.append(
            "no canary is withheld, so one training run can show nothing about epsilon; plant with --withhold 0.5, which tosses a coin "
            "for each canary"
        )
    else:
        for form in formats if canaries.withhold is not None else ():
            weak = [one for one in form.by_copies if not one.epsilon]
            if weak:
                copies = ", ".join(dict.fromkeys(str(one.copies) for one in weak))
                whose = "" if len(formats) == 1 else f" of {format_name(form.template)}"
                warnings.append(
                    f"the canaries{whose} with a planned number of copies of {copies} can show nothing about epsilon "
                    f"({weak[0].why_no_epsilon}); plant more of them"
                )
    if formats and not all(form.compared_with for form in formats):
        warnings.append(
            "there are neither references nor withheld canaries to compare with in each format; use --references 1000"
        )
    return warnings
