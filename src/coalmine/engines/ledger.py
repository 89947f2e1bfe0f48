"""The ledger: results of finished units, and what running units keep, in files that a killed run resumes from.

`unfinished.units` is only appended to, one record per result: key, length, checksum, arrays. A record that a kill cut off is the last
one, and is dropped; any other damage is rejected by name. The state of a unit that takes long has a file of its own, which is
replaced as a whole. All of them are removed once the results of the whole run are on disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import struct
import time
import zlib
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple
from zipfile import BadZipFile

import numpy as np

from coalmine.engines.units import KEY_BYTES, Arrays, Key
from coalmine.errors import InputError
from coalmine.storage.files import (
    PRIVATE,
    check_place,
    guarded_file,
    make_directory,
    read_guarded,
    remove_file,
    unreadable,
    whole_file,
    write_error,
)

UNITS_FILE = "unfinished.units"
# The files of a run that is not finished, as a regular expression of their names.
WORK_FILES = r"unfinished\.units|unfinished-[0-9a-f]{32}\.npz"
# How often a unit that takes long keeps its state, and how often finished results are flushed to the disk.
SECONDS_BETWEEN_SAVES = 10.0
# The share of its time that a unit may spend on keeping its state.
SHARE_OF_KEEPING = 0.05

_MAGIC = b"coalmine.units/1\n"
_HEADER_BYTES = len(_MAGIC) + 32  # with a fingerprint
_RECORD = struct.Struct(
    f"<{KEY_BYTES}sQ16s8s"
)  # key, length of the content, checksum of it, and one of these three
_HEAD = struct.Struct(f"<{KEY_BYTES}sQ16s")


class _Known(NamedTuple):
    """Where the results of an earlier run are in the file, sorted by key: 24 bytes per unit."""

    keys: np.ndarray  # (units,), as 16 bytes each
    offsets: np.ndarray  # (units,), of their records


_NOTHING = _Known(np.empty(0, dtype=f"V{KEY_BYTES}"), np.empty(0, dtype=np.int64))


class Ledger:
    """What a run has done so far; without a directory nothing is kept.

    The caller calls `begin` before the first unit, and `forget` once the results of the whole run are on disk. Until then a run that is
    stopped loses at most the units that were running.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        seconds_between_saves: float | None = None,
    ) -> None:
        self.directory = None if directory is None else Path(directory)
        self._seconds = seconds_between_saves
        self._known = _NOTHING
        self._end = 0
        self._flushed_at = time.monotonic()
        self._begun: bytes | None = None
        self._held = False

    def begin(self, fingerprint: str, *, instead: bool = False) -> None:
        """Open the ledger of the run with this fingerprint, and create it with the first result; another run's is rejected.

        With `instead`, it takes the place of another run's, and is created at once. Calling it again with the same fingerprint does
        nothing.
        """
        digest = hashlib.sha256(fingerprint.encode()).digest()
        if self.directory is None or self._begun == digest:
            return
        self._begun, path = digest, self.directory / UNITS_FILE
        for one in (path, *self._left()):
            check_place(one)  # before any work; and a pipe would be waited for forever
        if os.path.lexists(path) and not (instead and _is_of_another(path, digest)):
            self._known, self._end = _read(path, digest)
        if instead:
            self._create()

    @property
    def has_results(self) -> bool:
        """Whether an earlier run left results."""
        return len(self._known.keys) > 0

    @property
    def is_empty(self) -> bool:
        """Whether there is no result, of an earlier run or of this one."""
        return self._end <= _HEADER_BYTES

    @property
    def seconds_between_saves(self) -> float:
        """How often a running unit keeps its state."""
        return SECONDS_BETWEEN_SAVES if self._seconds is None else self._seconds

    def result(self, key: Key) -> Arrays | None:
        """The result that an earlier run found for a key, or None."""
        place = int(np.searchsorted(self._known.keys, _as_void(key)))
        if place == len(self._known.keys) or self._known.keys[place].tobytes() != key:
            return None
        path = self._path(UNITS_FILE)
        try:
            with open(path, "rb") as file:
                file.seek(int(self._known.offsets[place]))
                _, length, checksum, _ = _RECORD.unpack(file.read(_RECORD.size))
                content = file.read(length)
        except (OSError, struct.error) as error:
            raise InputError(_damaged(path)) from error
        if _checksum(key, content) != checksum:
            raise InputError(_damaged(path))
        return _arrays(content, path)

    def add(self, key: Key, arrays: Arrays) -> None:
        """Record the result of a unit, and remove what it kept while it ran."""
        if self.directory is None:
            return
        self._create()
        content = _content(arrays)
        record = _record(key, content)
        path = self._path(UNITS_FILE)
        try:
            with open(path, "r+b") as file:
                file.truncate(self._end)  # a record that could not be written completely is dropped
                file.seek(self._end)
                file.write(record)
                file.flush()
                if time.monotonic() - self._flushed_at >= self.seconds_between_saves:
                    os.fsync(file.fileno())
                    self._flushed_at = time.monotonic()
        except OSError as error:
            self._drop_half_a_record(path)
            raise write_error(
                path, error, "the units before are kept; run the same command to resume"
            ) from error
        self._end += len(record)
        remove_file(self._state_path(key))

    def kept(self, key: Key) -> Arrays | None:
        """The state that a unit kept before it was stopped, or None."""
        if self.directory is None or not os.path.lexists(self._state_path(key)):
            return None
        path = self._state_path(key)
        try:
            return _arrays(read_guarded(path, "a run that was stopped"), path)
        except MemoryError:
            raise InputError(_damaged(path)) from None

    def keep(self, key: Key, arrays: Arrays) -> None:
        """Replace the state that a running unit resumes from."""
        if self.directory is not None:
            self._create()  # so that the run is known, and another one does not begin beside what it kept
            with guarded_file(self._state_path(key)) as stream:
                np.savez(stream, **arrays)  # type: ignore[arg-type]  # the stubs take a flag here

    def hold(self) -> None:
        """Let `forget` leave everything: the same command may have more luck or a larger budget, and resumes from it."""
        self._held = True

    def forget(self) -> None:
        """Remove everything: the results of the run are on disk, or the same units would fail in the same way."""
        self._known, self._end, self._begun = _NOTHING, 0, None
        if self._held:
            return
        for path in self._left():
            remove_file(path)

    def _left(self) -> list[Path]:
        """The files of a run that are in the directory, the units last: they tell whose the states are."""
        if self.directory is None or not self.directory.is_dir():
            return []
        try:
            found = [path for path in self.directory.iterdir() if re.fullmatch(WORK_FILES, path.name)]
        except OSError as error:
            raise InputError(unreadable(self.directory, error)) from error
        return sorted(found, key=lambda path: (path.name == UNITS_FILE, path.name))

    def _create(self) -> None:
        """Make the file with its header, as a whole, if it is not there."""
        if self._begun is None:
            raise RuntimeError("a ledger was written to before it was begun; please report this")
        path = self._path(UNITS_FILE)
        if not self._end:
            make_directory(path.parent)
            header = _MAGIC + self._begun
            with whole_file(path, mode=PRIVATE) as temporary:
                temporary.write_bytes(header)
            self._end = len(header)

    def _drop_half_a_record(self, path: Path) -> None:
        """What could not be written completely; without any result or state, the whole file."""
        with contextlib.suppress(OSError):
            os.truncate(path, self._end)
            if self._end == _HEADER_BYTES and not any(path.parent.glob("unfinished-*.npz")):
                path.unlink()
                self._end = 0

    def _path(self, name: str) -> Path:
        if self.directory is None:
            raise RuntimeError("a ledger without a directory has no files; please report this")
        return self.directory / name

    def _state_path(self, key: Key) -> Path:
        return self._path(f"unfinished-{key.hex()}.npz")


