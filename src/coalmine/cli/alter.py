"""`coalmine quantize` and `coalmine unlearn`: a trained model again, with other weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from coalmine.cli.options import Overwrite, TextFields, out_option
from coalmine.cli.output import placed
from coalmine.cli.runner import Session, command
from coalmine.cli.taking import Arguments
from coalmine.records.options import Option
from coalmine.training.quantizing.options import QuantizeOptions
from coalmine.training.unlearning.options import UnlearnOptions

if TYPE_CHECKING:
    from coalmine.training.quantizing.record import Quantization
    from coalmine.training.unlearning.record import Unlearning


class Quantize(Arguments, frozen=True, kw_only=True):
    """What `coalmine quantize` takes."""

    model: Annotated[
        Path,
        typer.Argument(help="A directory that `coalmine train` wrote, or a local transformers checkpoint."),
    ]
    out: Annotated[Path, out_option("Directory for the quantized model and quantization.json.")]
    options: QuantizeOptions
    overwrite: Overwrite = False


@command("quantize")
def quantize(given: Quantize, session: Session) -> None:
    """Quantize a model: its weights are rounded to few different values, so that what that does to its memory can be measured.

    Weights are stored as plain numbers of the type that they had, and every audit reads the copy as it reads the original. Only safetensors
    are read, and no code of the model is run.
    """
    from coalmine.training.quantizing.quantizing import quantize

    session.into(given.out)
    made = quantize(
        given.model,
        given.out,
        options=given.options,
        overwrite=given.overwrite,
        progress=session.progress(),
        record=lambda made: session.record(data_sha256=made.data_sha256),
    )
    session.say(_rounded(made, given.out))
    session.document(made)


def _rounded(made: Quantization, out: Path) -> str:
    rounded = [one for one in made.tensors if one.distinct is not None]
    distinct = max(one.distinct or 0 for one in rounded)
    error = max(one.largest_error for one in rounded)
    where = "row" if made.options.int8 else "tensor"
    lines = [
        f"Rounded {made.rounded:,} numbers in {len(rounded):,} tensors: {made.rounding}.",
        f"Different values in a {where}: at most {distinct:,}; largest change of a weight: {error:.3g}.",
    ]
    if made.kept:
        kept = len(made.tensors) - len(rounded)
        lines.append(
            f"Kept as they were: {made.kept:,} numbers in {kept:,} tensors; quantization.json says why."
        )
    lines.append(placed("Quantized model", out))
    return "\n".join(lines)


class Unlearn(Arguments, frozen=True, kw_only=True):
    """What `coalmine unlearn` takes."""

    model: Annotated[Path, typer.Argument(help="A directory that `coalmine train` wrote.")]
    documents: Annotated[
        Path, Option("What to forget: a corpus, or the canaries.json or secrets.json of planted texts.")
    ]
    out: Annotated[Path, out_option("Directory for the new model and unlearning.json.")]
    keep: Annotated[Path | None, Option("A corpus of text whose loss should stay as it is.")] = None
    options: UnlearnOptions
    overwrite: Overwrite = False
    columns: TextFields


@command("unlearn")
def unlearn(given: Unlearn, session: Session) -> None:
    """Unlearn documents by gradient ascent, a baseline: each step raises the loss of those that are still remembered.

    It stops once each costs as much as the median of similar texts that were not trained on, in the changed model, or gives up after
    --steps. That a loss is high is not proof that nothing is left: measure the new model with `coalmine expose`, and compare it with one
    that was trained without the documents.
    """
    from coalmine.training.unlearning.unlearning import unlearn

    session.into(given.out)
    made = unlearn(
        given.model,
        given.documents,
        given.out,
        keep=given.keep,
        options=given.columns.into(given.options),
        overwrite=given.overwrite,
        progress=session.progress(),
        record=lambda made: session.record(seed=given.options.seed, data_sha256=made.data_sha256),
    )
    session.say(_forgotten(made, given.out))
    session.document(made)


def _forgotten(made: Unlearning, out: Path) -> str:
    forget = made.forget
    limit = f"{made.until_bits:.3f} bits per token"
    if made.until_from != "given":
        limit = f"the median loss of {made.until_from}, {made.until_bits_before:.3f} bits per token before and {made.until_bits:.3f} after"
    ended = (
        "Every document reached"
        if made.finished
        else f"Gave up: {made.remembered_after:,} documents are still below"
    )
    lines = [
        f"{ended} the limit after {made.steps:,} steps; {made.remembered_before:,} of {forget.documents:,} were below it before.",
        f"The limit: {limit}.",
        f"Their mean loss: {forget.before:.3f} bits per token before, {forget.after:.3f} after.",
    ]
    if made.keep is not msgspec.UNSET:
        lines.append(
            f"Mean loss of the {made.keep.documents:,} documents to keep: {made.keep.before:.3f} before, {made.keep.after:.3f} after."
        )
    if not made.finished:
        lines.append(
            "Give more --steps to go on, or a larger --learning-rate; both cost more of what the model should keep."
        )
    lines.append(
        "That does not prove that they are forgotten: measure the new model with `coalmine expose`, and compare it with one trained "
        "without them."
    )
    lines.append(placed("New model", out))
    return "\n".join(lines)
