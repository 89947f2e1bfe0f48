"""`coalmine train`, `serve` and `lab alter`: models that are trained, served or changed."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec

from coalmine.audits.watching.records import ExposureWatch, WatchOptions
from coalmine.cli.options import CorpusFields, Overwrite, Running, Seed
from coalmine.cli.output import print_json, write_stderr, write_stdout
from coalmine.cli.runner import RUN_FILE, Session
from coalmine.cli.taking import Argument, Arguments, Part
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.errors import InputError, SomeFailedError
from coalmine.models.loading import is_endpoint, load_model
from coalmine.models.options import LoadOptions
from coalmine.records.options import SEED, Option, named_values
from coalmine.reports.terminal import finetuning_summary, training_summary
from coalmine.serving import server as serving
from coalmine.storage.files import check_places
from coalmine.training import trainer
from coalmine.training.quantizing.options import QuantizeOptions
from coalmine.training.quantizing.quantizing import quantize
from coalmine.training.unlearning.options import UnlearnOptions
from coalmine.visible import visible


class NamedOptions(Arguments, frozen=True, kw_only=True):
    """Options of a training that have names of their own on the command line, where each preset has its defaults.

    Attributes:
        epochs: Passes over the data, at most.
        batch_size: Rows, or pairs, read side by side; with --dp-epsilon, units expected in a step.
        learning_rate: Default: one that suits the optimizer.
        device: Where it is trained: cpu (repeatable to the byte), cuda, mps, xpu or auto for any.
        lora_rank: Train LoRA adapters of this rank; 0, the default, trains all weights.
        dp_epsilon: Train privately, with as much noise as this epsilon needs (see --dp-delta).
        dp_noise: Train privately with this noise instead: its standard deviation, in units of --dp-clip.
        dp_delta: The delta of the claim; default: 1e-9.
        dp_unit: What one coin puts into a step: a document (the default), or all of a user's.
    """

    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    device: str | None = None
    lora_rank: int | None = None
    dp_epsilon: Annotated[float | None, Part(title="Private training")] = None
    dp_noise: Annotated[float | None, Part(title="Private training")] = None
    dp_delta: Annotated[float | None, Part(title="Private training")] = None
    dp_unit: Annotated[str | None, Part(title="Private training")] = None


class Train(Arguments, frozen=True, kw_only=True):
    """What `coalmine train` takes.

    Attributes:
        out: Directory for the model; of several, each has one below it, such as gru-seed2.
        preset: char-lstm (the default, the paper's), word-lstm, gru, cnn or transformer; for pairs translation (the paper's) or
            translation-attention; provenance-words, provenance-translation and provenance-dialog are the targets of the paper on
            provenance. Give several to train a model with each.
        base: The directory of a causal transformers checkpoint, which is fine-tuned instead of training a preset.
        valid: Validation corpus; without it, some documents are held out.
        watch_every: Batches between two measurements of --watch.
        training: NAME=VALUE, any other option that Python has, such as hidden=64 or dp_clip=0.5; may be given many times.
        watch: canaries.json whose exposure to record during training.
        data: A corpus, or the directory that `coalmine plant` wrote.
    """

    data: Annotated[Path, Argument()]
    out: Path
    preset: list[str] | None = None
    base: Path | None = None
    valid: Path | None = None
    seed: Annotated[
        list[int] | None,
        Option(f"{SEED.help} Give several to train a model with each; 0 by default.", least=SEED.least),
    ] = None
    columns: CorpusFields
    options: Annotated[NamedOptions, Part(title="How it is trained")]
    training: Annotated[list[str] | None, Part(title="How it is trained")] = None
    watch: Annotated[Path | None, Part(title="Watching")] = None
    watch_every: Annotated[int, Part(title="Watching")] = WatchOptions().every
    running: Running


def train(given: Train, session: Session) -> None:
    """Train a reference model until its validation loss no longer falls, or with --base fine-tune a checkpoint.

    If it is stopped by Ctrl-C or killed, run the same command again to resume; the result has the same bytes. Writes
    model.safetensors, config.json and training.json to --out. With several presets or seeds, it trains every combination, and --engine
    processes:4 trains four at a time; if one fails, the others are still finished, and the exit code is 2.

    A fine-tuning takes a fixed number of epochs, in full or with --lora-rank, and writes the model with its tokenizer, or an adapter that
    names its base, and finetuning.json. With --dp-epsilon either trains privately: no document (or user) can change the weights by more
    than noise hides, and card.md or training.json has the claim.
    """
    presets, seeds = given.preset or ["char-lstm"], given.seed or [0]
    named = {
        name: value for name, value in msgspec.structs.asdict(given.options).items() if value is not None
    }
    settings = named_values(given.training or ())
    twice = next((name for name in settings if name in named or name == "seed"), None)
    if twice is not None:
        raise InputError(f"{twice} has an option of its own; leave it out of --training")
    shared: dict[str, Any] = {
        "out": given.out,
        "valid": given.valid,
        # If none is named, the fields that the canaries were planted with.
        "fields": given.columns.fields() if given.columns.field else None,
        "progress": session.progress(),
        "engine": given.running.engine,
        **named,
        **settings,
    }
    if given.base is not None:
        if given.preset or len(seeds) > 1 or given.watch is not None:
            raise InputError(
                "--base fine-tunes one checkpoint with one seed; leave out --preset, --watch and further seeds"
            )
        from coalmine.training.finetuning.tuner import finetune

        session.into(given.out)
        tuned = finetune(given.base, given.data, seed=seeds[0], **shared)
        session.say(finetuning_summary(tuned))
        session.document(_trained("finetuning", tuned, session))
        return
    canaries = None if given.watch is None else CanarySet.load(given.watch)

    def watches(seed: int) -> Any:
        return None if canaries is None else ExposureWatch(canaries, every=given.watch_every, seed=seed)

    if len(presets) == len(seeds) == 1:
        session.into(given.out)
        one = trainer.train(given.data, preset=presets[0], seed=seeds[0], watch=watches(seeds[0]), **shared)
        session.say(training_summary(one))
        session.document(_trained("training", one, session))
        return
    for directory, _, _ in trainer.directories_of_family(given.out, presets, seeds):
        check_places(directory, RUN_FILE)
    watch = None if canaries is None else watches
    try:
        made = trainer.train_family(given.data, presets=presets, seeds=seeds, watch=watch, **shared)
    except SomeFailedError as problem:
        for one in problem.complete:
            _trained("training", one, session)
        raise
    session.say(*map(training_summary, made))
    session.document({"models": [_trained("training", one, session) for one in made]})


def _trained(kind: str, made: Any, session: Session) -> dict[str, Any]:
    """Record how a training ended; the JSON document about it."""
    # A training that was killed after its last file was written has no record of its run yet.
    if made.trained_now or not (made.path / RUN_FILE).exists():
        session.record(made.path, seed=made.record.options.seed, data_sha256=made.record.data_sha256)
    return {"model": str(made.path), "trained_now": made.trained_now, kind: made.record}


class Alter(Arguments, frozen=True, kw_only=True):
    """What `coalmine lab alter` takes.

    Attributes:
        out: Directory for the new model, and quantization.json or unlearning.json.
        forget: What to forget: a corpus, or the canaries.json or secrets.json of planted texts.
        keep: A corpus of text whose loss should stay as it is.
        model: A directory that `coalmine train` wrote, or to quantize a local transformers checkpoint.
    """

    model: Annotated[Path, Argument()]
    out: Path
    overwrite: Overwrite = False
    quantizing: Annotated[QuantizeOptions, Part(title="Quantizing")]
    forget: Annotated[Path | None, Part(title="Forgetting")] = None
    keep: Annotated[Path | None, Part(title="Forgetting")] = None
    options: Annotated[UnlearnOptions, Part(("until", "steps", "seed"), title="Forgetting")]
    columns: CorpusFields


def alter(given: Alter, session: Session) -> None:
    """Make a model with other weights: quantized, to measure what that does to its memory; or with --forget without some documents.

    Quantizing rounds weights to few different values, which are stored as plain numbers of the type that they had; only safetensors are
    read, and no code of the model is run. Forgetting, a baseline, is gradient ascent: each step raises the loss of documents that are
    still remembered, until each costs as much as the median of similar texts that were not trained on, or --steps are over. A high loss
    is not proof that nothing is left: measure the new model with `coalmine expose`, and compare it with one trained without them.
    """
    session.into(given.out)
    if given.forget is None:
        quantized = quantize(
            given.model,
            given.out,
            options=given.quantizing,
            overwrite=given.overwrite,
            progress=session.progress(),
            record=lambda made: session.record(data_sha256=made.data_sha256),
        )
        session.show(quantized, "Quantized model", given.out)
        return
    if given.quantizing != QuantizeOptions():
        raise InputError(
            "a model is either quantized or made to forget; do one after the other, each with its own --out"
        )
    from coalmine.training.unlearning.unlearning import unlearn

    forgot = unlearn(
        given.model,
        given.forget,
        given.out,
        keep=given.keep,
        options=given.columns.into(given.options),
        overwrite=given.overwrite,
        progress=session.progress(),
        record=lambda made: session.record(seed=given.options.seed, data_sha256=made.data_sha256),
    )
    session.show(forgot, "New model, which may still remember: measure it with `coalmine expose`", given.out)


class Serve(Arguments, frozen=True, kw_only=True):
    """What `coalmine serve` takes.

    Attributes:
        host: The address to listen on; one that other machines can reach needs a key.
        port: The port to listen on; 0 takes any free one.
        name: What clients call the model; default: the name of its directory.
        key_variable: The environment variable that holds the key that clients must send.
        model: The directory of a model that `coalmine train`, transformers or PEFT saved, or a .gguf file.
        batch: The most requests computed together; with 1, an answer does not depend on what else is asked.
    """

    model: Annotated[str, Argument()]
    host: str = "127.0.0.1"
    port: int = 8000
    name: str | None = None
    loading: Annotated[LoadOptions, Part(("device",), title="How the model is loaded")]
    key_variable: str | None = None
    batch: int = 32
    seed: Seed = 0


def serve(given: Serve, session: Session) -> None:
    """Serve a local model to any client that speaks OpenAI's completions, until Ctrl-C.

    The log-probabilities of prompts (`echo` with `logprobs`) are those that the audits measure. A model with a chat template answers
    chats too. Prints one line with the address
    when it is ready, and one line per request on standard error, without the request's content.
    """
    variable = given.key_variable
    key = None if variable is None else os.environ.get(variable)
    if variable is not None and not key:
        raise InputError(
            f"the environment variable {variable} is empty or not set; put the server's key there"
        )
    serving.check_installed()  # these two before a large model is loaded
    serving.check_address(given.host, given.port, key)
    if is_endpoint(given.model):
        raise InputError(f"{given.model} is already served; give the directory of a model on this machine")
    model = load_model(given.model, given.loading)
    with (
        serving.serve(
            model,
            host=given.host,
            port=given.port,
            name=given.name,
            key=key,
            seed=given.seed,
            batch=given.batch,
            log=None if session.quiet else lambda line: write_stderr(f"{visible(line)}\n"),
        ) as server,
        contextlib.suppress(KeyboardInterrupt),
    ):
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # which acts like Ctrl-C
        if session.json:
            print_json({"url": server.url, "model": given.name or model.name}, one_line=True)
        elif not session.quiet:  # at once, for a program that waits for the address
            write_stdout(
                f"Serving {visible(repr(given.name or model.name))} at {server.url}; stop it with Ctrl-C.\n"
            )
        while True:
            time.sleep(3600)
    if server.is_computing:
        # An interpreter that ends while a thread is inside torch aborts; nothing is left to be written.
        sys.stdout.flush()
        os._exit(0)
