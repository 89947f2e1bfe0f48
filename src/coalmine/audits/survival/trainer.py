"""What a trainer of transformers, or one built on it, will train on: its batches in order; and one made for a rehearsal."""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import random
import traceback
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from coalmine.corpus.files.parts import STATE_FILE, part_files
from coalmine.errors import CorpusError, InputError, MissingExtraError, ModelError
from coalmine.models.offline import offline
from coalmine.models.plugins import named_function
from coalmine.models.transformers.libraries import quiet
from coalmine.models.transformers.model_files import has_tokenizer
from coalmine.storage.directories import work_directory
from coalmine.storage.files import check_ordinary

# What `datasets.load_dataset` calls the kinds of files.
_LOADERS = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".txt": "text"}  # fmt: skip
# What decides which tokens of a row reach the loss.
_SETTINGS = (
    "max_length", "truncation_mode", "packing", "packing_strategy", "padding_free", "assistant_only_loss",
)  # fmt: skip
# The fields of rows that TRL reads by themselves, and those of them that can hold turns, which a chat template writes.
_CHATS = ("messages", "conversations", "prompt")
_READ = (*_CHATS, "input_ids")


def check_rows(trainer: Any) -> None:
    """Refuse a trainer without rows, or with rows that have no end."""
    try:
        rows = len(trainer.train_dataset)
    except TypeError:
        rows = 0
    if rows == 0:
        raise InputError(
            "the trainer has no rows that can be read to their end; give it a train_dataset with those that hold the canaries, not a stream"
        )


def batches_of(trainer: Any) -> Iterator[Any]:
    """One epoch of the trainer's batches, in the order of its rows."""
    from torch.utils.data import DataLoader
    from transformers import Trainer

    if type(trainer).get_train_dataloader is not Trainer.get_train_dataloader:
        # Somebody's own loader, which alone knows what it yields.
        loaders = list(trainer.accelerator._dataloaders)  # noqa: SLF001 - which a training would keep, with their state
        try:
            yield from trainer.get_train_dataloader()
        finally:
            trainer.accelerator._dataloaders[:] = loaders  # noqa: SLF001 - as above
        return
    dataset, collator = trainer.train_dataset, _copied(trainer.data_collator)
    # As the trainer does in its own loader.
    if hasattr(dataset, "column_names") and hasattr(dataset, "remove_columns"):
        dataset = trainer._remove_unused_columns(dataset, description="training")  # noqa: SLF001
    else:
        collator = trainer._get_collator_with_removed_columns(collator, description="training")  # noqa: SLF001
    yield from DataLoader(dataset, batch_size=trainer.args.per_device_train_batch_size, collate_fn=collator)


def _copied(collator: Any) -> Any:
    """A copy of a collator that draws from generators of its own; shallow, because some collators hold the model."""
    import numpy as np
    import torch

    own = copy.copy(collator)
    for name, value in getattr(own, "__dict__", {}).items():
        if isinstance(value, torch.Generator):
            setattr(own, name, value.clone_state())
        elif isinstance(value, random.Random | np.random.Generator):
            setattr(own, name, copy.deepcopy(value))
    return own


def rows_unread(trainer: Any) -> tuple[int, str]:
    """How many rows a training with few steps, less than one epoch, or without its last batch leaves unread, and a warning of that."""
    args, rows = trainer.args, len(trainer.train_dataset)
    batch = args.per_device_train_batch_size * args.world_size
    step = batch * args.gradient_accumulation_steps
    epoch = rows // batch * batch if args.dataloader_drop_last else rows
    steps = math.ceil(args.num_train_epochs * max(1, math.ceil(epoch / step)))
    if args.max_steps > 0:
        read = args.max_steps * step
    else:
        read = int(epoch * args.num_train_epochs) if args.num_train_epochs >= 1 else min(epoch, steps * step)
    warning = f"the training ends after {read:,} of {rows:,} rows, so that it may not read all copies"
    return max(0, rows - read), warning


def _rows_of(path: Path) -> Any:
    """The rows of a corpus file or directory, as a `datasets.Dataset`."""
    import datasets

    if not path.exists():
        raise CorpusError(f"there is no corpus at {path}; give the file or directory that is trained on")
    if path.is_dir() and (path / STATE_FILE).is_file():
        return datasets.load_from_disk(str(path))
    parts = part_files(path) if path.is_dir() else [path]
    ending = next((ending for ending in parts[0].suffixes if ending in _LOADERS), None)
    if ending is None:
        raise CorpusError(
            f"{parts[0]} cannot be read as rows of a trainer; give {', '.join(_LOADERS)}, or a directory of these"
        )
    with work_directory() as cache:
        try:
            return datasets.load_dataset(
                _LOADERS[ending],
                data_files=[str(part) for part in parts],
                split="train",
                cache_dir=str(cache),
                keep_in_memory=True,
                **({"sep": "\t"} if ending == ".tsv" else {}),
            )
        except (datasets.exceptions.DatasetGenerationError, ValueError, OSError) as error:
            raise CorpusError(
                f"{path} cannot be read as rows of a trainer ({type(error.__cause__ or error).__name__}); check that all rows have the "
                "same fields"
            ) from error


