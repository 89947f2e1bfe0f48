"""Output directories: whether something is in the way of what a command would write."""

from __future__ import annotations

from pathlib import Path

from coalmine.errors import CorpusError
from coalmine.storage.unfinished import left_unfinished


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
