"""Output directories: whether something is in the way of what a command would write, and writing there alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from coalmine.errors import CorpusError
from coalmine.storage.directories import left_unfinished, noted_as_unfinished, sole_use


def first_in_the_way(*paths: Path) -> Path | None:
    """The first of these that exists and was not left by a run that was killed."""
    return next(
        (path for path in paths if path.exists() and path.name not in left_unfinished(path.parent)), None
    )


def exists_already(path: Path) -> CorpusError:
    """The error for a place that holds something else."""
    return CorpusError(
        f"{path} exists already; write to another directory, or allow it to be replaced with overwrite"
    )


@contextlib.contextmanager
def sole_writing(folder: Path, names: Sequence[str], free: Sequence[Path]) -> Iterator[None]:
    """Let no other process write to a directory, and note these names as unfinished; a CorpusError unless the `free` places are."""
    with sole_use(folder):
        blocked = first_in_the_way(*free)
        if blocked is not None:
            raise exists_already(blocked)  # which another process has made meanwhile
        with noted_as_unfinished(folder, names):
            yield
