"""The rules of a policy about membership inference and epsilon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from coalmine.audits.exposure.coverage import names_in, planted_in
from coalmine.audits.membership.findings import population_name
from coalmine.audits.membership.records import MEMBERSHIPS, Membership, Population
from coalmine.corpus.planting.manifest import MANIFESTS
from coalmine.evidence.outcomes import (
    NO_VIOLATION,
    Outcome,
    PartOutcome,
    RuleOutcome,
    error_level,
    not_shown,
    open_part,
    stronger,
    together,
    too_weak,
    weak_words,
    within,
)
from coalmine.evidence.policy import Broken, PolicySection, PolicyTerms, absent, rule_name
from coalmine.evidence.rates import NamedEstimate, judge_estimates
from coalmine.evidence.run import Run
from coalmine.evidence.words import times_in_words
from coalmine.records.privacy import DescribedClaim, claim_of_model
from coalmine.statistics.epsilon.claimed import Verdict

# The false-positive rate of `tpr_at_fpr_1_percent_at_most`.
_FPR = 0.01
_CLAIM, _NO_CLAIM_VIOLATED = "membership.claim_not_violated", "no claimed epsilon violated"


class MembershipRules(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on what membership inference can do with the canaries' scores."""

    auc_at_most: float | None = None
    tpr_at_fpr_1_percent_at_most: float | None = None
    # A lower bound on epsilon above this breaks the rule; one below proves nothing, and is called "no violation shown".
    no_epsilon_shown_above: float | None = None
    delta: float | None = None
    # A claim, of the model itself or given to the audit, that the audit refutes breaks every policy. If this is true, the rule also asks
    # for an audit that had the power to refute it.
    claim_not_violated: bool | None = None
    up_to_repetitions: int | None = None


def _judge(run: Run, rules: MembershipRules, terms: PolicyTerms, stale: str | None) -> Iterator[RuleOutcome]:
    """The limits on membership inference, for each membership.json that is there."""
    if rules.claim_not_violated:
        yield from _judge_claim(run, terms, stale)
    else:
        yield from _unasked(run, rules, terms, stale)
    limits = {
        "auc_at_most": (rules.auc_at_most, "AUC at most"),
        "tpr_at_fpr_1_percent_at_most": (rules.tpr_at_fpr_1_percent_at_most, "TPR at FPR 1% at most"),
        "no_epsilon_shown_above": (rules.no_epsilon_shown_above, "no epsilon shown above"),
    }
    for key, (limit, what) in limits.items():
        if limit is None:
            continue
        rule, asks = f"membership.{key}", f"{what} {limit:g}"
        if stale is not None or not run.all(MEMBERSHIPS):
            yield absent(rule, asks, "coalmine membership", run.all(MEMBERSHIPS), stale)
            continue
        for one in run.all(MEMBERSHIPS):
            name = rule_name(rule, run, one, run.all(MEMBERSHIPS))
            yield _membership_rule(run, one.document, _Rule(name, asks, key, limit), rules, terms)


def _unasked(
    run: Run, rules: MembershipRules, terms: PolicyTerms, stale: str | None
) -> Iterator[RuleOutcome]:
    """Claims that a policy says nothing about: one that is refuted breaks it all the same, and no other is held against the model."""
    results = run.all(MEMBERSHIPS)
    for one in results if stale is None else ():
        verdict, name = one.document.verdict, rule_name(_CLAIM, run, one, results)
        if verdict is not None and not _is_about(verdict, rules.no_epsilon_shown_above, rules, terms):
            judged = sum(not population.pooled for population in one.document.populations)
            found = _by_verdict(verdict, name, _NO_CLAIM_VIOLATED, judged, error_level(terms.confidence), ())
            if verdict.outcome != "violated":
                found = msgspec.structs.replace(found, outcome="holds", words=NO_VIOLATION, settle="")
            yield found


