"""Directories of models that were made from trained ones: what may be replaced there, and whether the same call has made them already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from coalmine.corpus.outputs import exists_already, first_in_the_way, sole_writing
from coalmine.errors import InputError
from coalmine.models.reference.checkpoint import CHANGES, FINETUNING_FILE, TRAINING_FILE, ChangedModel
from coalmine.records.documents import Document, Origin, beside, read_record
from coalmine.storage.directories import UNFINISHED_FILE
from coalmine.storage.files import FileGroup, check_places, sha256_of_file, together

Changed = TypeVar("Changed", bound=ChangedModel)


def document_of_change(record: type[Changed], file: str, title: str) -> Document[Changed]:
    """The record of what a command makes of a model."""
    return Document(
        record=record,
        schema=CHANGES[file],
        file=file,
        title=title,
        by="`coalmine lab alter`",
        companions=lambda made: dict(made.files),
        # Weights are verified when they are loaded.
        verifies_companions=False,
        origin=Origin(is_measurement=False),
    )


def check_out(original: Path, folder: Path) -> None:
    """Refuse to write a changed model over the original, or over any other that was trained."""
    if folder.exists() and folder.samefile(original):
        raise InputError(f"the changed model would replace {folder} itself; write to another directory")
    if any((folder / name).exists() for name in (TRAINING_FILE, FINETUNING_FILE)):
        raise InputError(
            f"{folder} holds a trained model, which the changed one would replace; write to another directory"
        )


def write_changed(
    document: Document[Changed],
    folder: Path,
    names: Sequence[str],
    write: Callable[[FileGroup], Changed],
    is_the_same: Callable[[Changed], bool],
    *,
    overwrite: bool,
    record: Callable[[Changed], None] | None,
) -> Changed:
    """Write a changed model, whose files have these names, and its record; `is_the_same` says whether the same call wrote what is there.

    Then that is returned, and anything else in the way is refused, unless it may be overwritten. What `record` writes appears with it.
    """
    written = [*names, document.file]
    check_places(folder, *written, UNFINISHED_FILE)
    places = [] if overwrite else [folder / name for name in written]
    if (there := first_in_the_way(*places)) is not None:
        done = _made_before(document, folder)
        if done is None or not is_the_same(done):
            raise exists_already(there)
        return done
    with sole_writing(folder, written, places), together() as group:
        made = write(group)
        if record is not None:
            record(made)
    return made


def _made_before(document: Document[Changed], folder: Path) -> Changed | None:
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
