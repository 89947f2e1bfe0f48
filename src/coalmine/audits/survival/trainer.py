"""What a trainer of transformers, or one built on it, will train on: its rows, its batches in order, its tokenizer and its canaries.

TRL's SFTTrainer makes its rows of texts; it is asked again about those that hold canaries, before and after they are cut to a length.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import math
import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coalmine.corpus.files.parts import STATE_FILE, part_files
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.corpus.planting.occurrences import OccurrenceSearch
from coalmine.corpus.survival.causes import Cause, Settings
from coalmine.errors import CorpusError, InputError, MissingExtraError
from coalmine.storage.directories import work_directory

# What `datasets.load_dataset` calls the kinds of files.
_LOADERS = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".txt": "text"}  # fmt: skip
_COMPRESSED = (".gz", ".zst")
# What decides which tokens of a row reach the loss.
_SETTINGS = (
    "max_length", "truncation_mode", "packing", "packing_strategy", "padding_free", "assistant_only_loss",
)  # fmt: skip

# The columns that TRL makes of texts.
_MADE = ("input_ids", "labels", "attention_mask", "seq_lengths", "assistant_masks", "completion_mask")


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
    """How many of its rows a training reads before it ends, and the setting that ends it.

    >>> RowsRead(52, 4, "max_steps 1").unread
    48
    """

    rows: int
    read: int
    why: str

    @property
    def unread(self) -> int:
        """Rows that it ends before it has read once."""
        return max(0, self.rows - self.read)

    @property
    def warnings(self) -> list[str]:
        """A warning where a training ends before it has read every row once."""
        why = f"the training ends after {self.read:,} of {self.rows:,} rows ({self.why}), so that it may not read all copies"
        return [why] if self.unread else []


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


def dataset_of(data: Any) -> Any:
    """Rows as a `datasets.Dataset`: one that is given, a list of rows, or those of a corpus file or directory."""
    datasets = _datasets()
    if isinstance(data, datasets.Dataset):
        return data
    if isinstance(data, str | os.PathLike):
        with silent_datasets():
            return _read(Path(data))
    if isinstance(data, Sequence) and data and all(isinstance(row, Mapping) for row in data):
        return datasets.Dataset.from_list(list(data))
    raise InputError(
        f"data must be the rows that the trainer was given, as a datasets.Dataset, a list of mappings or the path of a corpus, got "
        f"{type(data).__name__}; give one of these"
    )


def _datasets() -> Any:
    try:
        import datasets
    except ImportError:
        raise MissingExtraError("reading rows as a trainer reads them", "datasets", "trl") from None
    return datasets


def _read(path: Path) -> Any:
    import datasets

    if not path.exists():
        raise CorpusError(f"there is no corpus at {path}; give the file or directory that is trained on")
    if path.is_dir() and (path / STATE_FILE).is_file():
        return datasets.load_from_disk(str(path))
    parts = part_files(path) if path.is_dir() else [path]
    name = parts[0].name
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    loader = _LOADERS.get(Path(name).suffix)
    if loader is None:
        raise CorpusError(
            f"{parts[0]} cannot be read as rows of a trainer; give {', '.join(_LOADERS)}, or a directory of these"
        )
    with work_directory() as cache:
        try:
            return datasets.load_dataset(
                loader,
                data_files=[str(part) for part in parts],
                split="train",
                cache_dir=str(cache),
                keep_in_memory=True,
                **({"sep": "\t"} if ".tsv" in name else {}),
            )
        except (datasets.exceptions.DatasetGenerationError, ValueError, OSError) as error:
            why = type(error.__cause__ or error).__name__
            raise CorpusError(
                f"{path} cannot be read as rows of a trainer ({why}); check that all rows have the same fields"
            ) from error


@contextlib.contextmanager
def silent_datasets() -> Iterator[None]:
    """No progress bars of the package datasets."""
    datasets = _datasets()
    shown = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not shown:
            datasets.enable_progress_bars()


class TextCopies:
    """The copies of canaries in the texts of rows: how many there are, and which rows hold any."""

    def __init__(self, canaries: CanarySet, rows: Any) -> None:
        names: dict[str, list[str]] = {}
        for canary in canaries:
            names.setdefault(canary.text, []).append(canary.canary_id)
        search = OccurrenceSearch([list(names)])
        self.counts = {canary.canary_id: 0 for canary in canaries}
        self.places: list[int] = []
        for place, row in enumerate(rows):
            found = [text for part in _texts(row) for _, _, text in search.longest(part.encode())]
            for text in found:
                for name in names[text]:
                    self.counts[name] += 1
            if found:
                self.places.append(place)


def _texts(value: Any) -> Iterator[str]:
    """All texts of a row, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list | tuple) and value and not isinstance(value[0], int | float):
        for one in value:
            yield from _texts(one)


