"""`check_survival`: which canaries reach the loss of a training, on the trainer's own batches, and what removed the others."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from coalmine.audits.survival.trainer import (
    RowPreparation,
    TextCopies,
    batches_of,
    check_rows,
    dataset_of,
    rows_as_they_are,
    rows_unread,
)
from coalmine.corpus.planting.manifest import CanarySet, as_canary_set
from coalmine.corpus.survival import checking
from coalmine.corpus.survival.causes import LossTally, Settings, Stages, removed
from coalmine.corpus.survival.counting import CopyCounter
from coalmine.corpus.survival.results import SURVIVALS, Survival
from coalmine.errors import InputError
from coalmine.evidence.directories import audit_directory
from coalmine.models.transformers.chat import rendered_chat, template_of, template_sha256
from coalmine.training.undisturbed import undisturbed_draws

# The folder in the audit directory.
FOLDER = "survival"


def check_survival(
    canaries: CanarySet | str | os.PathLike[str],
    batches: Any,
    tokenizer: Any = None,
    *,
    data: Any = None,
    out: str | os.PathLike[str] | None = None,
) -> Survival:
    """Which canaries reach the loss of a training, and what removed the others, before any training is spent.

    Given a trainer (TRL's `SFTTrainer`, or the `Trainer` of transformers), it reads the trainer's own rows through its own data collator,
    in order, and changes nothing about the training: the final weights are the same with and without it. Given batches, it reads these,
    and cannot tell what happened before.

    What removed a copy is told by evidence: TRL prepares the rows that hold canaries once more, without cutting them to a length and with
    it. The result is written to `out`, by default `survival/survival.json` in the audit directory next to the trainer's output
    directory; `coalmine report` has a finding for canaries that never reach the loss.

    Args:
        canaries: the manifest of the planted corpus, or the set of canaries.
        batches: the trainer, or one epoch of examples or batches; see `coalmine.corpus.check_survival`.
        tokenizer: the tokenizer of the model; by default, that of the trainer.
        data: the rows that the trainer was given: a `datasets.Dataset`, a list, or the path of a corpus. By default, the planted corpus
            beside the manifest, or else the texts that the trainer keeps beside its rows.
        out: the file to write; it has mode 0600.

    >>> trainer = SFTTrainer(model, args, train_dataset=data)  # doctest: +SKIP
    >>> print(check_survival("planted/canaries.json", trainer))  # doctest: +SKIP
    336 of 336 copies of 48 planted canaries reach the loss (1,204 rows, 77,056 tokens, 75,852 in the loss).
    """
    if hasattr(batches, "get_train_dataloader"):
        found = survival_of(batches, canaries, tokenizer, data=data)
        if batches.is_world_process_zero():
            place = audit_directory(batches.args.output_dir, FOLDER) / SURVIVALS.file
            SURVIVALS.save((Path(out or place)).parent, found, Path(out or place).name)
        checking.warn_of_never(found)
        return found
    if tokenizer is None or data is not None:
        raise InputError(
            "the survival check takes canaries and a trainer, or canaries, batches and a tokenizer"
        )
    found = checking.check_survival(canaries, batches, tokenizer)
    if out is not None:
        found.save(out)
    return found


def survival_of(
    trainer: Any, canaries: CanarySet | str | os.PathLike[str], tokenizer: Any = None, *, data: Any = None
) -> Survival:
    """What `check_survival` finds on a trainer's own batches; nothing is written."""
    import torch

    known = as_canary_set(canaries)
    tokenizer = getattr(trainer, "processing_class", None) if tokenizer is None else tokenizer
    if tokenizer is None:
        raise InputError("the trainer has no tokenizer; give the one that its rows were made with")
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)  # of a processor
    check_rows(trainer)
    with undisturbed_draws(range(torch.cuda.device_count())):
        counter, preparation = CopyCounter(known, tokenizer), RowPreparation(trainer)
        rows = rows_as_they_are(trainer)
        as_they_are = None if rows is None else _counted(counter, rows)
        settings, stages = _followed(counter, preparation, trainer, known, data)
        collated = _counted(counter, batches_of(trainer))
        survival = counter.survival()
    stages |= {"found": collated if as_they_are is None else as_they_are, "collated": collated}
    told = []
    for entry in survival.canaries:
        way = Stages(entry.repetitions, **{name: one[entry.canary_id] for name, one in stages.items()})
        told.append(msgspec.structs.replace(entry, removed=removed(way, settings)))
    template, problem = _template(trainer, tokenizer, known)
    unread, warning = rows_unread(trainer)
    return msgspec.structs.replace(
        survival,
        canaries=told,
        trainer=type(trainer).__name__,
        settings=preparation.described(),
        warnings=[*survival.warnings, *problem, *([warning] if unread else [])],
        rows_unread=unread,
        chat_template_sha256=template,
    )


