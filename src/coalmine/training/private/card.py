"""The card of a privately trained model: what is claimed, how it was accounted for, and what the claim does not cover."""

from __future__ import annotations

import hashlib
from typing import TypeVar

import msgspec

from coalmine.models.reference.checkpoint import TrainedFiles
from coalmine.records.privacy import PrivacyClaim
from coalmine.training.private.options import PrivateOptions

CARD_FILE = "card.md"
TrainedPrivately = TypeVar("TrainedPrivately", bound=TrainedFiles)


def not_covered(
    private: PrivateOptions,
    *,
    record: str,
    held_out: bool,
    vocabulary: str | None = None,
    base: str | None = None,
) -> tuple[str, ...]:
    """What the claim of a training does not cover, one sentence each.

    `record` is the name of the record of the training, and `held_out` whether documents of the data were held out. `vocabulary` is a
    sentence on where the vocabulary comes from, unless it is that of `base`, the checkpoint that the training began from.
    """
    reasons = [
        f"How many {private.unit}s there are is treated as public.",
        f"The losses in {record} and on the screen are computed from the data without noise.",
        "Other models trained on the same data reveal more: the epsilons of all that are published add up.",
        "Choices made by looking at the data or at other trainings on it, such as the learning rate, are not accounted for.",
        "The noise is made of floating-point numbers by a generator that is not a cryptographic one.",
    ]
    if held_out:
        reasons.insert(
            1,
            "Which documents were held out depends on how many there are: with one more, others might have been trained on.",
        )
    if vocabulary is not None:
        reasons.insert(0, vocabulary)
    if base is not None:
        reasons.insert(
            0,
            f"What {base} learned before is not covered, and nothing is claimed for text that it was trained on already.",
        )
    if private.unit == "document":
        reasons.append(
            "Someone whose text is in several documents is protected less: the claim is for one document."
        )
    if private.seed is not None:
        reasons.append(
            "The noise was drawn from a seed: anyone who knows or guesses it can subtract the noise, and for them nothing is claimed."
        )
    return tuple(reasons)


def with_card(record: TrainedPrivately) -> TrainedPrivately:
    """The record of a training with the SHA-256 of its card, if it has one, so that `verify` notices a card that was edited."""
    if record.privacy is msgspec.UNSET:
        return record
    digest = hashlib.sha256(card_of(record.privacy).encode()).hexdigest()
    return msgspec.structs.replace(record, card_sha256=digest)


def written_card(record: TrainedFiles) -> dict[str, str]:
    """The SHA-256 of the card that was written with a record, by the name of its file; nothing where there is no card."""
    return {} if record.card_sha256 is msgspec.UNSET else {CARD_FILE: record.card_sha256}


def card_of(claim: PrivacyClaim) -> str:
    """The card in Markdown; it does not name the model, whose directory may be renamed."""
    shown = claim.in_words
    facts = {
        "epsilon": "none: no noise was added" if claim.epsilon is None else f"{claim.epsilon:.4g}",
        "delta": f"{claim.delta:g}",
        "accountant": claim.accountant,
        "epsilon by RDP": "none" if claim.rdp_epsilon is None else f"{claim.rdp_epsilon:.4g}",
        "unit of privacy": f"the {claim.unit}; neighbors differ by one {claim.unit} that is added or removed",
        f"{claim.unit}s": f"{claim.units:,}",
        "sampling": f"Poisson: each {claim.unit} is in a step with probability {claim.sampling_rate:.4g}",
        "steps": f"{claim.steps:,}",
        "noise multiplier": f"{claim.noise_multiplier:g}",
        "norm of clipping": f"{claim.clip:g}, for the gradient of each {claim.unit}",
        "optimizer": claim.optimizer,
        "gradients clipped by": claim.clipping_in_words,
        "noise drawn from": "the system" if claim.noise_from == "system" else "a seed that was given",
    }
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    limits = "\n".join(f"- {sentence}" for sentence in claim.not_covered)
    return (
        f"# Model card\n\nTrained privately by coalmine: {shown}.\n\n| what | value |\n| --- | --- |\n{rows}\n\n"
        f"## What the claim does not cover\n\n{limits}\n"
    )
