"""Summaries for the terminal of planting, importing and training, in which hostile text is inert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coalmine.corpus.planting.planting import Planted
from coalmine.evidence.words import format_names, times_in_words
from coalmine.records.estimate import rounded_down
from coalmine.visible import visible

if TYPE_CHECKING:
    from pathlib import Path

    from msgspec import UnsetType

    from coalmine.corpus.planting.importing import Imported
    from coalmine.corpus.planting.power import Power
    from coalmine.records.privacy import PrivacyClaim
    from coalmine.training.family import TrainedModel
    from coalmine.training.finetuning.tuner import FinetunedModel


def planted_summary(made: Planted, power: Power | None = None) -> str:
    """What was planted, the most that an audit of it could show, and what to do next."""
    planted = [canary for canary in made.canaries if canary.planted]
    copies = sum(canary.repetitions for canary in planted)
    withheld = len(made.canaries) - len(planted)
    references = sum(len(texts) for texts in made.canaries.references.values())
    lines = [
        f"Canaries: {len(planted)} planted (copies in all: {copies}), {withheld} withheld; {references:,} references drawn."
    ]
    warnings = [*made.warnings]
    if power is not None:
        lines += power_in_words(power)
        warnings += power.warnings
    if made.earlier is not None:
        lines.append(f"The manifest of earlier canaries is now {visible(str(made.earlier.manifest))}.")
        warnings += made.earlier.warnings
    lines += [f"Note: {visible(warning)}" for warning in warnings]
    lines.append(
        f"Train on {visible(str(made.corpus))}; keep {visible(str(made.manifest))} secret, and for `coalmine expose`."
    )
    return "\n".join(lines)


def imported_summary(imported: Imported, path: Path, power: Power) -> str:
    """Whose canaries were imported, the most that an audit of them can show, and what was assumed."""
    canaries = imported.canaries
    planted = sum(canary.planted for canary in canaries)
    references = sum(map(len, canaries.references.values()))
    return "\n".join(
        [
            f"Imported from {imported.tool}: {planted} planted, {len(canaries) - planted} withheld; {references:,} references.",
            *power_in_words(power),
            *(f"Note: {visible(note)}" for note in (*imported.notes, *power.warnings)),
            f"Keep {visible(str(path))} secret, and for `coalmine expose`.",
        ]
    )


def power_in_words(power: Power) -> list[str]:
    """The most that an audit could show: a few lines per format."""
    lines = [
        f"The most that an audit of them can show (at {100 * power.confidence:g}% confidence and delta {power.delta:g}):"
    ]
    names = format_names({form.format_id: form.template for form in power.formats})
    for form in power.formats:
        lines.append(f"- {visible(names[form.format_id])}")
        if form.exposure_bits is not None:
            among = form.reference_exposure_bits
            further = "" if among is None else f", {among:.2f} where it is measured among the references"
            lines.append(f"  exposure of {form.exposure_bits:.2f} bits{further}")
        rates = ", ".join(f"{100 * rate:g}%" for rate in form.false_positive_rates)
        many = f"{form.compared_with:,} references and withheld canaries"
        lines.append(
            f"  TPR at FPR {rates}: {many}" if rates else f"  no TPR at a fixed FPR: {many} are too few"
        )
        for one in form.by_copies:
            sides = f"{one.planted} planted {times_in_words(one.copies)} against {one.withheld} withheld"
            bound = (
                "nothing about epsilon" if one.epsilon is None else f"epsilon of {rounded_down(one.epsilon)}"
            )
            lines.append(f"  {bound}: {sides}")
    return lines


def training_summary(trained: TrainedModel) -> str:
    """How a training ended."""
    record, path = trained.record, visible(str(trained.path))
    if not trained.trained_now:
        return f"{path} already holds this exact model; nothing was done."
    loss = record.epochs[record.best_epoch - 1].validation_loss_bits if record.epochs else None
    validated = "" if loss is None else f", validation loss {loss:.3f} bits per token"
    return (
        f"Trained {record.parameters:,} parameters on {record.tokens:,} tokens, epochs: {len(record.epochs)}.\n"
        f"Kept epoch {record.best_epoch}{validated}: {path}{_claim_in_words(record.privacy)}"
    )


def finetuning_summary(tuned: FinetunedModel) -> str:
    """How a fine-tuning ended."""
    record, path = tuned.record, visible(str(tuned.path))
    if not tuned.trained_now:
        return f"{path} already holds this exact model; nothing was done."
    loss = record.validation_loss_bits
    validated = "" if loss is None else f"Validation loss {loss:.3f} bits per token: "
    return (
        f"Fine-tuned {record.trained_parameters:,} of {record.parameters:,} parameters of {visible(record.base.name)} on "
        f"{record.tokens:,} tokens, epochs: {len(record.epochs)}.\n{validated}{path}{_claim_in_words(record.privacy)}"
    )


def _claim_in_words(claim: PrivacyClaim | UnsetType) -> str:
    """What private training claims, and where that is explained."""
    rests = "card.md has what the claim rests on and what it does not cover"
    return f"\nPrivate: {claim.in_words}; {rests}." if claim else ""
