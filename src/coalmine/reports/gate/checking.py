"""`check`: every rule of a policy with its outcome for a run, and an exit code for a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from coalmine.audits.directories import model_of_result
from coalmine.files import sha256_of_file
from coalmine.models.checkpoint import WEIGHTS_FILE
from coalmine.reports.gate.outcomes import Outcome, RuleOutcome, error_level, within_budget
from coalmine.reports.gate.policy import Policy
from coalmine.reports.gate.sections import (
    exposure_rules,
    extraction_rules,
    membership_rules,
    recitation_rules,
    required_audits,
)
from coalmine.reports.runs.reading import Run

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
    stale = _stale(run)
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


def _stale(run: Run) -> str | None:
    """Why results are not those of the weights that they are beside, if so."""
    digests = run.model.get("weights_sha256") if run.model is not None else None
    known = {digests} if isinstance(digests, str) else set(digests or ())
    if not known:
        return None
    results = (*run.exposures, *run.extractions, *run.memberships, *run.recitations)
    # A checkpoint of transformers may have its weights in several files, and an adapter under another name: all of them were measured.
    names = WEIGHTS_FILE if isinstance(digests, str) else "*.safetensors"
    for folder in dict.fromkeys(folder for path, _ in results for folder in _folders_of(run, path)):
        if any(sha256_of_file(weights) not in known for weights in sorted(folder.glob(names))):
            return f"the results are of other weights than those in {folder.name}"
    return None


def _folders_of(run: Run, path: Path) -> Iterator[Path]:
    """The folders that may hold the weights: the model's own, and those from that of a result up to the one that was named."""
    given = {place.resolve() for place in run.paths}
    folder = path.resolve().parent
    model = model_of_result(path)
    if model is not None:
        yield model
    yield folder
    while folder not in given and any(folder.is_relative_to(place) for place in given):
        folder = folder.parent
        yield folder