def _judge_claim(run: Run, terms: PolicyTerms, stale: str | None) -> Iterator[RuleOutcome]:
    """Whether a claimed epsilon is refuted, for each membership.json that is there."""
    results = run.all(MEMBERSHIPS)
    rule, asks = _CLAIM, _NO_CLAIM_VIOLATED
    if stale is not None or not results:
        yield absent(rule, asks, "coalmine membership", results, stale)
        return
    for one in results:
        found, name = one.document, rule_name(rule, run, one, results)
        if found.verdict is None:
            settle = "run membership with --claimed-epsilon, or on a model that was trained privately"
            yield not_shown(name, asks, "no claimed epsilon was judged", settle, 1.0)
        elif (own := _stronger_claim(found, found.verdict)) is not None:
            why = f"the model claims an epsilon of {own.epsilon:.4g} at delta {own.delta:g}, and {found.verdict.statement}"
            yield not_shown(name, asks, why, "run membership without --claimed-epsilon", 1.0)
        elif found.verdict.confidence < terms.confidence - 1e-9:
            why = f"the claim was judged at a confidence of {found.verdict.confidence:g}"
            yield not_shown(name, asks, why, f"run membership with --confidence {terms.confidence:g}", 1.0)
        else:
            judged = sum(not population.pooled for population in found.populations)
            missing = [
                *without_population(run, found),
                *without_membership(run),
                *without_answer(_populations(found, None)),
            ]
            yield _by_verdict(found.verdict, name, asks, judged, error_level(terms.confidence), missing)


def _stronger_claim(found: Membership, verdict: Verdict) -> DescribedClaim | None:
    """What the model itself claims, where a weaker claim was judged and not refuted."""
    own = claim_of_model(found.model)
    if own is None or verdict.outcome == "violated":
        return None
    return own if own.epsilon < verdict.claimed_epsilon or own.delta < verdict.claimed_delta else None


class _Rule(NamedTuple):
    """A rule with its name, what it asks for in words, its key in the section, and its limit."""

    name: str
    asks: str
    key: str
    limit: float


def _membership_rule(
    run: Run, found: Membership, rule: _Rule, rules: MembershipRules, terms: PolicyTerms
) -> RuleOutcome:
    most = rules.up_to_repetitions
    chosen = _populations(found, most)
    missing = [*without_population(run, found, most), *without_membership(run, most)]
    few = [one for one in chosen if one.in_count < terms.min_canaries]
    if few:
        why = f"{few[0].name} has {few[0].in_count} canaries, and the policy asks for at least {terms.min_canaries}"
        return not_shown(rule.name, rule.asks, why, f"plant at least {terms.min_canaries}", 1.0)
    if rule.key == "no_epsilon_shown_above":
        outcome = _epsilon_rule(found, chosen, rule, rules, terms, missing)
    else:
        outcome = judge_estimates(
            [rate for one in chosen for rate in _rates(one, rule.key)],
            rule.limit,
            rule=rule.name,
            asks=rule.asks,
            what="populations",
            confidence=terms.confidence,
            missing=missing,
        )
    mute = without_answer(chosen)
    if mute and outcome.outcome != "broken":
        why = f"{mute[0].name}: {mute[0].evidence}"
        return not_shown(rule.name, rule.asks, why, mute[0].settle, outcome.chance)
    return outcome


def _rates(one: Population, key: str) -> Iterator[NamedEstimate]:
    """What a rule about a population judges, with the exact p-value of it."""
    name = population_name(one)
    if key == "auc_at_most":
        yield NamedEstimate(name, one.auc, one.guessing.p_value, one.in_count)
        return
    p_values = one.tpr_p_values or (None,) * len(one.tpr_at_fpr)
    for rate, p_value in zip(one.tpr_at_fpr, p_values, strict=True):
        if rate.fpr == _FPR:
            yield NamedEstimate(name, rate, p_value, one.in_count)


def _populations(found: Membership, most: int | None) -> list[Population]:
    """Each number of copies by itself; a pooled population mixes them, and is used only where there is nothing else."""
    apart = [one for one in found.populations if not one.pooled] or list(found.populations)
    return [one for one in apart if most is None or one.copies <= most]


def _epsilon_rule(
    found: Membership,
    chosen: Sequence[Population],
    rule: _Rule,
    rules: MembershipRules,
    terms: PolicyTerms,
    missing: Sequence[PartOutcome],
) -> RuleOutcome:
    verdict, delta = found.verdict, rules.delta
    # The audit's own verdict shares its error among the populations and knows its power, so it goes before the bounds.
    if verdict is not None and _is_about(verdict, rule.limit, rules, terms):
        return _by_verdict(verdict, rule.name, rule.asks, len(chosen), error_level(terms.confidence), missing)
    if delta is not None and found.delta < delta * (1 - 1e-9):
        # A bound at a smaller delta does not refute a claim at a larger one.
        return not_shown(
            rule.name,
            rule.asks,
            f"epsilon was bounded at delta {found.delta:g}",
            f"run membership with --delta {delta:g}",
            1.0,
        )
    return judge_epsilon(
        chosen, rule.limit, rule=rule.name, asks=rule.asks, confidence=terms.confidence, missing=missing
    )


