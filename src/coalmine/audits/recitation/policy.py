"""The rule of a policy about recitation."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from coalmine.audits.recitation.findings import share_chance
from coalmine.audits.recitation.records import RECITATIONS
from coalmine.evidence.outcomes import PartOutcome, RuleOutcome
from coalmine.evidence.policy import PolicySection, PolicyTerms, absent, rule_name
from coalmine.evidence.rates import NamedEstimate, judge_estimates
from coalmine.evidence.run import Run


class RecitationRules(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the share of sampled training sequences that the model recites."""

    rate_at_most: float | None = None


def _judge(run: Run, rules: RecitationRules, terms: PolicyTerms, stale: str | None) -> Iterator[RuleOutcome]:
    """The limit on the share that is recited, for each recitation.json that is there."""
    limit = rules.rate_at_most
    if limit is None:
        return
    rule, asks = "recitation.rate_at_most", f"recited share at most {limit:g}"
    if stale is not None or not run.all(RECITATIONS):
        yield absent(rule, asks, "coalmine recite", run.all(RECITATIONS), stale)
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
            rule=rule_name(rule, run, one, run.all(RECITATIONS)),
            asks=asks,
            what="groups",
            confidence=terms.confidence,
            # What has no answer could have been recited.
            missing=[
                PartOutcome("questions without an answer", "not_shown", why, math.inf, "ask them again")
                for why in one.document.not_measured
            ],
        )


SECTION = PolicySection(
    rules=RecitationRules,
    limits=("rate_at_most",),
    judge=_judge,
    shares=frozenset({"rate_at_most"}),
    template="""\
#[recitation]
# The share of sampled training sequences that the model recites, at each context that was tried (`coalmine recite`).
#rate_at_most = 0.01
""",
)
