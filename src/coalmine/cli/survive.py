"""`coalmine survive`: do planted canaries reach the loss of a fine-tuning, and what removes the others?"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coalmine.audits.survival.options import SftSettings
from coalmine.cli.options import out_option
from coalmine.cli.output import placed
from coalmine.cli.runner import Session, command
from coalmine.cli.taking import Arguments, Changes
from coalmine.errors import InputError
from coalmine.records.options import Option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coalmine.corpus.planting.manifest import CanarySet


class Survive(Arguments, frozen=True, kw_only=True):
    """What `coalmine survive` takes."""

    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="The directory of the model that is to be fine-tuned, of which only the tokenizer is read; or "
            "python:module:function, which runs that function to make your own trainer.",
        ),
    ]
    canaries: Annotated[
        Path, typer.Argument(help="The canaries.json that `coalmine plant` wrote, or its directory.")
    ]
    data: Annotated[
        Path | None, Option("The rows that are trained on; default: the planted corpus beside CANARIES.")
    ] = None
    sft: Annotated[dict[str, Any], Changes(SftSettings)]
    settings: Annotated[
        Path | None,
        Option("A JSON or YAML file of the arguments of an SFTConfig; options given here replace them."),
    ] = None
    out: Annotated[
        Path | None, out_option("Directory for survival.json; default: that of the canaries.json.")
    ] = None


@command("survive")
def survive(given: Survive, session: Session) -> int:
    """Check before any training is spent which canaries reach the loss of TRL's SFTTrainer, and what removes the others.

    The rows are prepared by a real SFTTrainer with your tokenizer and settings and a tiny random model, and read through its data
    collator; nothing is trained. With python:module:function, your own trainer is checked instead. Writes survival.json, readable by
    you only, from which `coalmine report` finds canaries that were never trained on. Exits with 2 if a planted canary never reaches
    the loss.
    """
    from coalmine.audits.survival.measuring import survival_of
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
    from coalmine.audits.survival.rehearsal import read_settings, rehearsed, trainer_of
    from coalmine.models.plugins import PREFIX

    if given.model.startswith(PREFIX):
        if given.sft or given.settings is not None:
            raise InputError(
                f"{given.model} makes a trainer with settings of its own; leave out --settings and the options of an SFTTrainer"
            )
        yield trainer_of(given.model)
        return
    data = given.data or canaries.corpus_path
    if data is None:
        raise InputError("the canaries.json does not name a planted corpus; give the rows with --data")
    settings = {} if given.settings is None else read_settings(given.settings)
    with rehearsed(Path(given.model), data, {**settings, **given.sft}) as trainer:
        yield trainer
