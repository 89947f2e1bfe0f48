"""From a run to the numbers that the rules of a policy judge, section by section.

`stale` says why the results of a run do not count, and is None where they do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from coalmine.audits.exposure.chance import NOT_EVIDENCE
from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.exposure.single_canaries import places_of
from coalmine.audits.extraction.results import EXTRACTIONS, VERIFIED, CanaryExtraction, Extraction
from coalmine.audits.membership.findings import population_name
from coalmine.audits.membership.results import MEMBERSHIPS, Membership, Population
from coalmine.audits.recitation.findings import share_chance
from coalmine.audits.recitation.results import RECITATIONS
from coalmine.audits.registry import audited
from coalmine.evidence.outcomes import (
    NO_VIOLATION,
    WORDS,
    Judged,
    Outcome,
    RuleOutcome,
    error_level,
    not_shown,
    within,
)
from coalmine.evidence.run import Located, Run
from coalmine.evidence.words import times_in_words
from coalmine.reports.gate.coverage import (
    left_unmeasured,
    not_looked_for,
    without_exposure,
    without_membership,
    without_population,
    without_search,
)
from coalmine.reports.gate.policy import Policy
from coalmine.reports.gate.rules import (
    MeasuredCanary,
    NamedEstimate,
    judge_epsilon,
    judge_estimates,
    judge_exposures,
    judge_extractions,
    planted_canaries,
    smallest_budget,
)
from coalmine.statistics.epsilon.claimed import Verdict

# The name that the audit gives to this rate.
_TPR = "TPR at FPR 1%"
_COMMANDS = {
    "exposure": "coalmine expose",
    "extraction": "coalmine extract --verify",
    "membership": "coalmine membership",
    "recitation": "coalmine recite",
}


STALE_ADVICE = "measure this model again"


def _absent(rule: str, asks: str, audit: str, stale: str | None, chance: float | None = 1.0) -> RuleOutcome:
    """A rule about an audit whose results are not there, or are of other weights."""
    if stale is not None:
        return not_shown(rule, asks, stale, STALE_ADVICE, chance)
    return not_shown(rule, asks, "there is no result of this audit", f"run `{_COMMANDS[audit]}`", chance)


def required_audits(run: Run, policy: Policy, stale: str | None) -> Iterator[RuleOutcome]:
    """Whether the results are there that the policy asks for."""
    for audit in policy.require:
        rule, asks = f"require {audit}", f"results of {audit}"
        if stale is not None or audit not in audited(run):
            yield _absent(rule, asks, audit, stale if audit in audited(run) else None, None)
            continue
        why = _incomplete(run, audit)
        if why is not None:
            yield not_shown(
                rule,
                asks,
                why,
                f"run `{_COMMANDS[audit]}` for every format of the canaries.json{_otherwise(run, audit)}",
            )
        else:
            yield RuleOutcome(
                rule=rule, asks=asks, outcome="holds", words=WORDS["holds"], evidence="there", judged=1
            )


def _otherwise(run: Run, audit: str) -> str:
    """What to change where the audit was run, and by a method whose limits do not count."""
    curves = audit == "exposure" and any(
        one.method == "extrapolated" for _, document in run.all(EXPOSURES) for one in document.results
    )
    return ", by another method than extrapolated" if curves else ""


def _incomplete(run: Run, audit: str) -> str | None:
    """Which canaries, formats or populations an audit left out; None where it has all that the manifest names."""
    if audit == "exposure":
        return left_unmeasured(run)
    if audit == "membership":
        for _, document in run.all(MEMBERSHIPS):
            for one in (*without_population(run, document), *without_membership(run)):
                return f"{one.name}: {one.evidence}"
    if audit == "extraction":
        if not run.all(VERIFIED):
            return "formats were searched, but no canary was looked for"
        absent = not_looked_for(run)
        if absent:
            return f"{len(absent)} planted canaries were not looked for, such as {absent[0]}"
        return without_search(run)
    return None


def measured_canaries(run: Run) -> tuple[MeasuredCanary, ...]:
    """Every planted canary, by the best method that it was measured with; one that could not be measured is there as such."""
    found: dict[tuple[str, str], MeasuredCanary] = {}
    for _, document in run.all(EXPOSURES):
        for one in planted_canaries(document):
            key = (document.manifest_sha256, one.result.canary_id)
            if key not in found or _no_evidence(found[key]):
                found[key] = one
    return tuple(found.values())


def _no_evidence(one: MeasuredCanary) -> bool:
    return one.result.estimate.status == "not_measured" or one.result.estimate.method in NOT_EVIDENCE


def exposure_rules(run: Run, policy: Policy, stale: str | None) -> Iterator[RuleOutcome]:
    """The limits on the exposures of planted canaries."""
    rules, canaries = policy.exposure, measured_canaries(run)
    limits: list[tuple[str, float, str, list[MeasuredCanary], list[Judged]]] = []
    if rules.at_most is not None:
        most = rules.up_to_repetitions
        which = "planted canaries" + ("" if most is None else f" trained on up to {most} times")
        chosen = [one for one in canaries if most is None or one.result.repetitions <= most]
        limits.append(("exposure.at_most", rules.at_most, which, chosen, without_exposure(run, most)))
    for times, limit in sorted(rules.by_repetitions.items(), key=lambda entry: int(entry[0])):
        chosen = [one for one in canaries if one.result.repetitions == int(times)]
        limits.append(
            (
                f"exposure.by_repetitions.{times}",
                limit,
                f"canaries trained on {times_in_words(int(times))}",
                chosen,
                without_exposure(run, exactly=int(times)),
            )
        )
    for rule, limit, which, chosen, missing in limits:
        if stale is not None or not run.all(EXPOSURES):
            asks = f"exposure of {which} at most {limit:g} bits"
            yield _absent(rule, asks, "exposure", stale if run.all(EXPOSURES) else None)
        else:
            found = judge_exposures(
                chosen,
                limit,
                rule=rule,
                which=which,
                confidence=policy.confidence,
                all_at_once=rules.all_at_once,
                fewest=policy.min_canaries,
                missing=missing,
            )
            # Such as that the model was trained on other data, in which case its canaries may not have been there.
            told = dict.fromkeys(text for _, document in run.all(EXPOSURES) for text in document.warnings)
            yield msgspec.structs.replace(found, warnings=(*found.warnings, *told))


def extraction_rules(run: Run, policy: Policy, stale: str | None) -> Iterator[RuleOutcome]:
    """The limit on how many planted canaries come out."""
    rules, rule = policy.extraction, "extraction.at_most_extracted"
    if rules.at_most_extracted is None:
        return
    asks = f"at most {rules.at_most_extracted} planted canaries extracted"
    if stale is not None or not run.all(VERIFIED):
        yield _absent(rule, asks, "extraction", stale if run.all(VERIFIED) else None)
        return
    few = None if rules.among_first is None else _too_few_looked_for(run, rules.among_first)
    if few is not None:
        yield not_shown(rule, asks, few, f"search with --top {rules.among_first}", 1.0)
        return
    most = rules.up_to_repetitions
    which = "planted canaries" + ("" if most is None else f" trained on up to {most} times")
    chosen = [
        one for one in _verified(run) if one.repetitions > 0 and (most is None or one.repetitions <= most)
    ]
    found = judge_extractions(
        chosen,
        rules.at_most_extracted,
        rule=rule,
        which=which,
        budget=smallest_budget(_searches(run)),
        chances=_chances(run),
        among_first=rules.among_first,
        accept_unproven=rules.accept_unproven,
        budget_at_least=rules.budget_at_least,
        fewest=policy.min_canaries,
        confidence=policy.confidence,
        missing=not_looked_for(run, most),
    )
    gone = without_search(run)
    if gone is not None and found.outcome == "holds":
        found = not_shown(rule, found.asks, gone, "restore it, or run `coalmine extract --verify` again", 1.0)
    yield found


def _chances(run: Run) -> dict[str, float]:
    """How likely the place of each canary that came out is without memorization; of two with one id, that of the likelier."""
    found: dict[str, float] = {}
    for one in run.all(VERIFIED):
        for place in places_of(run, one):
            if place.place is not None:
                found[place.canary_id] = max(place.p_value, found.get(place.canary_id, 0.0))
    return found


def _verified(run: Run) -> list[CanaryExtraction]:
    """Every canary that was looked for; of two files none stands for the other, because ids come again in other manifests."""
    return [one for _, document in run.all(VERIFIED) for one in document.canaries]


def _searches(run: Run) -> list[Extraction]:
    """The searches behind verified.json, which stand beside it."""
    folders = {path.parent for path, _ in run.all(VERIFIED)}
    return [document for path, document in run.all(EXTRACTIONS) if path.parent in folders]


def _too_few_looked_for(run: Run, wanted: int) -> str | None:
    for one in _searches(run):
        if len(one.found) < min(wanted, int(one.size)):
            return f"the audit looked for {len(one.found)} members and the policy asks about {wanted}"
    return None


def membership_rules(run: Run, policy: Policy, stale: str | None) -> Iterator[RuleOutcome]:
    """The limits on membership inference, for each membership.json that is there."""
    rules = policy.membership
    limits = {
        "auc_at_most": (rules.auc_at_most, "AUC at most"),
        "tpr_at_fpr_1_percent_at_most": (rules.tpr_at_fpr_1_percent_at_most, f"{_TPR} at most"),
        "no_epsilon_shown_above": (rules.no_epsilon_shown_above, "no epsilon shown above"),
    }
    for key, (limit, what) in limits.items():
        if limit is None:
            continue
        rule, asks = f"membership.{key}", f"{what} {limit:g}"
        if stale is not None or not run.all(MEMBERSHIPS):
            yield _absent(rule, asks, "membership", stale if run.all(MEMBERSHIPS) else None)
            continue
        for one in run.all(MEMBERSHIPS):
            yield _membership_rule(
                run, one.document, policy, key, limit, _named(rule, run, one, run.all(MEMBERSHIPS)), asks
            )


def _membership_rule(
    run: Run, found: Membership, policy: Policy, key: str, limit: float, rule: str, asks: str
) -> RuleOutcome:
    most = policy.membership.up_to_repetitions
    chosen = _populations(found, most)
    missing = [*without_population(run, found, most), *without_membership(run, most)]
    few = [one for one in chosen if one.in_count < policy.min_canaries]
    if few:
        why = f"{few[0].name} has {few[0].in_count} canaries, and the policy asks for at least {policy.min_canaries}"
        return not_shown(rule, asks, why, f"plant at least {policy.min_canaries}", 1.0)
    if key == "no_epsilon_shown_above":
        return _epsilon_rule(found, chosen, policy, limit, rule, asks, missing)
    return judge_estimates(
        [rate for one in chosen for rate in _rates(one, key)],
        limit,
        rule=rule,
        asks=asks,
        what="populations",
        confidence=policy.confidence,
        missing=missing,
    )


def _rates(one: Population, key: str) -> Iterator[NamedEstimate]:
    """What a rule about a population judges, with the exact p-value of it."""
    name = population_name(one)
    if key == "auc_at_most":
        yield NamedEstimate(name, one.auc, one.guessing.p_value, one.in_count)
        return
    p_values = one.tpr_p_values or (None,) * len(one.tpr_at_fpr)
    for rate, p_value in zip(one.tpr_at_fpr, p_values, strict=True):
        # Results of earlier versions have a space before the sign.
        if rate.method.replace(" %", "%") == _TPR:
            yield NamedEstimate(name, rate, p_value, one.in_count)


def _named(rule: str, run: Run, one: Located[Any], all_of_them: Sequence[Located[Any]]) -> str:
    """The name of a rule, with the file that it acts on where there are several."""
    return rule if len(all_of_them) == 1 else f"{rule} ({run.shown(one.path)})"


def _populations(found: Membership, most: int | None) -> list[Population]:
    """Each number of copies by itself; what is pooled mixes them, and stands in only where nothing else is there."""
    apart = [one for one in found.populations if not one.pooled] or list(found.populations)
    return [one for one in apart if most is None or one.copies <= most]


def _epsilon_rule(
    found: Membership,
    chosen: Sequence[Population],
    policy: Policy,
    claimed: float,
    rule: str,
    asks: str,
    missing: Sequence[Judged],
) -> RuleOutcome:
    verdict, delta = found.verdict, policy.membership.delta
    # The audit's own verdict shares its error among the populations and knows its power, so it goes before the bounds.
    whole = policy.membership.up_to_repetitions is None
    if (
        whole
        and verdict is not None
        and verdict.claimed_epsilon == claimed
        and (delta is None or verdict.claimed_delta >= delta)
        and verdict.confidence >= policy.confidence - 1e-9
    ):
        return _by_verdict(verdict, rule, asks, len(chosen), error_level(policy.confidence), missing)
    if delta is not None and found.delta < delta * (1 - 1e-9):
        # A bound at a smaller delta does not refute a claim at a larger one.
        return not_shown(
            rule,
            asks,
            f"epsilon was bounded at delta {found.delta:g}",
            f"run membership with --delta {delta:g}",
            1.0,
        )
    return judge_epsilon(chosen, claimed, rule=rule, asks=asks, confidence=policy.confidence, missing=missing)


def _by_verdict(
    verdict: Verdict, rule: str, asks: str, judged: int, level: float, missing: Sequence[Judged]
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
        words=NO_VIOLATION if outcome == "holds" else WORDS[outcome],
        evidence=evidence,
        judged=judged,
        settle=settle,
        chance=verdict.p_value,
    )
    return within(found, level)


def recitation_rules(run: Run, policy: Policy, stale: str | None) -> Iterator[RuleOutcome]:
    """The limit on the share that is recited, for each recitation.json that is there."""
    limit = policy.recitation.rate_at_most
    if limit is None:
        return
    rule, asks = "recitation.rate_at_most", f"recited share at most {limit:g}"
    if stale is not None or not run.all(RECITATIONS):
        yield _absent(rule, asks, "recitation", stale if run.all(RECITATIONS) else None)
        return
    for one in run.all(RECITATIONS):
        asked = {facts.name for facts in one.document.models if facts.role == "asked"}
        shares = [
            NamedEstimate(
                group.model if group.context is None else f"{group.model} at context {group.context}",
                group.recited,
                share_chance(group.recited, limit),
                group.recited.n,
            )
            for group in one.document.groups
            if group.model in asked and group.length is None and group.bucket is None
        ]
        yield judge_estimates(
            shares,
            limit,
            rule=_named(rule, run, one, run.all(RECITATIONS)),
            asks=asks,
            what="groups",
            confidence=policy.confidence,
        )
