"""`check_survival`: which canaries reach the loss of a training, on the trainer's own batches."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from coalmine.audits.survival.trainer import batches_of, check_rows, rows_unread, settings_of
from coalmine.corpus.planting.manifest import CanarySet, as_canary_set
from coalmine.corpus.survival import checking
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
    out: str | os.PathLike[str] | None = None,
) -> Survival:
    """Which canaries reach the loss of a training, before any training is spent.

    Given a trainer (TRL's `SFTTrainer`, or the `Trainer` of transformers), it reads the trainer's own rows through its own data collator,
    in order, and changes nothing about the training: the final weights are the same with and without it. Given batches, it reads these,
    and cannot tell what happened before.

    The result is written to `out`, by default `survival/survival.json` in the audit directory next to the trainer's output
    directory; `coalmine report` has a finding for canaries that never reach the loss.

    Args:
        canaries: the manifest of the planted corpus, or the set of canaries.
        batches: the trainer, or one epoch of examples or batches; see `coalmine.corpus.check_survival`.
        tokenizer: the tokenizer of the model; by default, that of the trainer.
        out: the file to write; it has mode 0600.

    >>> trainer = SFTTrainer(model, args, train_dataset=data)  # doctest: +SKIP
    >>> print(check_survival("planted/canaries.json", trainer))  # doctest: +SKIP
    336 of 336 copies of 48 planted canaries reach the loss (1,204 rows, 77,056 tokens, 75,852 in the loss).
    """
    if hasattr(batches, "get_train_dataloader"):
        found = survival_of(batches, canaries, tokenizer)
        if batches.is_world_process_zero():
            place = audit_directory(batches.args.output_dir, FOLDER) / SURVIVALS.file
            SURVIVALS.save((Path(out or place)).parent, found, Path(out or place).name)
        checking.warn_of_never(found)
        return found
    if tokenizer is None:
        raise InputError(
            "the survival check takes canaries and a trainer, or canaries, batches and a tokenizer"
        )
    found = checking.check_survival(canaries, batches, tokenizer)
    if out is not None:
        found.save(out)
    return found


def survival_of(
    trainer: Any, canaries: CanarySet | str | os.PathLike[str], tokenizer: Any = None
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
        counter = CopyCounter(known, tokenizer)
        for batch in batches_of(trainer):
            counter.add_batch(batch)
        survival = counter.survival()
    template, problem = _template(trainer, tokenizer, known)
    unread, warning = rows_unread(trainer)
    return msgspec.structs.replace(
        survival,
        trainer=type(trainer).__name__,
        settings=settings_of(trainer),
        warnings=[*survival.warnings, *problem, *([warning] if unread else [])],
        rows_unread=unread,
        chat_template_sha256=template,
    )


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
