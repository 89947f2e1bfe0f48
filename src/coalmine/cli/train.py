"""`coalmine train`: train a reference model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from coalmine.cli.options import (
    Json,
    Quiet,
    Seed,
    SourceField,
    TargetField,
    TextField,
    UserField,
    fields_from,
)
from coalmine.cli.output import Output
from coalmine.storage.files import check_places


def command(
    data: Annotated[Path, typer.Argument(help="A corpus, or the directory that `coalmine plant` wrote.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the model.")],
    preset: Annotated[
        str,
        typer.Option(
            "--preset",
            help="char-lstm (the paper's), word-lstm, gru, cnn or transformer; for pairs translation (the paper's) or "
            "translation-attention.",
        ),
    ] = "char-lstm",
    valid: Annotated[
        Path | None,
        typer.Option("--valid", help="Validation corpus; without it, some documents are held out."),
    ] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", help="Passes over the data, at most.")] = None,
    patience: Annotated[
        int | None,
        typer.Option("--patience", help="Epochs without a better validation loss before stopping."),
    ] = None,
    holdout: Annotated[
        float | None, typer.Option("--holdout", help="Share of documents held out; canaries never are.")
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option("--optimizer", help="sgd, momentum, adam, rmsprop, adagrad or adadelta.")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option("--learning-rate", help="Default: one that suits the optimizer.")
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option("--weight-decay", help="Pull of weights towards 0.")
    ] = None,
    dropout: Annotated[
        float | None, typer.Option("--dropout", help="Share of activations dropped in training.")
    ] = None,
    clip: Annotated[
        float | None, typer.Option("--clip", help="Norm that gradients are scaled down to; 0 for none.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", help="Rows, or pairs, read side by side.")
    ] = None,
    window: Annotated[
        int | None,
        typer.Option("--window", help="Tokens that a gradient reaches back over; pairs are read whole."),
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option("--tokens", help="characters or words; word-lstm has words, the others characters."),
    ] = None,
    embedding: Annotated[int | None, typer.Option("--embedding", help="Size of token embeddings.")] = None,
    hidden: Annotated[int | None, typer.Option("--hidden", help="Size of layers.")] = None,
    layers: Annotated[int | None, typer.Option("--layers", help="Number of layers.")] = None,
    heads: Annotated[int | None, typer.Option("--heads", help="Attention heads (transformer).")] = None,
    kernel: Annotated[int | None, typer.Option("--kernel", help="Width of convolutions (cnn).")] = None,
    vocabulary: Annotated[
        int | None, typer.Option("--vocabulary", help="Words in the vocabulary, where tokens are words.")
    ] = None,
    shuffle: Annotated[
        bool | None, typer.Option("--shuffle/--no-shuffle", help="New order of documents each epoch.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", help="CPU threads; more are seldom faster for small models.")
    ] = None,
    watch: Annotated[
        Path | None, typer.Option("--watch", help="canaries.json whose exposure to record during training.")
    ] = None,
    watch_every: Annotated[
        int, typer.Option("--watch-every", help="Batches between two looks; each epoch's end is one too.")
    ] = 100,
    watch_method: Annotated[
        str, typer.Option("--watch-method", help="How to look; see `coalmine expose --help`.")
    ] = "references",
    text_field: TextField = "text",
    user_field: UserField = None,
    source_field: SourceField = None,
    target_field: TargetField = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Train a reference model until its validation loss no longer falls.

    Stopped by Ctrl-C or killed, it resumes when you run the same command again, and ends with the same bytes. Writes
    model.safetensors, config.json and training.json to --out.
    """
    chosen: dict[str, Any] = {
        name: value
        for name, value in {
            "epochs": epochs,
            "patience": patience,
            "holdout": holdout,
            "optimizer": optimizer,
            "learning_rate": learning_rate,
            "weight_decay": weight_decay,
            "dropout": dropout,
            "clip": clip,
            "batch_size": batch_size,
            "window": window,
            "tokens": tokens,
            "embedding": embedding,
            "hidden": hidden,
            "layers": layers,
            "heads": heads,
            "kernel": kernel,
            "vocabulary": vocabulary,
            "shuffle": shuffle,
            "threads": threads,
        }.items()
        if value is not None
    }
    with Output(json=json, quiet=quiet) as output:
        from coalmine.cli.run_record import RUN_FILE, RunClock
        from coalmine.reports.terminal import training_summary
        from coalmine.training.trainer import train

        named = (text_field, user_field, source_field, target_field)
        clock = RunClock()
        check_places(out, RUN_FILE)
        watcher = None
        if watch is not None:
            from coalmine.audits.watching.measuring import ExposureWatch

            watcher = ExposureWatch(watch, every=watch_every, method=watch_method, seed=seed)
        trained = train(
            data,
            out=out,
            preset=preset,
            valid=valid,
            # Without any named, those that the canaries were planted with.
            fields=None if named == ("text", None, None, None) else fields_from(*named),
            watch=watcher,
            progress=output.progress(),
            seed=seed,
            **chosen,
        )
        # A training that was killed after its last file has no record of its run yet.
        if trained.trained_now or not (out / RUN_FILE).exists():
            clock.save(out, seed=seed, data_sha256=trained.record.data_sha256)
        output.say(training_summary(trained))
        output.document(
            {"model": str(trained.path), "trained_now": trained.trained_now, "training": trained.record}
        )
    return 0
