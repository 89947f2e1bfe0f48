"""Claims of privacy: the epsilon and delta that a training was accounted for, and what they rest on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from coalmine.records.estimate import Amount, Positive, Share

PrivacyUnit = Literal["document", "user"]
NoiseOrigin = Literal["system", "seed"]


class PrivacyClaim(msgspec.Struct, frozen=True, kw_only=True):
    """What private training claims: for two corpora that differ in one unit, the weights are (epsilon, delta)-indistinguishable.

    >>> claim = PrivacyClaim(
    ...     epsilon=2.99, delta=1e-9, accountant="PLD", rdp_epsilon=3.41, unit="document", units=3200, sampling_rate=0.01, steps=1000,
    ...     noise_multiplier=1.0, clip=1.0, noise_from="system", optimizer="adam", clipping="ghost", not_covered=())
    >>> claim.in_words
    'epsilon 2.99 at delta 1e-09 for one document'
    """

    # None where there was no noise, and so nothing is claimed.
    epsilon: Amount | None
    delta: Share
    # Which accountant gave epsilon: "PLD", or "RDP" where the other one has no finite answer.
    accountant: str
    # What the RDP accountant gives for the same training.
    rdp_epsilon: Amount | None
    unit: PrivacyUnit
    # How many there were, and with which probability each was in a step, by a coin of its own.
    units: Positive
    sampling_rate: Share
    steps: Positive
    # The standard deviation of the noise on the sum of clipped gradients, divided by `clip`.
    noise_multiplier: Amount
    # The largest norm that the gradient of a unit kept.
    clip: Amount
    # Where the key of the noise came from; the key itself is in no record.
    noise_from: NoiseOrigin
    optimizer: str
    # How gradients were clipped: "ghost" or "loop", which give the same sums.
    clipping: str
    # Why it was a loop, as words that can follow "because".
    loop_reason: str = ""
    # What the claim does not cover, one sentence each.
    not_covered: tuple[str, ...]

    @property
    def in_words(self) -> str:
        """The claim in a few words."""
        if self.epsilon is None:
            return f"no epsilon for one {self.unit}: gradients were clipped, and no noise was added"
        return f"epsilon {self.epsilon:.3g} at delta {self.delta:g} for one {self.unit}"

    @property
    def clipping_in_words(self) -> str:
        """How gradients were clipped, with the reason where it was the slow way."""
        return f"a loop over units, because {self.loop_reason}" if self.loop_reason else self.clipping

    def described(self) -> DescribedClaim | None:
        """What the description of a model says of it; None where nothing is claimed."""
        if self.epsilon is None:
            return None
        return DescribedClaim(epsilon=self.epsilon, delta=self.delta, unit=self.unit)


class DescribedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The claim of a model in its description, under "privacy", where audits find it."""

    epsilon: float
    delta: float
    unit: PrivacyUnit


def claim_of_model(description: Mapping[str, Any]) -> DescribedClaim | None:
    """The claim in the description of a model, which is also in the results of audits; None where it has none that can be read.

    >>> claim_of_model({"privacy": {"epsilon": 1.0, "delta": 1e-9, "unit": "user"}}).unit
    'user'
    """
    try:
        claim = msgspec.convert(description.get("privacy"), DescribedClaim | None)
    except msgspec.ValidationError:
        return None
    sane = claim is not None and 0 <= claim.epsilon < math.inf and 0 <= claim.delta < 1
    return claim if sane else None
