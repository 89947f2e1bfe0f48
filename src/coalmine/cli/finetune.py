"""`coalmine finetune`: fine-tune a Hugging Face checkpoint on a corpus, in full or with LoRA, plain or private."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from coalmine.cli.options import CorpusFields, Printing, out_option
from coalmine.cli.taking import Arguments, Changes, Part, takes
from coalmine.engines.options import EngineOptions
from coalmine.records.options import Option
from coalmine.storage.files import check_places
from coalmine.training.finetuning.options import FinetuningOptions
from coalmine.training.private.options import PREFIX, PrivateOptions


class Finetune(Arguments, frozen=True, kw_only=True):
    """What `coalmine finetune` takes."""

    base: Annotated[Path, typer.Argument(help="The directory of a causal transformers checkpoint.")]
    data: Annotated[
        Path,
        typer.Argument(metavar="CORPUS", help="A corpus, or the directory that `coalmine plant` wrote."),
    ]
    out: Annotated[Path, out_option("Directory for the model, or for the adapter with --lora-rank.")]
    valid: Annotated[Path | None, Option("Validation corpus; without it, some documents are held out.")] = (
        None
    )
    options: Annotated[dict[str, Any], Changes(FinetuningOptions)]
    private: Annotated[dict[str, Any], Changes(PrivateOptions, prefix=PREFIX)]
    running: Annotated[EngineOptions, Part(("engine",))]
    columns: CorpusFields
    printing: Printing


@takes
def command(given: Finetune) -> int:
    """Fine-tune a causal Hugging Face checkpoint on a corpus, in full or with LoRA, for a fixed number of epochs.

    If it is stopped by Ctrl-C or killed, run the same command again to resume; the result has the same bytes. Writes the model with its
    tokenizer, or with --lora-rank an adapter that names its base, and finetuning.json to --out, which every audit takes at once. With
    --dp-epsilon it trains privately: no document (or user) can change the weights by more than noise hides, and card.md has the claim.
    """
    with given.printing.output() as output:
        from coalmine.cli.run_record import RUN_FILE, RunClock
        from coalmine.reports.terminal import finetuning_summary
        from coalmine.training.finetuning.tuner import finetune

        clock = RunClock()
        check_places(given.out, RUN_FILE)
        tuned = finetune(
            given.base,
            given.data,
            out=given.out,
            valid=given.valid,
            # If none is named, the fields that the canaries were planted with.
            fields=None if given.columns == CorpusFields() else given.columns.fields(),
            progress=output.progress(),
            engine=given.running.engine,
            **given.options,
            **given.private,
        )
        # One that was killed after its last file was written has no record of its run yet.
        if tuned.trained_now or not (tuned.path / RUN_FILE).exists():
            clock.save(tuned.path, seed=tuned.record.options.seed, data_sha256=tuned.record.data_sha256)
        output.say(finetuning_summary(tuned))
        output.document(
            {"model": str(tuned.path), "trained_now": tuned.trained_now, "finetuning": tuned.record}
        )
    return 0
