"""Output directories: one process writes to one at a time, and what a process that was killed left there is known as such."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from coalmine.errors import InputError, UnflushedError
from coalmine.storage.decoding import UndecodableError, decode_json
from coalmine.storage.files import PRIVATE, make_directory, remove_file, write_json

try:
    import fcntl
except ImportError:  # not on Windows, where nobody is kept from writing to the same directory twice
    fcntl = None  # type: ignore[assignment]

UNFINISHED_FILE = "unfinished.json"
SCHEMA = "coalmine.unfinished/1"


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    """Which files of a directory are of a run that has not come to its end."""

    schema: str = SCHEMA
    files: tuple[str, ...]


@contextlib.contextmanager
def sole_use(directory: str | os.PathLike[str]) -> Iterator[Path]:
    """Make a directory and hold it; an InputError where another process writes to it.

    What is held is the directory itself, so nothing is left when the process is killed. A file system without locks keeps nobody out.
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
                        f"another process is writing to {path}; wait for its end, or choose another directory"
                    ) from None
        yield path
    finally:
        if held is not None:
            os.close(held)


def _opened(directory: Path) -> int | None:
    """A descriptor of a directory; None where it cannot be opened, as one that may only be written to."""
    try:
        return os.open(directory, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return None


def left_unfinished(directory: Path) -> frozenset[str]:
    """The names of files that a run left in a directory when it was killed; the next may replace them without being told to."""
    path = directory / UNFINISHED_FILE
    if not path.is_file():
        return frozenset()
    try:
        note = decode_json(path.read_bytes(), _Note)
    except (OSError, UndecodableError):
        return frozenset()
    # A note can be edited; nothing outside of the directory is ever removed.
    names = [name for name in note.files if Path(name).name == name and name not in {"", ".."}]
    return frozenset(names) if note.schema == SCHEMA else frozenset()


@contextlib.contextmanager
def noted_as_unfinished(directory: Path, names: Iterable[str]) -> Iterator[None]:
    """Within the block, a note in the directory names the files that are being written there and were not there before.

    `names` are in the order in which they take their names: later ones tell of earlier ones, so they are removed first.
    A block that fails leaves neither them nor the note; only a kill does. A file that was there is not named: whether it may be
    replaced is for the user to say, each time. But once it is replaced, it tells of those that go, and goes with them.
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
        raise  # all is there, as far as this process can see
    except BaseException:
        with contextlib.suppress(InputError):  # what went wrong first is what counts
            for name in reversed(names if own else ()):
                if name in own or _which(directory / name) != before[name]:
                    remove_file(directory / name)
            for name in left:
                remove_file(directory / name)
            remove_file(note)
        raise
    remove_file(note)


def _which(path: Path) -> int | None:
    """Which file has this name now; None where none has."""
    try:
        return path.stat().st_ino
    except OSError:
        return None