# The copies of each canary at the stages that something is known about, by the names of `Stages`.
_Known = dict[str, Mapping[str, Any]]


def _followed(
    counter: CopyCounter, preparation: RowPreparation, trainer: Any, canaries: CanarySet, data: Any
) -> tuple[Settings, _Known]:
    """Follow the copies from the texts to the trainer's rows: those that it keeps beside them, or else those of the data."""
    given: Any = canaries.corpus_path if data is None else data
    texts: Any = None if given is None or (data is None and not given.exists()) else dataset_of(given)
    kept = preparation.kept_texts(trainer.train_dataset)
    copies = None if texts is None else TextCopies(canaries, texts)
    settings = preparation.settings(texts if kept is None else kept)
    known: _Known = {} if copies is None else {"in_data": copies.counts}
    if not preparation.prepares:
        return settings, known
    if copies is not None and copies.places:
        try:
            known |= _prepared(counter, preparation, texts, copies)
            if kept is not None:
                left = preparation.rows(texts.select(copies.places), cut=True)
                still = TextCopies(canaries, preparation.kept_texts(left) or ()).counts
                known["dropped"] = {name: copies.counts[name] - still[name] for name in still}
        except Exception:  # noqa: BLE001 - the trainer was given other rows than these, and its code may raise anything
            if data is not None:
                raise InputError(
                    "the trainer cannot prepare the rows that were given as data, so they are not what it was given; give those"
                ) from None
            # Its rows were made of these data in another way.
            del known["in_data"]
    if kept is not None:
        own = TextCopies(canaries, kept)
        with contextlib.suppress(Exception):  # another version of TRL, which cannot be asked in this way
            known |= {**_prepared(counter, preparation, kept, own), "kept": own.counts}
    return settings, known


def _prepared(counter: CopyCounter, preparation: RowPreparation, texts: Any, copies: TextCopies) -> _Known:
    """What the trainer makes of the rows that hold canaries."""
    if not copies.places:
        nothing = dict.fromkeys(copies.counts, LossTally())
        return {"uncut": nothing, "cut": nothing}
    some = texts.select(copies.places)
    uncut = _counted(counter, preparation.rows(some, cut=False))
    return {
        "uncut": uncut,
        "cut": _counted(counter, preparation.rows(texts if preparation.wraps else some, cut=True)),
    }


def _counted(counter: CopyCounter, rows: Iterable[Any]) -> dict[str, LossTally]:
    """The copies in rows."""
    counter.fresh()
    for row in rows:
        counter.add_batch(_with_positions(row))
    return counter.tallies()


def _with_positions(row: Any) -> Any:
    """A packed row with the positions of its tokens, which begin at 0 with each of its sequences."""
    if not isinstance(row, Mapping) or row.get("seq_lengths") is None:
        return row
    return {**row, "position_ids": [at for length in row["seq_lengths"] for at in range(length)]}


def _template(trainer: Any, tokenizer: Any, canaries: CanarySet) -> tuple[str | UnsetType, list[str]]:
    """The hash of the template that canaries are written with, and a warning where it is not the tokenizer's own."""
    if canaries.frame is None:
        return UNSET, []
    swapped = getattr(trainer, "chat_template", None)
    if isinstance(swapped, str) and swapped != template_of(tokenizer):
        other = copy.copy(tokenizer)
        other.chat_template = swapped
        conversations = [canaries.frame.conversation(one.text) for one in canaries]
        if any(rendered_chat(other, one) != rendered_chat(tokenizer, one) for one in conversations):
            warning = (
                "the trainer writes these conversations with a chat template of its own, and differently from the tokenizer's; save the "
                "tokenizer with that template, or an audit scores other texts than training saw"
            )
            return template_sha256(other), [warning]
    return template_sha256(tokenizer), []