def _is_about(verdict: Verdict, limit: float | None, rules: MembershipRules, terms: PolicyTerms) -> bool:
    """Whether a verdict decides if an epsilon above a limit is shown."""
    return (
        rules.up_to_repetitions is None
        and verdict.claimed_epsilon == limit
        and (rules.delta is None or verdict.claimed_delta >= rules.delta)
        and verdict.confidence >= terms.confidence - 1e-9
    )


def _by_verdict(
    verdict: Verdict, rule: str, asks: str, judged: int, level: float, missing: Sequence[PartOutcome]
) -> RuleOutcome:
    outcomes: dict[str, Outcome] = {
        "violated": "broken",
        "consistent": "holds",
        "too little power": "not_shown",
    }
    outcome = outcomes[verdict.outcome]
    evidence, settle = verdict.statement, ""
    if outcome == "not_shown":
        settle = "more canaries, planted once and withheld by a coin"
    elif outcome == "holds" and missing:
        outcome = "not_shown"
        evidence += f"; but {missing[0].name}: {missing[0].evidence}"
        settle = missing[0].settle
    found = RuleOutcome(
        rule=rule,
        asks=asks,
        outcome=outcome,
        words=NO_VIOLATION if outcome == "holds" else "",
        evidence=evidence,
        judged=judged,
        settle=settle,
        chance=verdict.p_value,
    )
    return within(found, level)


def judge_epsilon(
    populations: Sequence[Population],
    claimed: float,
    *,
    rule: str,
    asks: str,
    confidence: float,
    missing: Sequence[PartOutcome] = (),
) -> RuleOutcome:
    """Whether a lower bound on epsilon for one record exceeds the claimed one; below it nothing is proven."""
    if not populations and not missing:
        return not_shown(rule, asks, "there are no populations among the results", "measure some", 1.0)
    shared = 1 - (1 - confidence) / max(1, len(populations))
    judged = [(one.format_id, _judge_epsilon(one, claimed, confidence, shared)) for one in populations]
    # A population that could not have shown a violation does not matter where another of the same format could.
    able = {format_id for format_id, one in judged if one.outcome != "not_shown"}
    unable = [one for format_id, one in judged if one.unable and format_id in able]
    kept = [one for _, one in judged if one not in unable]
    p_values = [one.epsilon_p_value for one in populations if one.epsilon_p_value is not None]
    found = together(
        rule,
        asks,
        [*kept, *missing],
        what="populations",
        chance=min(1.0, len(p_values) * min(p_values)) if p_values else 1.0,
        level=error_level(confidence),
    )
    if found.outcome == "holds":
        rest = f" ({len(unable)} more could not have shown one)" if unable else ""
        found = msgspec.structs.replace(
            found,
            words=NO_VIOLATION,
            evidence=f"{found.evidence}; no violation was shown{rest}, which does not prove privacy",
        )
    return found


_MORE = "plant more canaries, once each, and withhold half of them by a coin"


def _judge_epsilon(one: Population, claimed: float, confidence: float, shared: float) -> PartOutcome:
    bound, name = one.best.one_copy, population_name(one)
    if bound is None or bound.low is None or bound.status == "not_measured":
        why = "there is no bound for one copy" if bound is None else bound.statement
        return open_part(name, why, _MORE)
    if bound.low > claimed:
        if too_weak(bound, shared):
            settle = f"judge the claim itself (`coalmine membership --claimed-epsilon {claimed:g}`), or {stronger(shared)}"
            why = f"{bound.statement}; {weak_words(bound, shared)}"
            return open_part(one.name, why, settle, bound.low)
        return PartOutcome(name, "broken", bound.statement, bound.low)
    if too_weak(bound, confidence):
        return open_part(name, weak_words(bound, confidence), stronger(confidence), bound.low)
    most = one.one_copy_ceiling
    if most <= claimed:
        why = f"the most this many scores could prove is {most:.2f}, whatever the model remembers"
        return open_part(name, why, _MORE, bound.low)._replace(unable=True)
    return PartOutcome(name, "holds", bound.statement, bound.low)


