"""What became of a rule: it holds, it is broken, or it could not be measured; and the words for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from coalmine.records import Estimate

Outcome = Literal["holds", "broken", "not_measured"]
WORDS: dict[Outcome, str] = {"holds": "holds", "broken": "broken", "not_measured": "could not be measured"}
NO_VIOLATION = "no violation shown"


class RuleOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one rule."""

    # The key in the policy, such as "exposure.at_most".
    rule: str
    # What it asks for, in words.
    asks: str
    outcome: Outcome
    # The outcome in words; "no violation shown" is how a rule about a lower bound holds.
    words: str
    # A sentence with the numbers that decided.
    evidence: str
    # How many canaries, populations or groups were judged.
    judged: int
    # One line for each that broke the rule or could not be measured.
    details: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Judged(NamedTuple):
    """One canary, population or group, and what became of it."""

    name: str
    outcome: Outcome
    evidence: str
    # The upper limit, or the lower where there is no upper; the largest is the worst.
    worst: float = -math.inf


def together(
    rule: str,
    asks: str,
    judged: Sequence[Judged],
    *,
    what: str,
    fewest: int = 1,
    warnings: Sequence[str] = (),
) -> RuleOutcome:
    """One outcome from many: broken if one breaks the rule, holds only if all hold and there are enough of them."""
    broken = [one for one in judged if one.outcome == "broken"]
    unmeasured = [one for one in judged if one.outcome == "not_measured"]
    outcome: Outcome
    if broken:
        outcome = "broken"
        worst = max(broken, key=lambda one: one.worst)
        evidence = f"{len(broken)} of {len(judged)} {what} above it; worst: {worst.name}, {worst.evidence}"
        if unmeasured:
            evidence += f"; {len(unmeasured)} more could not be measured"
    elif unmeasured:
        outcome = "not_measured"
        first = unmeasured[0]
        evidence = (
            f"{len(unmeasured)} of {len(judged)} {what} could not be measured; {first.name}: {first.evidence}"
        )
    elif len(judged) < fewest:
        outcome = "not_measured"
        evidence = f"{len(judged)} {what} were judged, and the policy asks for at least {fewest}"
    else:
        outcome = "holds"
        worst = max(judged, key=lambda one: one.worst)
        evidence = f"{len(judged)} of {len(judged)} {what} within it; nearest: {worst.name}, {worst.evidence}"
    return RuleOutcome(
        rule=rule,
        asks=asks,
        outcome=outcome,
        words=WORDS[outcome],
        evidence=evidence,
        judged=len(judged),
        details=tuple(f"{one.name}: {one.evidence}" for one in (*broken, *unmeasured)),
        warnings=tuple(warnings),
    )


def unmeasured(rule: str, asks: str, why: str) -> RuleOutcome:
    """The outcome of a rule that nothing can be said about."""
    return RuleOutcome(
        rule=rule,
        asks=asks,
        outcome="not_measured",
        words=WORDS["not_measured"],
        evidence=why,
        judged=0,
    )


def too_weak(estimate: Estimate, level: float) -> bool:
    """Whether an interval has less confidence than is asked for; exact numbers have all there is."""
    # A hair less, so that 1 - (1 - 0.95) / 4 and 0.9875 are the same level.
    return estimate.confidence is not None and estimate.confidence < level - 1e-9


def weak_words(estimate: Estimate, level: float) -> str:
    """Why an interval does not count, and what to do."""
    return (
        f"its interval has a confidence of {100 * (estimate.confidence or 0):g} %, and {100 * level:.4g} % is asked for; measure with "
        f"--confidence {math.ceil(level * 1e6) / 1e6:g}"
    )


def interval_words(estimate: Estimate, unit: str) -> str:
    """An estimate in a few words, rounded outwards.

    >>> from coalmine.statistics.exposure import exact_exposure
    >>> interval_words(exact_exposure(1, 1024), "bits")
    'exactly 10.00 bits'
    """
    unit = f" {unit}" if unit else ""
    places = 2 if unit else 4
    scale = 10**places
    low = None if estimate.low is None else f"{math.floor(estimate.low * scale) / scale:.{places}f}"
    high = None if estimate.high is None else f"{math.ceil(estimate.high * scale) / scale:.{places}f}"
    if estimate.value is None:
        upper = "" if high is None or estimate.confidence is not None else f" and at most {high}"
        return f"at least {low}{upper}{unit}"
    if estimate.low == estimate.high:
        return f"exactly {estimate.value:.{places}f}{unit}"
    level = "" if estimate.confidence is None else f"{100 * estimate.confidence:g} % interval "
    return f"{estimate.value:.{places}f}{unit} ({level}{low} to {high})"
