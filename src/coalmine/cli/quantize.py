"""`coalmine quantize`: write a model again with few different weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coalmine.cli.options import Overwrite, Printing, Seed, out_option
from coalmine.cli.taking import Arguments, takes
from coalmine.storage.files import check_places, no_empty_directory
from coalmine.training.quantizing.options import QuantizeOptions

if TYPE_CHECKING:
    from coalmine.training.quantizing.record import Quantization


class Quantize(Arguments, frozen=True, kw_only=True):
    """What `coalmine quantize` takes."""

    model: Annotated[
        Path,
        typer.Argument(help="A directory that `coalmine train` wrote, or a local transformers checkpoint."),
    ]
    out: Annotated[Path, out_option("Directory for the quantized model and quantization.json.")]
    options: QuantizeOptions
    overwrite: Overwrite = False
    seed: Seed = 0
    printing: Printing


@takes
def command(given: Quantize) -> int:
    """Quantize a model: its weights are rounded to few different values, so that what that does to its memory can be measured.

    Weights are stored as plain numbers of the type that they had, and every audit reads the copy as it reads the original. Only safetensors
    are read, and no code of the model is run. Nothing here is random: --seed changes nothing.
    """
    out = given.out
    with given.printing.output() as output, no_empty_directory(out):
        from coalmine.cli.run_record import RUN_FILE, RunClock
        from coalmine.training.quantizing.quantizing import quantize

        clock = RunClock()
        check_places(out, RUN_FILE)
        made = quantize(
            given.model,
            out,
            options=given.options,
            overwrite=given.overwrite,
            progress=output.progress(),
            record=lambda made: clock.save(out, seed=given.seed, data_sha256=made.data_sha256),
        )
        output.say(_summary(made, out))
        output.document(made)
    return 0


def _summary(made: Quantization, out: Path) -> str:
    from coalmine.visible import visible

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
    lines.append(f"Quantized model: {visible(str(out))}")
    return "\n".join(lines)