def settings_of(trainer: Any) -> dict[str, Any]:
    """The settings of an SFTTrainer that decide which tokens reach the loss; none of a trainer that makes no rows of texts."""
    if not hasattr(trainer, "_prepare_dataset"):
        return {}
    found = {name: getattr(trainer.args, name) for name in _SETTINGS if hasattr(trainer.args, name)}
    return {**found, "completion_only_loss": bool(getattr(trainer, "completion_only_loss", False))}


# A rehearsal


def trainer_of(where: str) -> Any:
    """The trainer that the user's function `python:module:function` makes; this runs that code."""
    with _quietly():
        made = named_function(where)()
    if not hasattr(made, "get_train_dataloader"):
        raise ModelError(
            f"{where} returned {type(made).__name__}, which is not a trainer; return the SFTTrainer or Trainer that you would train"
        )
    return made


@contextlib.contextmanager
def rehearsed(directory: Path, data: Path, settings: Mapping[str, Any]) -> Iterator[Any]:
    """An SFTTrainer that has prepared rows for training, with a tiny random model; its output directory is a temporary one.

    `directory` is that of the model that is to be fine-tuned, of which the tokenizer is enough; `settings` are arguments of an SFTConfig.
    """
    check_ordinary(settings.get("chat_template_path") or directory)
    if not directory.is_dir() or not has_tokenizer(directory):
        raise ModelError(
            f"{directory} is not the directory of a model with its tokenizer; give that of the model that is to be fine-tuned, or "
            "python:module:function that makes your trainer"
        )
    if find_spec("trl") is None:  # before what needs torch is imported
        raise MissingExtraError("a rehearsal of an SFTTrainer", "trl", "trl")
    from coalmine.models.transformers.pretrained import load_tokenizer

    with _quietly(), work_directory() as out:
        import trl

        its_own: Any = trl  # untyped
        tokenizer, rows = load_tokenizer(directory), _rows_of(data)
        _check(rows, tokenizer, settings, directory)
        chosen = {**settings, "max_length": settings.get("max_length", 1024) or None}
        with offline(), _in_one_sentence():
            arguments = its_own.SFTConfig(
                str(out), report_to=[], use_cpu=True, bf16=False, gradient_checkpointing=False, dataloader_pin_memory=False, **chosen
            )  # fmt: skip
            trainer = its_own.SFTTrainer(
                _stand_in(tokenizer), arguments, train_dataset=rows, processing_class=tokenizer
            )
        yield trainer


def _stand_in(tokenizer: Any) -> Any:
    """A model of the tokenizer's vocabulary, which is never trained."""
    import transformers

    its_own: Any = transformers  # untyped
    return its_own.LlamaForCausalLM(
        its_own.LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1
        )
    )  # fmt: skip


def _check(rows: Any, tokenizer: Any, settings: Mapping[str, Any], directory: Path) -> None:
    """Refuse what TRL would refuse, in one sentence each."""
    if not {settings.get("dataset_text_field", "text"), *_READ} & set(rows.column_names):
        raise InputError(
            f"TRL does not read rows with the fields {', '.join(sorted(rows.column_names)[:6])}; convert them to messages, or to prompt "
            "and completion, name the field of the text as dataset_text_field, or give python:module:function that makes your trainer"
        )
    turns = len(rows) > 0 and any(isinstance(rows[0].get(name), list) for name in _CHATS)
    if turns and not (tokenizer.chat_template or settings.get("chat_template_path")):
        raise ModelError(
            f"the rows are conversations, and the tokenizer of {directory} has no chat template to write them with; save it with its "
            "template (chat_template.jinja), or name chat_template_path"
        )


@contextlib.contextmanager
def _in_one_sentence() -> Iterator[None]:
    """Turn what TRL raises into one sentence; words of other code are left out, because they may quote the rows."""
    try:
        yield
    except Exception as problem:
        last = traceback.extract_tb(problem.__traceback__)[-1].filename
        own = isinstance(problem, ValueError | RuntimeError | TypeError) and "trl" in Path(last).parts
        said = " ".join(str(problem).split()).split(". ")[0].rstrip(".") if own else type(problem).__name__
        raise ModelError(f"TRL refuses these rows or settings ({said}); change them") from problem


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Nothing of what TRL and the libraries below it would print: it may quote rows."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    datasets: Any = None if find_spec("datasets") is None else import_module("datasets")
    shown = datasets is not None and not datasets.are_progress_bars_disabled()
    try:
        if shown:
            datasets.disable_progress_bars()
        with quiet():
            yield
    finally:
        if shown:
            datasets.enable_progress_bars()
        logging.disable(before)
