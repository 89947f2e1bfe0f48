"""`coalmine unlearn`: raise the loss of a model on documents that it should forget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from coalmine.cli.options import Overwrite, Printing, TextFields, out_option
from coalmine.cli.taking import Arguments, takes
from coalmine.records.options import Option
from coalmine.storage.files import check_places, no_empty_directory
from coalmine.training.unlearning.options import UnlearnOptions

if TYPE_CHECKING:
    from coalmine.training.unlearning.record import Unlearning


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
    printing: Printing


@takes
def command(given: Unlearn) -> int:
    """Unlearn documents by gradient ascent, a baseline: each step raises the loss of those that are still remembered.

    It stops once each costs as much as the median of similar texts that were not trained on, in the changed model, or gives up after
    --steps. That a loss is high is not proof that nothing is left: measure the new model with `coalmine expose`, and compare it with one
    that was trained without the documents.
    """
    out = given.out
    with given.printing.output() as output, no_empty_directory(out):
        from coalmine.cli.run_record import RUN_FILE, RunClock
        from coalmine.training.unlearning.unlearning import unlearn

        clock = RunClock()
        check_places(out, RUN_FILE)
        made = unlearn(
            given.model,
            given.documents,
            out,
            keep=given.keep,
            options=msgspec.structs.replace(given.options, fields=given.columns.fields()),
            overwrite=given.overwrite,
            progress=output.progress(),
            record=lambda made: clock.save(out, seed=given.options.seed, data_sha256=made.data_sha256),
        )
        output.say(_summary(made, out))
        output.document(made)
    return 0


def _summary(made: Unlearning, out: Path) -> str:
    from coalmine.visible import visible

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
    lines.append(f"New model: {visible(str(out))}")
    return "\n".join(lines)
