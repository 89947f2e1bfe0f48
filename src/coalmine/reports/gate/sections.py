"""Which results does each rule of a policy act on? From a run to the numbers that are judged, section by section.

`stale` says why the results of a run do not count, and is None where they do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from coalmine.audits.extraction_results import CanaryExtraction, Extraction
from coalmine.audits.membership_results import Membership, Population
from coalmine.records import Estimate
from coalmine.reports.exposure_table import times_in_words
from coalmine.reports.gate.outcomes import NO_VIOLATION, WORDS, Outcome, RuleOutcome, unmeasured
from coalmine.reports.gate.policy import Policy
from coalmine.reports.gate.rules import (
    MeasuredCanary,
    judge_epsilon,
    judge_estimates,
    judge_exposures,
    judge_extractions,
    planted_canaries,
    smallest_budget,
)
from coalmine.reports.runs.reading import Located, Run
from coalmine.statistics.claimed_epsilon import Verdict

# The name that the audit gives to this rate.
_TPR = "TPR at FPR 1 %"
_COMMANDS = {
    "exposure": "coalmine expose",
    "extraction": "coalmine extract --verify",
    "membership": "coalmine membership",
    "recitation": "coalmine recite",
}


def _absent(audit: str) -> str:
    return f"there is no result of this audit; run `{_COMMANDS[audit]}`"


def required_audits(run: Run, policy: Policy, stale: str | None) -> Iterator[RuleOutcome]:
    """Whether the results are there that the policy asks for."""
    for audit in policy.require:
        rule, asks = f"require {audit}", f"results of {audit}"
        why = stale if audit in run.tested else _absent(audit)
        if why is None and audit == "exposure":
            why = _left_unmeasured(run)
        if why is not None:
            yield unmeasured(rule, asks, why)
        else:
            yield RuleOutcome(
                rule=rule, asks=asks, outcome="holds", words=WORDS["holds"], evidence="there", judged=1
            )


def _left_unmeasured(run: Run) -> str | None:
    """Which canaries no result has a number for, and why; None where there is one for each."""
    every = [
        ((document.manifest_sha256, one.canary_id), one.estimate)
        for _, document in run.exposures
        for one in document.results
    ]
    measured = {key for key, estimate in every if estimate.status != "not_measured"}
    missing = {key: estimate.statement for key, estimate in every if key not in measured}
    if not missing:
        return None
    (_, name), why = next(iter(missing.items()))
    total = len(measured) + len(missing)
    return f"{len(missing)} of {total} canaries could not be measured; {name}: {why}"


def measured_canaries(run: Run) -> tuple[MeasuredCanary, ...]:
    """Every planted canary, by the best method that it was measured with; one that could not be measured is there as such."""
    found: dict[tuple[str, str], MeasuredCanary] = {}
    for _, document in run.exposures:
        for one in planted_canaries(document):
            key = (document.manifest_sha256, one.result.canary_id)
            if key not in found or found[key].result.estimate.status == "not_measured":
                found[key] = one
    return tuple(found.values())


def exposure_rules(run: Run, policy: Policy, stale: str | None) -> Iterator[RuleOutcome]:
    """The limits on the exposures of planted canaries."""
    rules, canaries = policy.exposure, measured_canaries(run)
    limits: list[tuple[str, float, str, list[MeasuredCanary]]] = []
    if rules.at_most is not None:
        most = rules.up_to_repetitions
        which = "planted canaries" + ("" if most is None else f" trained on up to {most} times")
        chosen = [one for one in canaries if most is None or one.result.repetitions <= most]
        limits.append(("exposure.at_most", rules.at_most, which, chosen))
    for times, limit in sorted(rules.by_repetitions.items(), key=lambda entry: int(entry[0])):
        chosen = [one for one in canaries if one.result.repetitions == int(times)]
        limits.append(
            (
                f"exposure.by_repetitions.{times}",
                limit,
                f"canaries trained on {times_in_words(int(times))}",
                chosen,
            )
        )
    for rule, limit, which, chosen in limits:
        why = stale if run.exposures else _absent("exposure")
        if why is not None:
            yield unmeasured(rule, f"exposure of {which} at most {limit:g} bits", why)
        else:
            found = judge_exposures(
                chosen,
                limit,
                rule=rule,
                which=which,
                confidence=policy.confidence,
                all_at_once=rules.all_at_once,
                fewest=policy.min_canaries,
            )
            # Such as that the model was trained on other data, in which case its canaries may not have been there.
            told = dict.fromkeys(text for _, document in run.exposures for text in document.warnings)
            yield msgspec.structs.replace(found, warnings=(*found.warnings, *told))


def extraction_rules(run: Run, policy: Policy, stale: str | None) -> Iterator[RuleOutcome]:
    """The limit on how many planted canaries come out."""
    rules, rule = policy.extraction, "extraction.at_most_extracted"
    if rules.at_most_extracted is None:
        return
    asks = f"at most {rules.at_most_extracted} planted canaries extracted"
    why = stale if run.verifications else _absent("extraction")
    if why is None and rules.among_first is not None:
        why = _too_few_looked_for(run, rules.among_first)
    if why is not None:
        yield unmeasured(rule, asks, why)
        return
    most = rules.up_to_repetitions
    which = "planted canaries" + ("" if most is None else f" trained on up to {most} times")
    chosen = [
        one for one in _verified(run) if one.repetitions > 0 and (most is None or one.repetitions <= most)
    ]
    yield judge_extractions(
        chosen,
        rules.at_most_extracted,
        rule=rule,
        which=which,
        budget=smallest_budget(_searches(run)),
        among_first=rules.among_first,
        accept_unproven=rules.accept_unproven,
        budget_at_least=rules.budget_at_least,
        fewest=policy.min_canaries,
    )


def _verified(run: Run) -> list[CanaryExtraction]:
    """Every canary that was looked for; of two files none stands for the other, because ids come again in other manifests."""
    return [one for _, document in run.verifications for one in document.canaries]


def _searches(run: Run) -> list[Extraction]:
    """The searches behind verified.json, which stand beside it."""
    folders = {path.parent for path, _ in run.verifications}
    return [document for path, document in run.extractions if path.parent in folders]


def _too_few_looked_for(run: Run, wanted: int) -> str | None:
    for one in _searches(run):
        if len(one.found) < min(wanted, int(one.size)):
            return f"the audit looked for {len(one.found)} members and the policy asks about {wanted}; search with a larger --top"
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
        why = stale if run.memberships else _absent("membership")
        if why is not None:
            yield unmeasured(rule, asks, why)
            continue
        for one in run.memberships:
            yield _membership_rule(
                one.document, policy, key, limit, _named(rule, run, one, run.memberships), asks
            )


def _membership_rule(
    found: Membership, policy: Policy, key: str, limit: float, rule: str, asks: str
) -> RuleOutcome:
    chosen = _populations(found, policy.membership.up_to_repetitions)
    few = [one for one in chosen if one.in_count < policy.min_canaries]
    if few:
        why = f"{few[0].name} has {few[0].in_count} canaries, and the policy asks for at least {policy.min_canaries}"
        return unmeasured(rule, asks, why)
    if key == "no_epsilon_shown_above":
        return _epsilon_rule(found, chosen, policy, rule, asks)
    rates: list[tuple[str, Estimate]]
    if key == "auc_at_most":
        rates = [(one.name, one.auc) for one in chosen]
    else:
        rates = [(one.name, rate) for one in chosen for rate in one.tpr_at_fpr if rate.method == _TPR]
    return judge_estimates(
        rates, limit, rule=rule, asks=asks, what="populations", confidence=policy.confidence
    )


def _named(rule: str, run: Run, one: Located[Any], all_of_them: Sequence[Located[Any]]) -> str:
    """The name of a rule, with the file that it acts on where there are several."""
    return rule if len(all_of_them) == 1 else f"{rule} ({run.shown(one.path)})"


def _populations(found: Membership, most: int | None) -> list[Population]:
    """Each number of copies by itself; what is pooled mixes them, and stands in only where nothing else is there."""
    apart = [one for one in found.populations if not one.pooled] or list(found.populations)
    return [one for one in apart if most is None or one.copies <= most]


def _epsilon_rule(
    found: Membership, chosen: Sequence[Population], policy: Policy, rule: str, asks: str
) -> RuleOutcome:
    claimed, delta = policy.membership.no_epsilon_shown_above or 0.0, policy.membership.delta
    verdict = found.verdict
    # The audit's own verdict shares its error among the populations and knows its power, so it goes before the bounds.
    whole = policy.membership.up_to_repetitions is None
    if (
        whole
        and verdict is not None
        and verdict.claimed_epsilon == claimed
        and (delta is None or verdict.claimed_delta >= delta)
        and verdict.confidence >= policy.confidence - 1e-9
    ):
        return _by_verdict(verdict, rule, asks, len(chosen))
    if delta is not None and found.delta < delta * (1 - 1e-9):
        # A bound at a smaller delta does not refute a claim at a larger one.
        return unmeasured(
            rule, asks, f"epsilon was bounded at delta {found.delta:g}; run membership with --delta {delta:g}"
        )
    return judge_epsilon(chosen, claimed, rule=rule, asks=asks, confidence=policy.confidence)


def _by_verdict(verdict: Verdict, rule: str, asks: str, judged: int) -> RuleOutcome:
    outcomes: dict[str, Outcome] = {
        "violated": "broken",
        "consistent": "holds",
        "too little power": "not_measured",
    }
    outcome = outcomes[verdict.outcome]
    return RuleOutcome(
        rule=rule,
        asks=asks,
        outcome=outcome,
        words=NO_VIOLATION if outcome == "holds" else WORDS[outcome],
        evidence=verdict.statement,
        judged=judged,
    )


def recitation_rules(run: Run, policy: Policy, stale: str | None) -> Iterator[RuleOutcome]:
    """The limit on the share that is recited, for each recitation.json that is there."""
    limit = policy.recitation.rate_at_most
    if limit is None:
        return
    rule, asks = "recitation.rate_at_most", f"recited share at most {limit:g}"
    why = stale if run.recitations else _absent("recitation")
    if why is not None:
        yield unmeasured(rule, asks, why)
        return
    for one in run.recitations:
        asked = {facts.name for facts in one.document.models if facts.role == "asked"}
        shares = [
            (
                group.model if group.context is None else f"{group.model} at context {group.context}",
                group.recited,
            )
            for group in one.document.groups
            if group.model in asked and group.length is None and group.bucket is None
        ]
        yield judge_estimates(
            shares,
            limit,
            rule=_named(rule, run, one, run.recitations),
            asks=asks,
            what="groups",
            confidence=policy.confidence,
        )
