"""Summaries for the terminal of planting, importing and training, in which hostile text is inert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coalmine.corpus.planting.planting import Planted
from coalmine.evidence.words import format_names
from coalmine.records.chat import Frame
from coalmine.records.estimate import rounded_down
from coalmine.visible import visible

if TYPE_CHECKING:
    from pathlib import Path

    from msgspec import UnsetType

    from coalmine.corpus.planting.importing import Imported
    from coalmine.corpus.planting.power import CopiesPower, FormatPower, Power
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
    if made.canaries.frame is not None:
        lines.append(frame_in_words(made.canaries.frame))
    if power is not None:
        lines += power_in_words(power)
    if made.earlier is not None:
        lines.append(
            f"The corpus held {made.earlier.planted} planted canaries already; {visible(str(made.earlier.manifest))} is their manifest "
            "for the new one."
        )
    warnings = (*made.warnings, *(() if made.earlier is None else made.earlier.warnings))
    lines += [
        f"Note: {visible(warning)}" for warning in (*warnings, *(() if power is None else power.warnings))
    ]
    lines.append(
        f"Train on {visible(str(made.corpus))}; keep {visible(str(made.manifest))} secret, and for `coalmine expose`."
    )
    return "\n".join(lines)


def frame_in_words(frame: Frame) -> str:
    """Where canaries are in chat data.

    >>> frame_in_words(Frame(kind="messages", role="assistant", place="own"))
    'Each copy is a turn of the assistant in a conversation of its own (rows of messages).'
    """
    where = (
        "is a turn of the {} in a conversation of its own"
        if frame.place == "own"
        else "begins a turn of the {} in a conversation that was there"
    )
    return f"Each copy {where.format(frame.role)} (rows of {frame.kind})."


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
            lines.append(f"  exposure of {form.exposure_bits:.2f} bits{_among_references(form)}")
        lines.append(f"  {_rates_in_words(form)}")
        lines += [f"  {_epsilon_in_words(one)}" for one in form.by_copies]
    return lines


def _rates_in_words(form: FormatPower) -> str:
    rates, bounded = (
        ", ".join(f"{100 * rate:g}%" for rate in some)
        for some in (form.false_positive_rates, form.bounded_false_positive_rates)
    )
    many = f"{form.compared_with:,} references and withheld canaries"
    if not rates:
        return f"no TPR at a fixed FPR: {many} are too few"
    limits = "" if rates == bounded else f" (with a lower limit above 0 at {bounded or 'none of them'})"
    return f"TPR at FPR {rates}{limits}: {many}"


def _among_references(form: FormatPower) -> str:
    bits = form.reference_exposure_bits
    return "" if bits is None else f", {bits:.2f} where it is measured among the references"


def _epsilon_in_words(one: CopiesPower) -> str:
    times = "once" if one.copies == 1 else f"{one.copies} times"
    sides = f"{one.planted} planted {times} against {one.withheld} withheld"
    if one.epsilon is None or one.epsilon_per_copy is None:
        return f"nothing about epsilon: {sides}"
    each = "" if one.copies == 1 else f" ({rounded_down(one.epsilon_per_copy)} per copy)"
    return f"epsilon of {rounded_down(one.epsilon)}{each}: {sides}"


def training_summary(trained: TrainedModel) -> str:
    """How a training ended."""
    record = trained.record
    best = record.epochs[record.best_epoch - 1] if record.epochs else None
    if not trained.trained_now:
        return f"{visible(str(trained.path))} already holds this exact model; nothing was done."
    loss = ""
    if best is not None and best.validation_loss_bits is not None:
        loss = f", validation loss {best.validation_loss_bits:.3f} bits per token"
    stopped = " (stopped early: it no longer fell)" if record.stopped_early else ""
    return (
        f"Trained {record.parameters:,} parameters on {record.tokens:,} tokens, epochs: {len(record.epochs)}{stopped}.\n"
        f"Kept epoch {record.best_epoch}{loss}: {visible(str(trained.path))}{_claim_in_words(record.privacy)}"
    )


def finetuning_summary(tuned: FinetunedModel) -> str:
    """How a fine-tuning ended."""
    record = tuned.record
    if not tuned.trained_now:
        return f"{visible(str(tuned.path))} already holds this exact model; nothing was done."
    loss = record.validation_loss_bits
    validated = "" if loss is None else f"Validation loss {loss:.3f} bits per token: "
    return (
        f"Fine-tuned {record.trained_parameters:,} of {record.parameters:,} parameters of {visible(record.base.name)} on "
        f"{record.tokens:,} tokens, epochs: {len(record.epochs)}.\n{validated}{visible(str(tuned.path))}{_claim_in_words(record.privacy)}"
    )


def _claim_in_words(claim: PrivacyClaim | UnsetType) -> str:
    """What private training claims, and where that is explained."""
    if not claim:
        return ""
    slow = f"\nGradients were clipped by {visible(claim.clipping_in_words)}." if claim.loop_reason else ""
    return (
        f"\nPrivate: {claim.in_words}; card.md has what the claim rests on and what it does not cover.{slow}"
    )
