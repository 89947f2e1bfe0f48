"""What became of a rule: shown to hold, shown to be broken, or not shown either way, with what would settle it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from coalmine.records import Estimate
from coalmine.statistics.multiple_tests import holm

Outcome = Literal["holds", "broken", "not_shown"]
WORDS: dict[Outcome, str] = {"holds": "holds", "broken": "broken", "not_shown": "not shown"}
NO_VIOLATION = "no violation shown"


class RuleOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one rule.

    >>> not_shown("toys.broken_at_most", "broken toys at most 0.1", "only 3 toys were tried").outcome
    'not_shown'
    """

    # The key in the policy, such as "exposure.at_most".
    rule: str
    # What it asks for, in words.
    asks: str
    outcome: Outcome
    # The outcome in words, where it is not named; "no violation shown" is how a rule about a lower bound holds.
    words: str = ""
    # A sentence with the numbers that decided.
    evidence: str
    # How many canaries, populations or groups were judged.
    judged: int
    # What would settle a rule that is not shown either way; also one that is broken, until all rules are judged together.
    settle: str = ""
    # The probability, at most, of evidence as strong against the rule if the model remembers nothing; None for rules that only ask
    # whether results are there.
    chance: float | None = None
    # One line for each that broke the rule or could not be shown to keep it.
    details: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.words:
            msgspec.structs.force_setattr(self, "words", WORDS[self.outcome])


class PartOutcome(NamedTuple):
    """One canary, population or group, and what became of it."""

    name: str
    outcome: Outcome
    evidence: str
    # The upper limit, or the lower where there is no upper; the largest is the worst.
    worst: float
    settle: str = ""
    # Whether it could not have broken the rule whatever the model remembers.
    unable: bool = False


def open_part(name: str, why: str, settle: str, worst: float = math.inf) -> PartOutcome:
    """A part of which nothing is shown either way."""
    return PartOutcome(name, "not_shown", why, worst, settle)


def together(
    rule: str,
    asks: str,
    judged: Sequence[PartOutcome],
    *,
    what: str,
    chance: float,
    level: float,
    fewest: int = 1,
    warnings: Sequence[str] = (),
) -> RuleOutcome:
    """One outcome from many: broken if one is above and chance does not explain it, holds only if all hold and there are enough.

    `chance` is the probability of evidence as strong without memorization, and `level` what it may be at most.
    """
    parts = {outcome: [one for one in judged if one.outcome == outcome] for outcome in WORDS}
    outcome, evidence, settle = _of_all(parts, len(judged), what, fewest)
    found = RuleOutcome(
        rule=rule,
        asks=asks,
        outcome=outcome,
        evidence=evidence,
        judged=len(judged),
        settle=settle,
        chance=chance,
        details=tuple(f"{one.name}: {one.evidence}" for one in (*parts["broken"], *parts["not_shown"])),
        warnings=tuple(warnings),
    )
    return within(found, level)


def _of_all(
    parts: Mapping[Outcome, Sequence[PartOutcome]], total: int, what: str, fewest: int
) -> tuple[Outcome, str, str]:
    """The outcome of a rule from those of its parts, the evidence for it, and what would settle it."""
    outcome: Outcome = "broken" if parts["broken"] else "not_shown" if parts["not_shown"] else "holds"
    if total < fewest and outcome == "holds":
        why = f"{total} {what} were judged, and the policy asks for at least {fewest}"
        return "not_shown", why, f"plant at least {fewest} canaries of this kind"
    many, worst = len(parts[outcome]), max(parts[outcome], key=lambda one: one.worst)
    if outcome == "not_shown":
        why = f"{many} of {total} {what} not shown either way; {worst.name}: {worst.evidence}"
        return outcome, why, worst.settle
    where = "above it; worst" if outcome == "broken" else "within it; nearest"
    evidence = f"{many} of {total} {what} {where}: {worst.name}, {worst.evidence}"
    open_ones = len(parts["not_shown"])
    return outcome, evidence + (f"; {open_ones} more are not shown either way" if open_ones else ""), ""


def within(found: RuleOutcome, level: float) -> RuleOutcome:
    """The same outcome, where it is not "broken" by evidence that chance gives too often without memorization."""
    if found.outcome != "broken" or found.chance is None or found.chance <= level * (1 + 1e-9):
        return found
    percent = f"{100 * found.chance:.2g}%" if found.chance < 1 else "all"
    return msgspec.structs.replace(
        found,
        outcome="not_shown",
        words="",
        evidence=(
            f"{found.evidence}. Without memorization, chance gives as much in up to {percent} of runs, and this rule allows "
            f"{100 * level:.2g}%"
        ),
        settle=found.settle
        or (
            "plant other canaries (another --seed), and more of them, and train again: memorization would show in them too, and chance "
            "would not"
        ),
    )


def within_budget(rules: Sequence[RuleOutcome], level: float) -> tuple[RuleOutcome, ...]:
    """The outcomes of a policy, whose rules share one error: without memorization any is called broken in at most `level` of runs."""
    able = [one for one in rules if one.chance is not None]
    # Only a rule that is above its limit can be called broken, so for the others the probability is put at 1.
    levels = holm([one.chance or 0.0 if one.outcome == "broken" else 1.0 for one in able], level).levels
    given = iter(levels)
    judged = (one if one.chance is None else within(one, next(given)) for one in rules)
    # What would settle a rule if chance explained the evidence is not needed where it does not.
    return tuple(
        msgspec.structs.replace(one, settle="") if one.outcome == "broken" and one.settle else one
        for one in judged
    )


def error_level(confidence: float) -> float:
    """How often a policy may be called broken without memorization: as often as the lower limit of an interval may be wrong."""
    return (1.0 - confidence) / 2.0


def not_shown(rule: str, asks: str, why: str, settle: str = "", chance: float | None = None) -> RuleOutcome:
    """The outcome of a rule that nothing can be said about; `settle` is what would change that.

    >>> not_shown("toys.broken_at_most", "broken toys at most 0.1", "only 3 toys were tried", "try more toys").words
    'not shown'
    """
    return RuleOutcome(
        rule=rule,
        asks=asks,
        outcome="not_shown",
        evidence=why,
        judged=0,
        settle=settle,
        chance=chance,
    )


def too_weak(estimate: Estimate, level: float) -> bool:
    """Whether an interval has less confidence than is asked for; exact numbers have all there is."""
    # A hair less, so that 1 - (1 - 0.95) / 4 and 0.9875 are the same level.
    return estimate.confidence is not None and estimate.confidence < level - 1e-9


def weak_words(estimate: Estimate, level: float) -> str:
    """Why an interval does not count."""
    return f"its interval has a confidence of {100 * (estimate.confidence or 0):g}%, and {100 * level:.4g}% is asked for"


def stronger(level: float) -> str:
    """What settles a rule whose intervals have too little confidence."""
    return f"measure with --confidence {math.ceil(level * 1e6) / 1e6:g}"


def interval_words(estimate: Estimate, unit: str) -> str:
    """An estimate in a few words, rounded outwards.

    >>> from coalmine.statistics.exposure.ranks import exact_exposure
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
    level = "" if estimate.confidence is None else f"{100 * estimate.confidence:g}% interval "
    return f"{estimate.value:.{places}f}{unit} ({level}{low} to {high})"
