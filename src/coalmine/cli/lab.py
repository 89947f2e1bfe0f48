"""`coalmine lab alter`, `defend` and `survive`: altered models, the bench of defenses, and what reaches a fine-tuning."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from coalmine.audits.defenses.recipes import DefenseOptions, defenses_in_words
from coalmine.cli.options import Corpus, CorpusFields, Overwrite, Running, Training
from coalmine.cli.output import noted, placed
from coalmine.cli.runner import Session
from coalmine.cli.taking import Arguments, Part
from coalmine.corpus.planting.options import PlantOptions
from coalmine.errors import InputError
from coalmine.records.options import Option, named_values
from coalmine.training.quantizing.options import QuantizeOptions
from coalmine.training.unlearning.options import UnlearnOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coalmine.corpus.planting.manifest import CanarySet
    from coalmine.training.quantizing.record import Quantization
    from coalmine.training.unlearning.record import Unlearning

REPORT_FILE = "report.html"


class Alter(Arguments, frozen=True, kw_only=True):
    """What `coalmine lab alter` takes.

    Attributes:
        out: Directory for the new model, and quantization.json or unlearning.json.
        forget: What to forget: a corpus, or the canaries.json or secrets.json of planted texts.
        keep: A corpus of text whose loss should stay as it is.
        model: A directory that `coalmine train` wrote, or to quantize a local transformers checkpoint.
    """

    model: Annotated[Path, typer.Argument()]
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
    from coalmine.training.quantizing.quantizing import quantize
    from coalmine.training.unlearning.unlearning import unlearn

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
        session.say(_rounded(quantized, given.out))
        session.document(quantized)
        return
    if given.quantizing != QuantizeOptions():
        raise InputError(
            "a model is either quantized or made to forget; do one after the other, each with its own --out"
        )
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
    session.say(_forgotten(forgot, given.out))
    session.document(forgot)


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


class Defend(Arguments, frozen=True, kw_only=True):
    """What `coalmine lab defend` takes.

    Attributes:
        out: Directory for the results, the models and the report.
        format: The format of the canaries; default: the random number is {digits:6}.
        preset: How models are trained; `coalmine train` lists the presets.
        base: The directory of a transformers checkpoint, which is fine-tuned instead of training a preset.
    """

    corpus: Corpus
    out: Path
    defense: Annotated[
        list[str] | None,
        Option(
            f"One of {defenses_in_words()}, or NAME=python:module:function for a training of yours; may be given many times. "
            "`none` is always compared with."
        ),
    ] = None
    format: str | None = None
    options: Annotated[DefenseOptions, Part(("seeds", "method", "seed"), title="How they are compared")]
    planting: Annotated[
        PlantOptions,
        Part(("repeat", "canaries", "references", "withhold"), title="What is planted", rest=False),
    ]
    preset: str = "char-lstm"
    base: Path | None = None
    training: Training = None
    columns: CorpusFields
    running: Running


def defend(given: Defend, session: Session) -> None:
    """Train models with and without defenses on a planted corpus, audit all of them alike, and compare what each stops and costs.

    Writes DIR/defenses.json and DIR/report.html, the planted corpus to DIR/planted, and each model with its audit beside it to
    DIR/trainings. Run the same command again to resume a run that was stopped, or with further defenses to add them.
    """
    from coalmine.audits.defenses import report as shown
    from coalmine.audits.defenses.measure import DEFAULT_FORMAT, defend
    from coalmine.audits.runs import read_runs
    from coalmine.reports.page.html import report_page
    from coalmine.storage.files import write_bytes

    session.into(given.out, REPORT_FILE)
    bench = defend(
        given.corpus,
        given.out,
        given.defense or (),
        given.columns.into(given.options),
        format=given.format or DEFAULT_FORMAT,
        planting=given.planting,
        preset=given.preset,
        base=given.base,
        training=named_values(given.training or ()),
        engine=session.engine,
        progress=session.progress(),
        record=lambda made: session.record(seed=made.settings.seed, corpus_sha256=made.corpus_sha256),
    )
    report = given.out / REPORT_FILE
    write_bytes(report, report_page(read_runs(given.out)).encode())
    session.say(shown.defenses_table(bench).terminal(bench.rows), "")
    session.say(shown.DIFFERENCES_TABLE.terminal(bench.rows[1:]), "")
    missing = [f"{row.defense.name}, {why}" for row in bench.rows for why in row.missing]
    session.say(*noted(missing), placed("Open the report", report))
    session.document(bench)


class Survive(Arguments, frozen=True, kw_only=True):
    """What `coalmine lab survive` takes.

    Attributes:
        data: The rows that are trained on; default: the planted corpus beside CANARIES.
        sft: NAME=VALUE, an argument of TRL's SFTConfig, such as max_length=512 or assistant_only_loss=true; may be given many times.
        out: Directory for survival.json; default: that of the canaries.json.
        model: The directory of the model that is to be fine-tuned, of which only the tokenizer is read; or python:module:function, which
            runs that function to make your own trainer.
        canaries: The canaries.json that `coalmine plant` wrote, or its directory.
    """

    model: Annotated[str, typer.Argument(metavar="MODEL")]
    canaries: Annotated[Path, typer.Argument()]
    data: Path | None = None
    sft: list[str] | None = None
    out: Path | None = None


def survive(given: Survive, session: Session) -> int:
    """Check before any training is spent which canaries reach the loss of TRL's SFTTrainer, and what removes the others.

    The rows are prepared by a real SFTTrainer with your tokenizer and settings and a tiny random model, and read through its data
    collator; nothing is trained. With python:module:function, your own trainer is checked instead. Writes survival.json, readable by
    you only, from which `coalmine report` finds canaries that were never trained on. Exits with 2 if a planted canary never reaches
    the loss.
    """
    from coalmine.audits.survival.measure import survival_of
    from coalmine.corpus.planting.manifest import CanarySet
    from coalmine.corpus.survival.results import SURVIVALS

    canaries = CanarySet.load(given.canaries)
    directory = given.out or (given.canaries if given.canaries.is_dir() else given.canaries.parent)
    session.into(directory, SURVIVALS.file, recorded=False)
    with _trainer(given, canaries) as trainer:
        found = survival_of(trainer, canaries, data=given.data)
    session.say(str(found), placed("Results", SURVIVALS.save(directory, found)))
    session.document(found)
    return 2 if found.never else 0


@contextlib.contextmanager
def _trainer(given: Survive, canaries: CanarySet) -> Iterator[Any]:
    """The user's own trainer, or one that is made from the settings."""
    from coalmine.audits.survival.trainer import rehearsed, trainer_of
    from coalmine.models.plugins import PREFIX

    if given.model.startswith(PREFIX):
        if given.sft:
            raise InputError(f"{given.model} makes a trainer with settings of its own; leave out --sft")
        yield trainer_of(given.model)
        return
    data = given.data or canaries.corpus_path
    if data is None:
        raise InputError("the canaries.json does not name a planted corpus; give the rows with --data")
    with rehearsed(Path(given.model), data, named_values(given.sft or ())) as trainer:
        yield trainer
