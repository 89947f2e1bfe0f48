"""Directories that one process writes to at a time, temporary ones too; what a killed process left in them is recognized."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from coalmine.errors import InputError, UnflushedError
from coalmine.storage.decoding import UndecodableError, decode_json
from coalmine.storage.files import (
    PRIVATE,
    locked,
    make_directory,
    remove_abandoned,
    remove_file,
    work_name,
    write_json,
)

UNFINISHED_FILE = "unfinished.json"
_RESUMED_FROM = re.compile(r"unfinished(-.*\.npz|\.units)")
SCHEMA = "coalmine.unfinished/1"


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    """The files in a directory that belong to a run that has not finished."""

    schema: str = SCHEMA
    files: tuple[str, ...]


def is_resumed_from(name: str) -> bool:
    """Whether this is the name of a file that a stopped command resumes from.

    >>> is_resumed_from("unfinished.units"), is_resumed_from("scores.parquet")
    (True, False)
    """
    return _RESUMED_FROM.fullmatch(name) is not None


@contextlib.contextmanager
def sole_use(directory: str | os.PathLike[str]) -> Iterator[Path]:
    """Make a directory and lock it; an InputError if another process writes to it.

    The lock is on the directory itself, so nothing is left when the process is killed. A file system without locks keeps nobody out.
    """
    path = make_directory(directory)
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # of a directory without permission to read it
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            held.callback(os.close, descriptor)
            if not locked(descriptor):
                raise InputError(
                    f"another process is writing to {path}; wait until it has finished, or choose another directory"
                )
        yield path


@contextlib.contextmanager
def work_directory(parent: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """A private directory in `parent`, or where temporary files are, for the block; what killed processes left is removed too."""
    place = Path(tempfile.gettempdir() if parent is None else parent)
    remove_abandoned(place)
    path = place / f".work.{work_name(4)}"  # short, because names of sockets below it may not be long
    path.mkdir(mode=0o700)
    with contextlib.ExitStack() as held:
        held.callback(shutil.rmtree, path, ignore_errors=True)  # an error of the block is the one to report
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        held.callback(os.close, descriptor)
        locked(descriptor)
        yield path


def left_unfinished(directory: Path) -> frozenset[str]:
    """The names of files that a killed run left in a directory; the next run may replace them without `overwrite`."""
    path = directory / UNFINISHED_FILE
    if not path.is_file():
        return frozenset()
    try:
        note = decode_json(path.read_bytes(), _Note)
    except (OSError, UndecodableError):
        return frozenset()
    # A note can be edited, so names of files outside of the directory are ignored.
    names = [name for name in note.files if Path(name).name == name and name not in {"", ".."}]
    return frozenset(names) if note.schema == SCHEMA else frozenset()


@contextlib.contextmanager
def noted_as_unfinished(directory: Path, names: Iterable[str]) -> Iterator[None]:
    """Keep a note in the directory, within the block, that names the files that are being written and did not exist before.

    `names` are in the order in which the files take their names: later files describe earlier ones, so they are removed first.
    A block that fails leaves neither the files nor the note; only a kill does. A file that existed before is not named, because the
    user decides each time whether it may be replaced.
    """
    left = left_unfinished(directory)
    own = [name for name in names if name in left or not (directory / name).exists()]
    note = directory / UNFINISHED_FILE
    try:
        write_json(note, _Note(files=tuple(sorted({*own, *left}))), mode=PRIVATE)
        yield
    except UnflushedError:
        with contextlib.suppress(InputError):
            remove_file(note)
        raise  # everything is there, as far as this process can see
    except BaseException:
        with contextlib.suppress(InputError):  # the first error is the one to report
            for name in [*reversed(own), *left, UNFINISHED_FILE]:
                remove_file(directory / name)
        raise
    remove_file(note)