# Where a function keeps what it needs to resume: nowhere, in a directory until it returns, or until its caller forgets it.
Resume = str | os.PathLike[str] | Ledger | None


class Keeping:
    """The state of one running unit, kept at intervals; large states less often, so that a unit spends little of its time on that."""

    def __init__(self, seconds: float, write: Callable[[Arrays], None]) -> None:
        self._seconds, self._write = seconds, write
        self._at, self._pause = time.monotonic(), seconds

    def keep(self, state: Callable[[], Arrays], *, now: bool) -> None:
        """Write the state if it is time to, or `now`."""
        began = time.monotonic()
        if now or began - self._at >= self._pause:
            self._write(state())
            self._at = time.monotonic()
            self._pause = self._seconds and max(self._seconds, (self._at - began) / SHARE_OF_KEEPING)


def _read(path: Path, digest: bytes) -> tuple[_Known, int]:
    """The records of an earlier run, and where the last complete one ends."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            header = file.read(_HEADER_BYTES)
            if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
                raise InputError(_damaged(path))
            if header[len(_MAGIC) :] != digest:
                raise InputError(
                    f"{path} belongs to another run (another model, other data or other options); choose another output directory, or "
                    "remove it"
                )
            return _records(path, file, size)
    except OSError as error:
        raise InputError(unreadable(path, error)) from error


def _is_of_another(path: Path, digest: bytes) -> bool:
    """Whether the header is complete, and names another run."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        header = file.read(_HEADER_BYTES)
        whole = len(header) == _HEADER_BYTES and header.startswith(_MAGIC)
        return whole and header[len(_MAGIC) :] != digest
    return False


