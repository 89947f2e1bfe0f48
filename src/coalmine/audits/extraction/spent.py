"""Searches that spent their budget: what they have proven is kept beside the result, so that a larger budget resumes from it."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from coalmine.engines.units import Arrays
from coalmine.errors import InputError
from coalmine.formats.format import Format
from coalmine.storage.files import to_json
from coalmine.storage.guarded_files import guarded_file, read_guarded

# The files, as a regular expression of their names.
SPENT_FILES = r"unfinished-extraction-[0-9a-f]+\.npz"


class SpentSearch:
    """The search of one format in a directory, if one was left there; `facts` say which search it is, and another one is rejected.

    Without a directory nothing is kept. The file is private, because costs and indices show what the model remembers.
    """

    def __init__(self, directory: Path | None, secret: Format, given: str, facts: Any) -> None:
        # Formats of secrets that are already there differ in their words alone, which hold the context.
        told_by = "\0".join([secret.template, given, *(secret.words or ())])
        name = hashlib.sha256(told_by.encode()).hexdigest()[:8]
        self.path = None if directory is None else directory / f"unfinished-extraction-{name}.npz"
        self._fingerprint = hashlib.sha256(to_json(facts)).hexdigest()

    def load(self) -> Arrays | None:
        """What the search had proven, or None where nothing was left."""
        if self.path is None or not os.path.lexists(self.path):
            return None
        content = read_guarded(self.path, "a search that was stopped")
        with np.load(io.BytesIO(content), allow_pickle=False) as saved:
            arrays: Arrays = {name: saved[name] for name in saved.files}
        if str(arrays.pop("fingerprint")) != self._fingerprint:
            raise InputError(
                f"{self.path} belongs to another search (another model or other options); choose another output directory, or remove it"
            )
        return arrays

    def save(self, arrays: Arrays) -> None:
        """Keep what the search has proven."""
        if self.path is not None:
            with guarded_file(self.path) as stream:
                np.savez(stream, fingerprint=np.array(self._fingerprint), **arrays)  # type: ignore[arg-type]  # the stubs take a flag here
