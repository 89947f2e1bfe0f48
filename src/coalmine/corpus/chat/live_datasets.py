"""Live `datasets.Dataset` objects: saved to a directory to plant in, and loaded from one to train on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coalmine.corpus.files.parts import STATE_FILE
from coalmine.errors import CorpusError, InputError, MissingExtraError
from coalmine.storage.directories import work_directory


@contextlib.contextmanager
def saved_dataset(dataset: Any) -> Iterator[Path]:
    """A directory that holds a dataset for as long as it is used, readable by its owner only."""
    if not hasattr(dataset, "save_to_disk") or not hasattr(dataset, "features"):
        raise InputError(
            f"a corpus is the path of a file or directory, or a datasets.Dataset, got {type(dataset).__name__}; give one of these, such as "
            "one split of a DatasetDict"
        )
    with work_directory() as folder:
        directory = folder / "dataset"
        dataset.save_to_disk(directory)
        yield directory


def loaded_dataset(directory: Path) -> Any:
    """The dataset that a directory holds."""
    if not (directory / STATE_FILE).is_file():
        raise CorpusError(
            f"{directory} is not a saved dataset, because what was planted in was none; read it with datasets.load_dataset instead"
        )
    try:
        from datasets import load_from_disk
    except ImportError:
        raise MissingExtraError("loading a dataset", "datasets", "datasets") from None
    return load_from_disk(str(directory))
