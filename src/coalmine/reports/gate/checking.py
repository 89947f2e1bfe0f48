"""`check`: every rule of a policy with its outcome for a run, and an exit code for a pipeline."""

from __future__ import annotations

import msgspec

from coalmine.evidence.originals import other_manifest, other_weights
from coalmine.evidence.outcomes import Outcome, RuleOutcome, error_level, within_budget
from coalmine.evidence.run import Run
from coalmine.reports.gate.policy import Policy
from coalmine.reports.gate.sections import (
    exposure_rules,
    extraction_rules,
    membership_rules,
    recitation_rules,
    required_audits,
)

SCHEMA = "coalmine.check/2"
EXIT_CODES: dict[Outcome, int] = {"holds": 0, "broken": 1, "not_shown": 2}


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of every rule of a policy for one run."""

    schema: str = SCHEMA
    run: str
    outcome: Outcome
    exit_code: int
    rules: tuple[RuleOutcome, ...]
    policy: Policy

    def counted(self, outcome: Outcome) -> int:
        """How many rules ended so."""
        return sum(one.outcome == outcome for one in self.rules)


def check(run: Run, policy: Policy) -> GateResult:
    """Every rule of a policy, judged by the results of a run.

    Where one rule is broken and another is not shown either way, the outcome is "broken". The rules share one error: without
    memorization any of them is called broken in at most (1 - confidence) / 2 of runs.
    """
    stale = other_weights(run) or other_manifest(run)
    judged = (
        *required_audits(run, policy, stale),
        *exposure_rules(run, policy, stale),
        *extraction_rules(run, policy, stale),
        *membership_rules(run, policy, stale),
        *recitation_rules(run, policy, stale),
    )
    rules = within_budget(judged, error_level(policy.confidence))
    outcomes = {one.outcome for one in rules}
    outcome: Outcome = "holds"
    if "broken" in outcomes:
        outcome = "broken"
    elif "not_shown" in outcomes:
        outcome = "not_shown"
    return GateResult(
        run=run.name, outcome=outcome, exit_code=EXIT_CODES[outcome], rules=rules, policy=policy
    )
