"""The rules of a policy about a bench of defenses."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from coalmine.audits.defenses.records import BENCHES, Bench, DefenseRow
from coalmine.audits.defenses.report import violates
from coalmine.evidence.outcomes import (
    NO_VIOLATION,
    RuleOutcome,
    error_level,
    interval_words,
    not_shown,
    within,
)
from coalmine.evidence.policy import Broken, PolicySection, PolicyTerms, absent, rule_name
from coalmine.evidence.run import Run

_COMMAND = "coalmine defend"
_NO_CONTRADICTION = "no audit contradicts a claimed epsilon"


class DefenseRules(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the defense that is to be used, and on the claims of all."""

    # Its name in the bench, such as "dp=8".
    defense: str | None = None
    # The median exposure of its canaries, in bits.
    exposure_at_most: float | None = None
    # Its mean validation loss minus that without a defense, in bits per character.
    loss_increase_at_most: float | None = None
    # An audit that contradicts the epsilon that a training claims breaks every policy. If this is true, the rule also asks for a claim.
    claims_hold: bool | None = None


def _judge(run: Run, rules: DefenseRules, terms: PolicyTerms, stale: str | None) -> Iterator[RuleOutcome]:
    if not rules.claims_hold:
        yield from _unasked(run, terms, stale)
    for key, asks in _asked(rules).items():
        rule = f"defenses.{key}"
        if stale is not None or not run.all(BENCHES):
            yield absent(rule, asks, _COMMAND, run.all(BENCHES), stale)
            continue
        for one in run.all(BENCHES):
            name = rule_name(rule, run, one, run.all(BENCHES))
            if key == "claims_hold":
                yield _claims(name, asks, one.document, terms)
            else:
                yield _of_defense(name, asks, key, one.document, rules, terms)


def _unasked(run: Run, terms: PolicyTerms, stale: str | None) -> Iterator[RuleOutcome]:
    """Claims that a policy says nothing about: one that an audit contradicts breaks it all the same."""
    benches = run.all(BENCHES)
    for one in benches if stale is None else ():
        if _claiming(one.document):
            yield _claims(
                rule_name("defenses.claims_hold", run, one, benches), _NO_CONTRADICTION, one.document, terms
            )


def _asked(rules: DefenseRules) -> dict[str, str]:
    found = {}
    if rules.exposure_at_most is not None:
        found["exposure_at_most"] = (
            f"median exposure of {rules.defense} at most {rules.exposure_at_most:g} bits"
        )
    if rules.loss_increase_at_most is not None:
        found["loss_increase_at_most"] = (
            f"{rules.defense} costs at most {rules.loss_increase_at_most:g} bits per character"
        )
    if rules.claims_hold:
        found["claims_hold"] = _NO_CONTRADICTION
    return found


def _of_defense(
    rule: str, asks: str, key: str, bench: Bench, rules: DefenseRules, terms: PolicyTerms
) -> RuleOutcome:
    row = bench.row(rules.defense or "")
    if row is None:
        known = ", ".join(one.name for one in bench.defenses)
        return not_shown(
            rule, asks, f"the bench has no {rules.defense!r}, but {known}", f"run `{_COMMAND}` with it"
        )
    if key == "exposure_at_most":
        return _exposure(rule, asks, row, bench, rules.exposure_at_most or 0.0, terms)
    cost, most = row.loss_difference, rules.loss_increase_at_most or 0.0
    if cost is None:
        return not_shown(rule, asks, "its loss is not known", f"run `{_COMMAND}` again")
    return RuleOutcome(
        rule=rule,
        asks=asks,
        outcome="holds" if cost <= most else "broken",
        evidence=f"{row.defense.name} costs {cost:+.3f} bits per character, over {row.trainings} models",
        judged=row.trainings,
    )


