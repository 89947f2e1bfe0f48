"""`coalmine train`, `serve` and `lab alter`: models that are trained, served or changed."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any

from coalmine.audits.watching.records import ExposureWatch, WatchOptions
from coalmine.cli.options import CorpusFields, Overwrite, Running, Seed
from coalmine.cli.output import Output, print_json, write_stderr, write_stdout
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
from coalmine.training.finetuning.options import FinetuningOptions
from coalmine.training.options import TrainingOptions
from coalmine.training.private.options import PREFIX, PrivateOptions
from coalmine.training.quantizing.options import QuantizeOptions
from coalmine.training.quantizing.quantizing import quantize
from coalmine.training.unlearning.options import UnlearnOptions
from coalmine.visible import visible


class Train(Arguments, frozen=True, kw_only=True):
    """What `coalmine train` takes.

    Attributes:
        out: Directory for the model; of several, each has one below it, such as gru-seed2.
        preset: char-lstm (the default, the paper's), word-lstm, gru, cnn or transformer; for pairs translation (the paper's) or
            translation-attention; provenance-words, provenance-translation and provenance-dialog are the targets of the paper on
            provenance. Give several to train a model with each.
        base: The directory of a causal transformers checkpoint, which is fine-tuned instead of training a preset.
        valid: Validation corpus; without it, some documents are held out.
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
    options: Annotated[
        dict[str, Any],
        Part(
            ("epochs", "batch_size", "learning_rate", "device"),
            title="How it is trained",
            record=TrainingOptions,
        ),
    ]
    lora: Annotated[dict[str, Any], Part(("lora_rank",), title="How it is trained", record=FinetuningOptions)]
    training: Annotated[list[str] | None, Part(title="How it is trained")] = None
    private: Annotated[
        dict[str, Any],
        Part(
            ("epsilon", "noise", "delta", "unit"),
            title="Private training",
            prefix=PREFIX,
            record=PrivateOptions,
        ),
    ]
    watch: Annotated[Path | None, Part(title="Watching")] = None
    watching: Annotated[WatchOptions, Part(("every",), title="Watching", prefix="watch_", rest=False)]
    running: Running


def train(given: Train, session: Session) -> int:
    """Train a reference model until its validation loss no longer falls, or with --base fine-tune a checkpoint.

    If it is stopped by Ctrl-C or killed, run the same command again to resume; the result has the same bytes. Writes
    model.safetensors, config.json and training.json to --out. With several presets or seeds, it trains every combination, and --engine
    processes:4 trains four at a time; if one fails, the others are still finished, and the exit code is 2.

    A fine-tuning takes a fixed number of epochs, in full or with --lora-rank, and writes the model with its tokenizer, or an adapter that
    names its base, and finetuning.json. With --dp-epsilon either trains privately: no document (or user) can change the weights by more
    than noise hides, and card.md or training.json has the claim.
    """
    presets, seeds = given.preset or ["char-lstm"], given.seed or [0]
    named, settings = given.options | given.lora | given.private, named_values(given.training or ())
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
        return 0
    canaries = None if given.watch is None else CanarySet.load(given.watch)

    def watches(seed: int) -> Any:
        return None if canaries is None else ExposureWatch(canaries, given.watching, seed=seed)

    failure: SomeFailedError | None = None
    if len(presets) == len(seeds) == 1:
        session.into(given.out)
        made = [
            trainer.train(given.data, preset=presets[0], seed=seeds[0], watch=watches(seeds[0]), **shared)
        ]
    else:
        for directory, _, _ in trainer.directories_of_family(given.out, presets, seeds):
            check_places(directory, RUN_FILE)
        watch = None if canaries is None else watches
        try:
            made = trainer.train_family(given.data, presets=presets, seeds=seeds, watch=watch, **shared)
        except SomeFailedError as problem:
            failure, made = problem, problem.complete
    documents = [_trained("training", one, session) for one in made]
    session.say(*map(training_summary, made))
    if failure is not None:
        write_stderr(f"coalmine: {failure.shown()}\n")
    failed = {str(directory): one.shown() for directory, one in failure.failed.items()} if failure else {}
    several = {"models": documents, **({"failed": failed} if failed else {})}
    session.document(documents[0] if len(presets) == len(seeds) == 1 else several)
    return 0 if failure is None else 2


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
        print_address(server.url, given.name or model.name, session)
        while True:
            time.sleep(3600)
    if server.is_computing:
        # An interpreter that ends while a thread is inside torch aborts; nothing is left to be written.
        sys.stdout.flush()
        os._exit(0)


def print_address(url: str, name: str, output: Output) -> None:
    """Print one line at once, so that the program that started the server can read the address."""
    if output.json:
        print_json({"url": url, "model": name}, one_line=True)
    elif not output.quiet:
        write_stdout(visible(f"Serving {name!r} at {url}; stop it with Ctrl-C.") + "\n")