def without_answer(populations: Sequence[Population]) -> list[PartOutcome]:
    """The populations whose scores cannot show that a rule holds, because they are all equal or members have the lower ones."""
    settle = "check the sign of the scores, and what was done to the model after training"
    return [
        open_part(population_name(one), why, settle)
        for one in populations
        if (why := one.no_answer) is not None
    ]


def without_population(run: Run, found: Membership, most: int | None = None) -> list[PartOutcome]:
    """Formats and numbers of copies that were planted and that membership says nothing about, or not about all of them."""
    if found.manifest_sha256 is None:
        return []
    planted = [one for one in planted_in(run) if one.manifest_sha256 == found.manifest_sha256]
    if not planted:
        why = "which formats and copies there are is not known, because neither its exposures nor its canaries.json were given"
        settle = "name the directory of the exposures, or of canaries.json, as well"
        return [open_part("the manifest", why, settle)]
    names = names_in(run)
    there = {(one.format_id, one.copies): one.in_count for one in found.populations if not one.pooled}
    kinds = Counter((one.format_id, one.planned) for one in planted)
    settle = "plant with --references and --withhold 0.5, and run expose and membership for every format"
    return [
        open_part(
            f"{names[format_id]}, trained on {times_in_words(copies)}",
            f"membership has scores of {there[format_id, copies]:,} of {number:,} canaries of it"
            if (format_id, copies) in there
            else "membership has no scores of it",
            settle,
        )
        for (format_id, copies), number in sorted(kinds.items())
        if there.get((format_id, copies), 0) < number and (most is None or copies <= most)
    ]


def without_membership(run: Run, most: int | None = None) -> list[PartOutcome]:
    """The manifests with planted canaries that no membership results cover, if every result names its manifest."""
    of = {document.manifest_sha256 for _, document in run.all(MEMBERSHIPS)}
    if None in of:
        return []
    planted = (one for one in planted_in(run) if most is None or one.repetitions <= most)
    absent = dict.fromkeys(one.manifest_sha256 for one in planted if one.manifest_sha256 not in of)
    places = {canaries.sha256: run.shown(path) for path, canaries in run.all(MANIFESTS)}
    settle = "run `coalmine membership` for every canaries.json"
    return [
        open_part(
            f"the canaries of {places.get(digest, 'other exposures')}",
            "no membership was measured of them",
            settle,
        )
        for digest in absent
    ]


def incomplete(run: Run) -> str | None:
    """Which populations membership says nothing about; None where it covers all that the manifest names."""
    for _, document in run.all(MEMBERSHIPS):
        for one in (*without_population(run, document), *without_membership(run)):
            return f"{one.name}: {one.evidence}"
    return None


def _check(rules: MembershipRules) -> Iterator[Broken]:
    if rules.claim_not_violated is False:
        yield Broken(
            "claim_not_violated",
            "membership.claim_not_violated can only be true, because a claim that is refuted breaks every policy; leave it out where the "
            "audit need not have the power to refute one",
        )
    if rules.delta is not None and rules.delta >= 1:  # every mechanism keeps such a promise
        yield Broken("delta", f"membership.delta must be below 1, such as 1e-5, got {rules.delta}")


SECTION = PolicySection(
    rules=MembershipRules,
    limits=("auc_at_most", "tpr_at_fpr_1_percent_at_most", "no_epsilon_shown_above", "claim_not_violated"),
    judge=_judge,
    about_canaries=True,
    shares=frozenset({"auc_at_most", "tpr_at_fpr_1_percent_at_most"}),
    counts=frozenset({"up_to_repetitions"}),
    check=_check,
    template="""\
#[membership]
# From `coalmine membership`, for each format and each number of repetitions.
#auc_at_most = 0.6
#tpr_at_fpr_1_percent_at_most = 0.05
# A claimed epsilon, of a model that was trained privately or of --claimed-epsilon, that the audit refutes breaks every policy. This
# also asks that there is a claim, and that the audit would probably have refuted twice as much.
#claim_not_violated = true
# A claimed epsilon: broken if the audit proves more. If it does not, no violation was shown, and no more than that.
#no_epsilon_shown_above = 8.0
#delta = 1e-5
#up_to_repetitions = 1
""",
)