def _exposure(
    rule: str, asks: str, row: DefenseRow, bench: Bench, limit: float, terms: PolicyTerms
) -> RuleOutcome:
    """Holds where the whole interval is below the limit, and broken where all of it is above."""
    estimate, planted = row.exposure, sum(one.planted for one in bench.canaries)
    if estimate.low is None or estimate.high is None:
        return not_shown(rule, asks, estimate.statement, f"run `{_COMMAND}` again", chance=1.0)
    evidence = f"{row.defense.name}: {interval_words(estimate, 'bits')}, over {planted} canaries"
    chance = _chance(limit, planted, row.trainings)
    if planted < terms.min_canaries:
        why = f"{planted} canaries were planted, and the policy asks for at least {terms.min_canaries}"
        return not_shown(rule, asks, why, "plant more canaries", chance)
    if estimate.high <= limit:
        return RuleOutcome(
            rule=rule, asks=asks, outcome="holds", evidence=evidence, judged=planted, chance=chance
        )
    if estimate.low > limit:
        broken = RuleOutcome(
            rule=rule, asks=asks, outcome="broken", evidence=evidence, judged=planted, chance=chance
        )
        return within(broken, error_level(terms.confidence))
    return not_shown(rule, asks, evidence, "plant more canaries, so that the interval is shorter", chance)


def _chance(limit: float, planted: int, trainings: int) -> float:
    """The probability, at most, that half of the canaries are above a limit on average without memorization."""
    from scipy.stats import binom

    # A mean over trainings is above the limit only if one of them is.
    one = min(1.0, trainings * 2.0**-limit)
    return float(binom.sf((planted + 1) // 2 - 1, planted, one)) if planted else 1.0


def _claiming(bench: Bench) -> list[DefenseRow]:
    """The rows with a claim that was judged."""
    return [row for row in bench.rows if row.claimed_epsilon is not None and row.claim_p_value is not None]


def _claims(rule: str, asks: str, bench: Bench, terms: PolicyTerms) -> RuleOutcome:
    claims = _claiming(bench)
    if not claims:
        return not_shown(
            rule, asks, "no defense claims an epsilon", f"run `{_COMMAND}` with a private training", 1.0
        )
    worst = min(claims, key=lambda row: row.claim_p_value or 0.0)
    evidence = (
        f"{worst.defense.name} claims {worst.claimed_epsilon:.3g}, and at least {worst.audited_epsilon or 0.0:.2f} is proven "
        f"(p = {worst.claim_p_value:.2g})"
    )
    chance = min(1.0, len(claims) * (worst.claim_p_value or 0.0))
    broken = any(violates(row, bench) for row in claims)
    found = RuleOutcome(
        rule=rule,
        asks=asks,
        outcome="broken" if broken else "holds",
        words="" if broken else NO_VIOLATION,
        evidence=evidence,
        judged=len(claims),
        chance=chance,
    )
    return within(found, error_level(terms.confidence))


def _check(rules: DefenseRules) -> Iterator[Broken]:
    if rules.claims_hold is False:
        yield Broken(
            "claims_hold",
            "defenses.claims_hold can only be true, because a contradicted claim breaks every policy; leave it out",
        )
    for key in ("exposure_at_most", "loss_increase_at_most"):
        if getattr(rules, key) is not None and not rules.defense:
            yield Broken(key, 'needs the name of the defense that it is about, such as defense = "dedup"')


SECTION = PolicySection(
    rules=DefenseRules,
    limits=("exposure_at_most", "loss_increase_at_most", "claims_hold"),
    judge=_judge,
    check=_check,
    template="""\
#[defenses]
# The defense that is to be used, by its name in `coalmine defend`: the median exposure of its canaries in bits, and what it may cost in
# bits per character. An audit that contradicts a claimed epsilon breaks every policy; claims_hold also asks that there is a claim.
#defense = "dedup"
#exposure_at_most = 3.0
#loss_increase_at_most = 0.2
#claims_hold = true
""",
)
