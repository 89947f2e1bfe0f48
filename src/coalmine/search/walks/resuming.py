"""What a search has proven, kept in a file while it runs, so that nothing that stops it loses any of it."""

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
    """What the searches of one run keep in a directory, which goes when the results of the whole run are on disk.

    Until then a run that is stopped loses none of it: not the format that was measured first while the second is, and nothing at
    all where the results could not be written.
    """

    def __init__(self, directory: str | os.PathLike[str] | None) -> None:
        self._directory = None if directory is None else Path(directory)
        self._over: list[ResumeFile] = []

    def file(self, name: str, fingerprint: str) -> ResumeFile:
        """What is kept of one search under this name; nothing where there is no directory."""
        path = None if self._directory is None else self._directory / f"unfinished-{name}.npz"
        return ResumeFile(path, fingerprint)

    def is_over(self, search: ResumeFile) -> None:
        """A search has come to its end."""
        self._over.append(search)

    def forget(self) -> None:
        """Remove the files of searches that have come to their end."""
        for search in self._over:
            search.remove()
        self._over.clear()


# Where a function keeps what it needs to resume: nowhere, in a directory until it returns, or until its caller forgets it.
Resume = str | os.PathLike[str] | ResumeDirectory | None


class ResumeFile:
    """The state of one search; `fingerprint` says which, so that another search never goes on from it.

    Without a path nothing is kept. The file is private: costs and indices tell what the model remembers.
    """

    def __init__(
        self, path: Path | None, fingerprint: str, *, seconds_between_saves: float = SECONDS_BETWEEN_SAVES
    ) -> None:
        self.path, self.fingerprint = path, fingerprint
        self._seconds = seconds_between_saves
        self._saved_at = time.monotonic()

    def is_there(self) -> bool:
        """Whether something of this search was kept; a file that cannot be read, or of another search, is not of this one."""
        try:
            return self.load() is not None
        except InputError:
            return False

    def load(self) -> Arrays | None:
        """What was kept, or None where nothing was."""
        if self.path is None or not os.path.lexists(self.path):
            return None
        content = read_guarded(self.path, "a search that was stopped")
        with np.load(io.BytesIO(content), allow_pickle=False) as saved:
            arrays: Arrays = {name: saved[name] for name in saved.files}
        if str(arrays.pop("fingerprint")) != self.fingerprint:
            raise InputError(
                f"{self.path} is of another search (another model, other canaries or other options); "
                "choose another output directory, or remove it"
            )
        return arrays

    def save(self, arrays: Callable[[], Arrays], *, now: bool = False) -> None:
        """Keep the state if it is time to, or `now`."""
        if self.path is None or not (now or time.monotonic() - self._saved_at >= self._seconds):
            return
        with guarded_file(self.path) as stream:
            np.savez(stream, fingerprint=np.array(self.fingerprint), **arrays())  # type: ignore[arg-type]  # the stubs take a flag here
        self._saved_at = time.monotonic()

    def remove(self) -> None:
        """What was kept is of no use any more."""
        if self.path is not None:
            remove_file(self.path)
