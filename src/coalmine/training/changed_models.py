"""Directories of models that were made from trained ones: what may be replaced there, and whether the same call has made them already."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from coalmine.errors import InputError
from coalmine.models.reference.checkpoint import CHANGES, TRAINING_FILE, ChangedModel
from coalmine.records.documents import Document, beside, read_record
from coalmine.storage.files import FileGroup, sha256_of_file

Changed = TypeVar("Changed", bound=ChangedModel)


def check_out(original: Path, folder: Path) -> None:
    """Refuse to write a changed model over the original, or over any other that was trained."""
    if folder.exists() and folder.samefile(original):
        raise InputError(f"the changed model would replace {folder} itself; write to another directory")
    if (folder / TRAINING_FILE).exists():
        raise InputError(
            f"{folder} holds a trained model, which the changed one would replace; write to another directory"
        )


def made_before(document: Document[Changed], folder: Path) -> Changed | None:
    """The record in a directory, if all files that it names are what was written."""
    path = folder / document.file
    try:
        there = document.alone(path)
    except InputError:
        return None
    whole = all(_is_unchanged(beside(path, name), sha256) for name, sha256 in there.files.items())
    return there if whole else None


def remove_earlier(folder: Path, files: dict[str, str], group: FileGroup) -> None:
    """Remove what another call wrote for a changed model and this one does not: further shards, and the record of another change."""
    for record, schema in CHANGES.items():
        path = folder / record
        if not path.is_file():
            continue
        try:
            earlier = read_record(path, ChangedModel, schema=schema, what="the model")
        except InputError:
            continue
        old = {beside(path, name): sha256 for name, sha256 in earlier.files.items() if name not in files}
        for one, sha256 in old.items():
            if _is_unchanged(one, sha256):
                group.remove(one)
        group.remove(path)


def _is_unchanged(path: Path, sha256: str) -> bool:
    return path.is_file() and sha256_of_file(path) == sha256