class RowPreparation:
    """How a trainer makes its rows of texts, as far as it does: TRL's SFTTrainer does, and `transformers.Trainer` does not."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.args = trainer.args
        self.prepares = hasattr(trainer, "_prepare_dataset") and not getattr(
            trainer, "_skip_prepare_dataset", False
        )
        self.completion_only = bool(getattr(trainer, "completion_only_loss", False))
        self.assistant_only = bool(getattr(self.args, "assistant_only_loss", False))
        self.packs = self.prepares and bool(getattr(self.args, "packing", False))
        self.wraps = self.packs and self.args.packing_strategy == "wrapped"

    def settings(self, rows: Any) -> Settings:
        """What can remove a copy, for rows of this kind."""
        cutting: Cause = "truncation"
        if self.packs:
            cutting = "packing" if self.args.packing_strategy == "bfd" else "packing_split"
        templated = self.prepares and rows is not None and len(rows) > 0 and is_conversation(rows[0])
        return Settings(
            self.prepares and self.assistant_only,
            self.prepares and self.completion_only,
            cutting,
            self.prepares,
            templated,
        )

    def described(self) -> dict[str, Any]:
        """The settings of the trainer that decide which tokens reach the loss."""
        if not self.prepares:
            return {}
        found = {name: getattr(self.args, name) for name in _SETTINGS if hasattr(self.args, name)}
        return {**found, "completion_only_loss": self.completion_only}

    def rows(self, data: Any, *, cut: bool, completion_only: bool | None = None) -> Any:
        """What the trainer makes of rows: as they are before they are cut to a length, or after that.

        Uncut rows stay in their order, one for each row of the data.
        """
        twin = copy.copy(self._trainer)
        args = copy.copy(self.args)
        args.dataset_num_proc = None
        # The rows next to each other decide what a wrapped row holds, and for other strategies the order does not matter.
        args.shuffle_dataset = self.args.shuffle_dataset and cut and self.wraps
        if not cut:
            args.max_length = None
        if completion_only is not None:
            twin.completion_only_loss = completion_only
        with silent_datasets():
            return twin._prepare_dataset(  # noqa: SLF001 - there is no public way to ask the trainer
                data,
                twin.processing_class,
                args,
                self.packs and cut,
                getattr(twin, "_formatting_func", None),
                "survival",
            )


def is_conversation(row: Mapping[str, Any]) -> bool:
    """Whether a row holds turns, which a chat template writes."""
    return any(
        isinstance(value, list)
        and value
        and isinstance(value[0], Mapping)
        and {"role", "from"} & set(value[0])
        for value in row.values()
    )


def kept_texts(rows: Any, preparation: RowPreparation) -> Any:
    """The texts that TRL keeps beside the rows that it made of them, without the rows that it dropped; None where there are none."""
    names = getattr(rows, "column_names", None) or []
    texts = [name for name in names if name not in _MADE]
    if not preparation.prepares or preparation.packs or not texts:
        return None
    return rows.select_columns(texts)
