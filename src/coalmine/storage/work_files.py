"""Work files, which are still being written: created exclusively under unguessable names, and removed after their process has died."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # on Windows, where the work file of a dead process stays until somebody removes it
    fcntl = None  # type: ignore[assignment]

_NAME = re.compile(r"\..+\.[0-9a-f]{16}-(?P<process>[0-9]+)\.part")
_DIRECTORY_NAME = re.compile(r"\.work\.[0-9a-f]{16}-(?P<process>[0-9]+)")
# The bytes that file systems allow for a name, and those added to the final name: two dots, 16 digits, the process, ".part".
_LONGEST_NAME, _ADDED = 255, 48
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_EXCLUSIVE = os.O_CREAT | os.O_EXCL | os.O_RDWR | _NO_FOLLOW | getattr(os, "O_CLOEXEC", 0)


def new_work_file(final: Path, mode: int) -> tuple[Path, int]:
    """An empty file next to `final`, and its open descriptor; close it after the file has its final name or was removed.

    The descriptor holds a lock for as long as the process lives, which shows others that the file is not abandoned.
    """
    remove_abandoned(final.parent)
    stem = os.fsdecode(os.fsencode(final.name)[: _LONGEST_NAME - _ADDED])
    path = final.with_name(f".{stem}.{secrets.token_hex(8)}-{os.getpid()}.part")
    descriptor = os.open(path, _EXCLUSIVE, mode)
    try:
        path.chmod(mode)  # the umask may have removed bits
        _hold(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to report
            os.close(descriptor)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        raise
    return path, descriptor


@contextlib.contextmanager
def work_directory(parent: Path) -> Iterator[Path]:
    """A private directory in `parent` for files that are not needed after the block; it is removed with its content."""
    remove_abandoned(parent)
    path = parent / f".work.{secrets.token_hex(8)}-{os.getpid()}"
    path.mkdir(mode=0o700)
    held: int | None = None
    try:
        held = os.open(path, os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_CLOEXEC", 0))
        _hold(held)
        yield path
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)  # the first error is the one to report
        raise
    else:
        shutil.rmtree(path)
    finally:
        if held is not None:
            with contextlib.suppress(OSError):
                os.close(held)


def is_work_name(name: str) -> bool:
    """Whether this is the name of a work file or a work directory."""
    return _process(name) is not None


def remove_abandoned(directory: Path) -> None:
    """Remove the work files and work directories that killed processes left in a directory."""
    try:
        with os.scandir(directory) as entries:
            left = [Path(entry.path) for entry in entries if _process(entry.name) is not None]
    except OSError:
        return  # writing there will fail with an error of its own
    for path in left:
        if _is_abandoned(path):
            with contextlib.suppress(OSError):  # another process removed it, or we have no permission
                if _DIRECTORY_NAME.fullmatch(path.name):
                    shutil.rmtree(path)
                else:
                    path.unlink()


def _hold(descriptor: int) -> None:
    if fcntl is not None:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _process(name: str) -> int | None:
    """The id of the process that made the work file or directory of this name, or None if it is not one."""
    found = _NAME.fullmatch(name) or _DIRECTORY_NAME.fullmatch(name)
    return None if found is None else int(found["process"])


def _is_abandoned(path: Path) -> bool:
    """Whether no process holds the file, and no process has the id of the one that made it.

    Both are checked: a library that replaces our file with a new one drops the lock, and the ids of processes belong to one machine,
    while its files may be shared.
    """
    process = _process(path.name)
    if process is None or fcntl is None or _is_alive(process):
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
