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

    It stops once the loss of each has reached --until, or after --steps. That a loss is high is no proof that nothing is left: measure the
    new model with `coalmine expose`, and compare it with one that was trained without the documents.
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

    forget, limit = made.forget, f"{made.until_bits:.3f} bits per token"
    source = "" if made.until_from == "given" else f", the mean loss of the {made.until_from}"
    reached = (
        f"Documents with a loss below {limit}{source}: {made.remembered_before:,} of {forget.documents:,} before, "
        f"{made.remembered_after:,} after {made.steps:,} steps."
    )
    lines = [
        reached,
        f"Their mean loss: {forget.before:.3f} bits per token before, {forget.after:.3f} after.",
    ]
    if made.keep is not msgspec.UNSET:
        lines.append(
            f"Mean loss of the {made.keep.documents:,} documents to keep: {made.keep.before:.3f} before, {made.keep.after:.3f} after."
        )
    if not made.finished:
        lines.append(
            "Note: it stopped because no steps were left; give more --steps to go on until all are forgotten."
        )
    # Ascent raises the loss of all texts of that form, so a document can be as exposed as before.
    lines.append(
        "A higher loss does not prove that they are forgotten: measure the new model with `coalmine expose`."
    )
    lines.append(f"New model: {visible(str(out))}")
    return "\n".join(lines)
