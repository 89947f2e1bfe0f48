"""The card of a privately trained model: what is claimed, how it was accounted for, and what the claim does not cover."""

from __future__ import annotations

from coalmine.records.privacy import PrivacyClaim
from coalmine.training.private.options import PrivateOptions

CARD_FILE = "card.md"


def not_covered(
    private: PrivateOptions, *, record: str, made_from_text: str | None = None, base: str | None = None
) -> tuple[str, ...]:
    """What the claim of a training does not cover, one sentence each.

    `record` is the name of the record of the training, `made_from_text` what a vocabulary was made of that was made from its text, and
    `base` the checkpoint that it began from.
    """
    reasons = [
        f"How many {private.unit}s there are is treated as public.",
        f"The losses in {record} and on the screen are computed from the data without noise.",
        "Other models trained on the same data reveal more: the epsilons of all that are published add up.",
        "Choices made by looking at the data or at other trainings on it, such as the learning rate, are not accounted for.",
        "The noise is made of floating-point numbers by a generator that is not a cryptographic one.",
    ]
    if made_from_text is not None:
        reasons.insert(
            0,
            f"The vocabulary was made from the text without noise: it shows which {made_from_text} occur in it.",
        )
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


def card_of(model: str, claim: PrivacyClaim) -> str:
    """The card in Markdown."""
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
        f"# {model}\n\nTrained privately by coalmine: {shown}.\n\n| what | value |\n| --- | --- |\n{rows}\n\n"
        f"## What the claim does not cover\n\n{limits}\n"
    )
