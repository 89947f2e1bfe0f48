"""`check`: every rule of a policy with its outcome for a run, and an exit code for a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from coalmine.audits.registry import audits
from coalmine.evidence.originals import check_again, other_manifest, other_weights
from coalmine.evidence.outcomes import Outcome, RuleOutcome, error_level, not_shown, within_budget
from coalmine.evidence.policy import absent
from coalmine.evidence.run import Run
from coalmine.reports.conclusion import discredits_report
from coalmine.reports.findings import findings_of
from coalmine.reports.gate.policy import SECTIONS

SCHEMA = "coalmine.check/2"
EXIT_CODES: dict[Outcome, int] = {"holds": 0, "broken": 1, "not_shown": 2}


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of every rule of a policy for one run."""

    schema: str = SCHEMA
    run: str
    outcome: Outcome
    exit_code: int
    rules: tuple[RuleOutcome, ...]
    policy: Any

    def counted(self, outcome: Outcome) -> int:
        """How many rules ended so."""
        return sum(one.outcome == outcome for one in self.rules)


def check(run: Run, policy: Any) -> GateResult:
    r"""Every rule of a policy, judged by the results of a run.

    Where one rule is broken and another is not shown either way, the outcome is "broken". The rules share one error: without
    memorization any of them is called broken in at most (1 - confidence) / 2 of runs.

    >>> import tempfile
    >>> from coalmine import membership_of_scores, parse_policy, read_run
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = membership_of_scores(range(80, 180), range(100)).save(folder)
    ...     check(read_run(folder), parse_policy("[membership]\nauc_at_most = 0.6")).outcome
    'broken'
    """
    _check_again(run)
    stale = other_weights(run) or other_manifest(run)
    spoiled = (
        f"{one.code}, {one.evidence}".removesuffix(".") for one in findings_of(run) if discredits_report(one)
    )
    doubt = next((why for audit in audits() if (why := audit.doubts(run)) is not None), next(spoiled, None))
    judged = (
        *required_audits(run, policy, stale),
        *(
            _doubted(one, doubt) if section.about_canaries else one
            for name, section in SECTIONS.items()
            for one in section.judge(run, getattr(policy, name), policy, stale)
        ),
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


def _check_again(run: Run) -> None:
    """Refuse results that differ from what is computed again; those that were never in a file can only be believed."""
    for part in (run, run.secrets):
        for kind, these in () if part is None else part.documents.items():
            for one in these:
                if one.path.is_file():
                    check_again(kind, one.path, one.document)


def _doubted(one: RuleOutcome, doubt: str | None) -> RuleOutcome:
    """A rule that would hold, where the canaries say nothing about the model, is not shown."""
    if doubt is None or one.outcome != "holds":
        return one
    settle = "train a model again in which all planted canaries are kept and all others left out, and measure that one"
    return not_shown(one.rule, one.asks, f"{doubt}; {one.evidence}", settle, one.chance)


def required_audits(run: Run, policy: Any, stale: str | None) -> Iterator[RuleOutcome]:
    """Whether the results are there that the policy asks for."""
    required = {audit.name: audit for audit in audits() if audit.name in policy.require}
    for name in policy.require:
        audit = required[name]
        rule, asks = f"require {name}", f"results of {name}"
        there = audit.tested_in(run)
        if stale is not None or not there:
            yield absent(rule, asks, audit.command, [name] if there else [], stale, None)
            continue
        why = audit.incomplete(run)
        if why is not None:
            yield not_shown(rule, asks, why, audit.settle_incomplete(run))
        else:
            yield RuleOutcome(rule=rule, asks=asks, outcome="holds", evidence="there", judged=1)
