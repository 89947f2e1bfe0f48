"""The options of `membership`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

import msgspec

from coalmine.audits.options import SEED, Option, Options
from coalmine.errors import InputError
from coalmine.records.privacy import PrivacyUnit, claim_of_model

Runs = Literal["one", "many"]


class MembershipOptions(Options, frozen=True, kw_only=True):
    """How scores of what was trained on are compared with those of what was not, and at which level.

    Attributes:
        delta: the delta at which epsilon is bounded.
        confidence: the level of intervals and bounds, between 0 and 1.
        claimed_epsilon: a claim to judge, for one record, with `claimed_delta`; None takes that of a model that claims one.
        claimed_delta: the delta of the claim; None takes `delta`.
        claimed_unit: what the claim is for: "document", or "user" where all copies of a canary are of one user.
        inclusion: the probability with which a coin planted a canary. None takes what the results say, and 0.5 for other
            scores; where results do not say it, there is no bound from one training run.
        runs: "one" if all scores come from one training run, "many" if each comes from a run of its own, so that they are independent.
        seed: breaks ties and splits samples.

    >>> MembershipOptions(claimed_epsilon=2.0).claim
    (2.0, 1e-05)
    """

    delta: Annotated[float, Option("The delta at which epsilon is bounded.")] = 1e-5
    confidence: Annotated[float, Option("Confidence level of intervals and bounds.")] = 0.95
    claimed_epsilon: Annotated[
        float | None,
        Option("A claim to judge, for one record; default: that of the model, if it was trained privately."),
    ] = None
    claimed_delta: Annotated[float | None, Option("The delta of the claim; default: --delta.")] = None
    claimed_unit: Annotated[
        PrivacyUnit, Option("What the claim is for: a document, or a user, whose all copies of a canary are.")
    ] = "document"
    inclusion: Annotated[
        float | None,
        Option(
            "Probability with which a canary was planted, by its coin; default: what RESULTS say, or 0.5 with --scores."
        ),
    ] = None
    runs: Runs = "one"
    seed: Annotated[int, SEED] = 0

    @property
    def claim(self) -> tuple[float, float] | None:
        """The claimed epsilon and delta; None where there is no claim."""
        if self.claimed_epsilon is None:
            return None
        return self.claimed_epsilon, self.delta if self.claimed_delta is None else self.claimed_delta

    def with_claim(self, model: Mapping[str, Any]) -> MembershipOptions:
        """The same with the claim of a model that was trained privately, where no other was given."""
        claim = claim_of_model(model)
        if claim is None or self.claimed_epsilon is not None:
            return self
        return msgspec.structs.replace(
            self, claimed_epsilon=claim.epsilon, claimed_delta=claim.delta, claimed_unit=claim.unit
        )

    def check(self) -> None:
        """Reject values that cannot be measured with."""
        from coalmine.statistics.scores import checked_confidence, checked_delta, checked_epsilon

        if self.runs not in get_args(Runs) or self.claimed_unit not in get_args(PrivacyUnit):
            raise InputError('runs must be "one" or "many", and the claimed unit "document" or "user"')
        if self.claimed_epsilon is None and self.claimed_delta is not None:
            raise InputError("a claimed delta needs a claimed epsilon; give both, or neither")
        if self.inclusion is not None and not 0.0 < self.inclusion < 1.0:
            raise InputError(f"inclusion must lie strictly between 0 and 1, got {self.inclusion}")
        if self.claim is not None:
            checked_epsilon(self.claim[0])
            checked_delta(self.claim[1])
        checked_delta(self.delta)
        checked_confidence(self.confidence)
