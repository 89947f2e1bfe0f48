"""Short answers for the terminal, in which hostile text is inert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coalmine.corpus.planting import Planted
from coalmine.corpus.verifying import Verification
from coalmine.visible import visible

if TYPE_CHECKING:
    from coalmine.training.trainer import TrainedModel


def inert(text: str) -> str:
    r"""Text from a model, a manifest or a corpus, as a terminal can safely show it: no control character, no markup.

    >>> inert("\x1b[2Jgone [bold]x[/bold]")
    '\\x1b[2Jgone \\[bold]x\\[/bold]'
    """
    from rich.markup import escape

    return escape(visible(text))


def planted_summary(made: Planted) -> str:
    """What was planted, and what to do next."""
    planted = [canary for canary in made.canaries if canary.planted]
    copies = sum(canary.repetitions for canary in planted)
    withheld = len(made.canaries) - len(planted)
    references = sum(len(texts) for texts in made.canaries.references.values())
    return (
        f"Canaries: {len(planted)} planted (copies in all: {copies}), {withheld} withheld; {references:,} references drawn.\n"
        f"Train on {inert(str(made.corpus))}; keep {inert(str(made.manifest))} secret, and for `coalmine expose`."
    )


def verification_summary(found: Verification) -> str:
    """Whether a planted corpus is what its manifest says."""
    if found.ok:
        return "The planted corpus matches its manifest."
    return "\n".join(
        ["The planted corpus does NOT match its manifest:", *(f"- {inert(p)}" for p in found.problems)]
    )


def training_summary(trained: TrainedModel) -> str:
    """How a training ended."""
    record = trained.record
    best = record.epochs[record.best_epoch - 1] if record.epochs else None
    if not trained.trained_now:
        return f"{inert(str(trained.path))} already holds this very model; nothing was done."
    loss = ""
    if best is not None and best.validation_loss_bits is not None:
        loss = f", validation loss {best.validation_loss_bits:.3f} bits a token"
    stopped = " (stopped early: it no longer fell)" if record.stopped_early else ""
    return (
        f"Trained {record.parameters:,} parameters on {record.tokens:,} tokens, epochs: {len(record.epochs)}{stopped}.\n"
        f"Kept epoch {record.best_epoch}{loss}: {inert(str(trained.path))}"
    )
