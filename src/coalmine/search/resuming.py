"""What a search has proven, kept in a file while it runs, so that nothing that stops it loses any of it."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.errors import InputError
from coalmine.files import remove_file
from coalmine.guarded_files import guarded_file, read_guarded

SECONDS_BETWEEN_SAVES = 10.0
Arrays = dict[str, NDArray[Any]]


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
        if self.path is None or not self.path.exists():
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
        """The search is over."""
        if self.path is not None:
            remove_file(self.path)
