"""What a trainer of transformers, or one built on it, will train on: its rows, its batches in order, its tokenizer and its canaries."""

from __future__ import annotations

import contextlib
import copy
import importlib
import math
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from coalmine.corpus.planting.manifest import CanarySet
from coalmine.errors import InputError


def is_trainer(given: Any) -> bool:
    """Whether something is a trainer of transformers, or built on it."""
    return hasattr(given, "get_train_dataloader") and hasattr(given, "callback_handler")


def known_canaries(trainer: Any) -> CanarySet:
    """The canaries of the trainer's callback."""
    sets = [
        log.watch.canaries
        for one in trainer.callback_handler.callbacks
        if (log := getattr(one, "log", None)) is not None and hasattr(log, "watch")
    ]
    if len(sets) != 1:
        raise InputError(
            f"the trainer has {len(sets) or 'no'} callbacks that know canaries; give the canaries.json before the trainer"
        )
    found: CanarySet = sets[0]
    return found


def tokenizer_of(trainer: Any) -> Any:
    """The tokenizer of the trainer, or of its callback."""
    given = getattr(trainer, "processing_class", None)
    for one in trainer.callback_handler.callbacks:
        if given is None and hasattr(one, "log") and hasattr(one.log, "watch"):
            given = one.tokenizer
    if given is None:
        raise InputError("the trainer has no tokenizer; give the one that its rows were made with")
    return getattr(given, "tokenizer", given)  # of a processor


def check_rows(trainer: Any) -> None:
    """Refuse a trainer without rows, or with rows that have no end."""
    dataset = trainer.train_dataset
    if dataset is None:
        raise InputError("the trainer has no train_dataset, so there is nothing to check; give it one")
    try:
        rows = len(dataset)
    except TypeError:
        raise InputError(
            "the rows of this trainer are a stream of unknown length, which cannot be read to its end; check a trainer with the same "
            "settings and a dataset of the rows that hold the canaries"
        ) from None
    if rows == 0:
        raise InputError("the trainer has no rows left to train on; check its preprocessing and max_length")


def rows_as_they_are(trainer: Any) -> Iterable[Any] | None:
    """The rows that the trainer will train on, before its collator; None where the collator makes the tokens."""
    dataset = trainer.train_dataset
    first = dataset[0] if hasattr(dataset, "__getitem__") else None
    return dataset if isinstance(first, Mapping) and "input_ids" in first else None


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
    with _undrawn(trainer.data_collator) as own:
        dataset, collator = trainer.train_dataset, own
        # As the trainer does in its own loader.
        if hasattr(dataset, "column_names") and hasattr(dataset, "remove_columns"):
            dataset = trainer._remove_unused_columns(dataset, description="training")  # noqa: SLF001
        else:
            collator = trainer._get_collator_with_removed_columns(collator, description="training")  # noqa: SLF001
        yield from DataLoader(
            dataset, batch_size=trainer.args.per_device_train_batch_size, collate_fn=collator
        )


@contextlib.contextmanager
def _undrawn(collator: Any) -> Iterator[Any]:
    """A copy of a collator; afterwards generators that it shares with the original are in the state that they were in.

    The copy is shallow, because some collators hold the model.
    """
    states = [
        one for value in getattr(collator, "__dict__", {}).values() if (one := _state(value)) is not None
    ]
    try:
        yield copy.copy(collator)
    finally:
        for restore, state in states:
            restore(state)


def _state(value: Any) -> tuple[Any, Any] | None:
    """The state of a generator of random numbers, after what restores it; None for anything else."""
    import numpy as np
    import torch

    if isinstance(value, torch.Generator):
        return value.set_state, value.get_state()
    if isinstance(value, random.Random):
        return value.setstate, value.getstate()
    if isinstance(value, np.random.Generator):
        bits = value.bit_generator
        return lambda state: setattr(bits, "state", state), bits.state
    return None


def trainer_in_words(trainer: Any) -> str:
    """The class of a trainer, and the package that it is from."""
    kind = next(
        (one for one in type(trainer).__mro__ if one.__module__.split(".")[0] in {"trl", "transformers"}),
        None,
    )
    if kind is None:
        return type(trainer).__name__
    package = kind.__module__.split(".")[0]
    return f"{kind.__name__} of {package} {importlib.import_module(package).__version__}"


class RowsRead(NamedTuple):
    """How many of its rows a training reads before it ends, as far as its settings say."""

    rows: int
    read: int
    # The setting that ends it.
    why: str

    @property
    def unread(self) -> int:
        """Rows that it ends before it has read once."""
        return max(0, self.rows - self.read)

    @property
    def warnings(self) -> list[str]:
        """A warning where a training ends before it has read every row once.

        >>> RowsRead(52, 4, "max_steps 1").warnings
        ['the training ends after 4 of 52 rows (max_steps 1), so that it may not read all copies']
        """
        if not self.unread:
            return []
        return [
            f"the training ends after {self.read:,} of {self.rows:,} rows ({self.why}), so that it may not read all copies"
        ]


def rows_read_by(trainer: Any) -> RowsRead:
    """How many rows a training reads: with few steps, less than one epoch, or without its last batch, not all of them."""
    args, rows = trainer.args, len(trainer.train_dataset)
    batch = args.per_device_train_batch_size * args.world_size
    step = batch * args.gradient_accumulation_steps
    if args.max_steps > 0:
        return RowsRead(rows, args.max_steps * step, f"max_steps {args.max_steps:,}")
    epoch = rows // batch * batch if args.dataloader_drop_last else rows
    if args.num_train_epochs >= 1:
        return RowsRead(rows, int(epoch * args.num_train_epochs), "dataloader_drop_last")
    steps = math.ceil(args.num_train_epochs * max(1, math.ceil(epoch / step)))
    return RowsRead(rows, min(epoch, steps * step), f"num_train_epochs {args.num_train_epochs:g}")


def random_devices() -> list[Any]:
    """The devices with a random state of their own."""
    import torch

    return list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
