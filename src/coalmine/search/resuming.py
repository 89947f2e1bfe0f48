"""What a search has proven, kept in a file while it runs, so that nothing that stops it loses any of it."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.errors import InputError
from coalmine.files import PRIVATE, remove_file, whole_file

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
        if self.path is None or not self.path.exists():
            return False
        try:
            with np.load(self.path, allow_pickle=False) as saved:
                return str(saved["fingerprint"]) == self.fingerprint
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            return False

    def load(self) -> Arrays | None:
        """What was kept, or None where nothing was."""
        if self.path is None or not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as saved:
                arrays: Arrays = {name: saved[name] for name in saved.files}
        except (OSError, ValueError, zipfile.BadZipFile) as problem:
            raise InputError(
                f"{self.path} is damaged ({problem}); remove it to start the search over"
            ) from None
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
        with whole_file(self.path, mode=PRIVATE) as temporary, open(temporary, "wb") as stream:
            np.savez(stream, fingerprint=np.array(self.fingerprint), **arrays())  # type: ignore[arg-type]  # the stubs take a flag here
        self._saved_at = time.monotonic()

    def remove(self) -> None:
        """The search is over."""
        if self.path is not None:
            remove_file(self.path)
