"""Resume files: what a search has proven, saved while it runs, so that an interruption loses none of it."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.errors import InputError
from coalmine.storage.files import remove_file
from coalmine.storage.guarded_files import guarded_file, read_guarded

SECONDS_BETWEEN_SAVES = 10.0
Arrays = dict[str, NDArray[Any]]


class ResumeDirectory:
    """The resume files of the searches of one run, which are removed once the results of the whole run are on disk.

    Until then a run that is stopped loses nothing: neither a format that was already measured while the next one is, nor anything
    else if the results could not be written.
    """

    def __init__(self, directory: str | os.PathLike[str] | None) -> None:
        self._directory = None if directory is None else Path(directory)
        self._over: list[ResumeFile] = []

    def file(self, name: str, fingerprint: str) -> ResumeFile:
        """The resume file of one search under this name; it keeps nothing where there is no directory."""
        path = None if self._directory is None else self._directory / f"unfinished-{name}.npz"
        return ResumeFile(path, fingerprint)

    def is_over(self, search: ResumeFile) -> None:
        """Record that a search is complete."""
        self._over.append(search)

    def forget(self) -> None:
        """Remove the files of complete searches."""
        for search in self._over:
            search.remove()
        self._over.clear()


# Where a function keeps what it needs to resume: nowhere, in a directory until it returns, or until its caller removes it.
Resume = str | os.PathLike[str] | ResumeDirectory | None


class ResumeFile:
    """The state of one search; `fingerprint` identifies it, so that another search never resumes from it.

    Without a path nothing is kept. The file is private, because costs and indices show what the model remembers.
    """

    def __init__(
        self, path: Path | None, fingerprint: str, *, seconds_between_saves: float = SECONDS_BETWEEN_SAVES
    ) -> None:
        self.path, self.fingerprint = path, fingerprint
        self._seconds = seconds_between_saves
        self._saved_at = time.monotonic()

    def is_there(self) -> bool:
        """Whether the file has something of this search; one that cannot be read, or of another search, has not."""
        try:
            return self.load() is not None
        except InputError:
            return False

    def load(self) -> Arrays | None:
        """The saved state, or None where nothing was saved."""
        if self.path is None or not os.path.lexists(self.path):
            return None
        content = read_guarded(self.path, "a search that was stopped")
        with np.load(io.BytesIO(content), allow_pickle=False) as saved:
            arrays: Arrays = {name: saved[name] for name in saved.files}
        if str(arrays.pop("fingerprint")) != self.fingerprint:
            raise InputError(
                f"{self.path} belongs to another search (another model, other canaries or other options); "
                "choose another output directory, or remove it"
            )
        return arrays

    def save(self, arrays: Callable[[], Arrays], *, now: bool = False) -> None:
        """Save the state if it is time to, or `now`."""
        if self.path is None or not (now or time.monotonic() - self._saved_at >= self._seconds):
            return
        with guarded_file(self.path) as stream:
            np.savez(stream, fingerprint=np.array(self.fingerprint), **arrays())  # type: ignore[arg-type]  # the stubs take a flag here
        self._saved_at = time.monotonic()

    def remove(self) -> None:
        """Remove the file, which is no longer needed."""
        if self.path is not None:
            remove_file(self.path)
