"""Directories that one process writes to at a time, temporary ones too; what a killed process left in them is recognized."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from coalmine.errors import InputError, UnflushedError
from coalmine.storage.decoding import UndecodableError, decode_json
from coalmine.storage.files import PRIVATE, make_directory, remove_file, write_json

try:
    import fcntl
except ImportError:  # on Windows, where two processes can write to the same directory
    fcntl = None  # type: ignore[assignment]

UNFINISHED_FILE = "unfinished.json"
# Temporary directories have names of this kind, and a lock within so many seconds.
_TEMPORARY, _LOCKED_WITHIN = "coalmine_", 60.0
SCHEMA = "coalmine.unfinished/1"


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    """The files in a directory that belong to a run that has not finished."""

    schema: str = SCHEMA
    files: tuple[str, ...]


@contextlib.contextmanager
def sole_use(directory: str | os.PathLike[str]) -> Iterator[Path]:
    """Make a directory and lock it; an InputError if another process writes to it.

    The lock is on the directory itself, so nothing is left when the process is killed. A file system without locks keeps nobody out.
    """
    path = make_directory(directory)
    held = _opened(path)
    try:
        if held is not None and fcntl is not None:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as problem:
                if problem.errno in {errno.EWOULDBLOCK, errno.EACCES}:
                    raise InputError(
                        f"another process is writing to {path}; wait until it has finished, or choose another directory"
                    ) from None
        yield path
    finally:
        if held is not None:
            os.close(held)


def _opened(directory: Path) -> int | None:
    """A descriptor of a directory; None if it cannot be opened, such as one without read permission."""
    try:
        return os.open(directory, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return None


@contextlib.contextmanager
def private_directory(parent: str | None = None) -> Iterator[Path]:
    """A temporary directory of this user alone, for the block; those that killed processes of this user left are removed first."""
    place = Path(tempfile.gettempdir() if parent is None else parent)
    for path in place.glob(f"{_TEMPORARY}*"):
        if _is_abandoned(path):
            shutil.rmtree(path, ignore_errors=True)
    made = tempfile.TemporaryDirectory(prefix=_TEMPORARY, dir=place, ignore_cleanup_errors=True)
    with made as name, sole_use(name) as directory:
        yield directory


def _is_abandoned(path: Path) -> bool:
    """Whether it is a directory of this user that no process holds any more."""
    held = None if path.is_symlink() else _opened(path)
    if held is None or fcntl is None:
        return False
    try:
        found = os.fstat(held)
        if found.st_uid != os.geteuid() or time.time() - found.st_mtime < _LOCKED_WITHIN:
            return False
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(held)
    return True


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
    user decides each time whether it may be replaced. Once it is replaced, it describes the files that are removed, and is removed
    with them.
    """
    left = left_unfinished(directory)
    names = tuple(names)
    before = {name: _which(directory / name) for name in names}
    own = [name for name in names if name in left or before[name] is None]
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
            for name in reversed(names if own else ()):
                if name in own or _which(directory / name) != before[name]:
                    remove_file(directory / name)
            for name in left:
                remove_file(directory / name)
            remove_file(note)
        raise
    remove_file(note)


def _which(path: Path) -> int | None:
    """The inode of a file; None if there is no file of this name."""
    try:
        return path.stat().st_ino
    except OSError:
        return None