def _records(path: Path, file: BinaryIO, size: int) -> tuple[_Known, int]:
    keys, offsets, end = bytearray(), array("q"), file.tell()
    while end < size:
        head = file.read(_RECORD.size)
        if len(head) < _RECORD.size:
            break  # cut off
        key, length, checksum, of_head = _RECORD.unpack(head)
        following = end + _RECORD.size + length
        if _head_checksum(head[: _HEAD.size]) != of_head:
            if not any(head) and not any(file.read()):
                break  # a power failure left the length of the file, and none of the bytes
            raise InputError(_damaged(path))
        if following > size:
            break
        if _checksum(key, file.read(length)) != checksum:
            if following == size:
                break
            raise InputError(_damaged(path))
        keys += key
        offsets.append(end)
        end = following
    found = np.frombuffer(bytes(keys), dtype=f"V{KEY_BYTES}")
    order = np.argsort(found, kind="stable")
    return _Known(found[order], np.frombuffer(offsets, dtype=np.int64)[order]), end


def _damaged(path: Path) -> str:
    return f"{path}, left by a run that was stopped, is empty, damaged or from another version; remove it to start over"


def _as_void(key: Key) -> np.void:
    found: np.void = np.frombuffer(key, dtype=f"V{KEY_BYTES}")[0]
    return found


def _checksum(key: Key, content: bytes) -> bytes:
    return hashlib.sha256(key + content).digest()[:16]


def _record(key: Key, content: bytes) -> bytes:
    head = _HEAD.pack(key, len(content), _checksum(key, content))
    return head + _head_checksum(head) + content


def _head_checksum(head: bytes) -> bytes:
    return hashlib.sha256(head).digest()[:8]


def _content(arrays: Arrays) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]  # the stubs take a flag here
    return stream.getvalue()


def _arrays(content: bytes, path: Path) -> Arrays:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as saved:
            return {name: saved[name] for name in saved.files}
    # With a checksum that somebody computed again, NumPy finds anything.
    except (
        ValueError,
        EOFError,
        KeyError,
        TypeError,
        AttributeError,
        OSError,
        MemoryError,
        BadZipFile,
        zlib.error,
    ) as problem:
        raise InputError(_damaged(path)) from problem
