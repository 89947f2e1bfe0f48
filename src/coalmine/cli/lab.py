"""`coalmine lab defend` and `survive`: the bench of defenses, and what reaches the loss of a fine-tuning."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Any

from coalmine.audits.defenses.recipes import DefenseOptions, defenses_in_words
from coalmine.audits.registry import read_runs
from coalmine.audits.survival.measure import survival_of
from coalmine.audits.survival.trainer import rehearsed, trainer_of
from coalmine.cli.options import Corpus, CorpusFields, Running, Training
from coalmine.cli.output import noted, placed
from coalmine.cli.runner import Session
from coalmine.cli.taking import Argument, Arguments, Part
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.corpus.planting.options import PlantOptions
from coalmine.corpus.survival.results import SURVIVALS
from coalmine.errors import InputError
from coalmine.models.plugins import PREFIX
from coalmine.records.options import Option, named_values
from coalmine.reports.page.html import report_page
from coalmine.storage.files import write_bytes

REPORT_FILE = "report.html"


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
        **session.work,
        record=lambda made: session.record(seed=made.settings.seed, corpus_sha256=made.corpus_sha256),
    )
    report = given.out / REPORT_FILE
    write_bytes(report, report_page(read_runs(given.out)).encode())
    session.say(shown.defenses_table(bench).terminal(bench.rows), "")
    session.say(shown.DIFFERENCES_TABLE.terminal(bench.rows[1:]), "")
    session.say(*noted(bench.failed), placed("Open the report", report))
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

    model: Annotated[str, Argument()]
    canaries: Annotated[Path, Argument()]
    data: Path | None = None
    sft: list[str] | None = None
    out: Path | None = None


def survive(given: Survive, session: Session) -> int:
    """Check before any training is spent which canaries reach the loss of TRL's SFTTrainer.

    The rows are prepared by a real SFTTrainer with your tokenizer and settings and a tiny random model, and read through its data
    collator; nothing is trained. With python:module:function, your own trainer is checked instead. Writes survival.json, readable by
    you only, from which `coalmine report` finds canaries that were never trained on. Exits with 2 if a planted canary never reaches
    the loss.
    """
    canaries = CanarySet.load(given.canaries)
    directory = given.out or (given.canaries if given.canaries.is_dir() else given.canaries.parent)
    session.into(directory, SURVIVALS.file, recorded=False)
    data = given.data or canaries.corpus_path
    if given.model.startswith(PREFIX) and (given.sft or given.data):
        raise InputError("your own trainer has its own settings and rows; leave out --sft and --data")
    if given.model.startswith(PREFIX):
        made: Any = contextlib.nullcontext(trainer_of(given.model))
    elif data is None:
        raise InputError("the canaries.json does not name a planted corpus; give the rows with --data")
    else:
        made = rehearsed(Path(given.model), data, named_values(given.sft or ()))
    with made as trainer:
        found = survival_of(trainer, canaries)
    session.say(str(found), placed("Results", SURVIVALS.save(directory, found)))
    session.document(found)
    return 2 if found.never else 0
