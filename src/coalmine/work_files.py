"""Files that are still being written: created exclusively under names that nobody can guess, and removed once their writer is dead."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows, where a work file of a dead process stays until somebody removes it
    fcntl = None  # type: ignore[assignment]

_NAME = re.compile(r"\..+\.[0-9a-f]{16}-(?P<process>[0-9]+)\.part")
# What file systems allow for a name, and what is added to the final name: two dots, 16 digits, the process, ".part".
_LONGEST_NAME, _ADDED = 255, 48
_EXCLUSIVE = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def new_work_file(final: Path, mode: int) -> tuple[Path, int]:
    """An empty file beside `final`, and its open descriptor; close it once the file has its final name or is gone.

    The descriptor holds a lock for as long as its process lives, by which others know that the file is not abandoned.
    """
    remove_abandoned(final.parent)
    stem = os.fsdecode(os.fsencode(final.name)[: _LONGEST_NAME - _ADDED])
    path = final.with_name(f".{stem}.{secrets.token_hex(8)}-{os.getpid()}.part")
    descriptor = os.open(path, _EXCLUSIVE, mode)
    try:
        path.chmod(mode)  # whatever the umask took away
        if fcntl is not None:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        path.unlink(missing_ok=True)
        raise
    return path, descriptor


def remove_abandoned(directory: Path) -> None:
    """Remove the work files that processes left in a directory when they were killed."""
    try:
        with os.scandir(directory) as entries:
            left = [Path(entry.path) for entry in entries if _NAME.fullmatch(entry.name)]
    except OSError:
        return  # whoever wants to write there will be told
    for path in left:
        if _is_abandoned(path):
            with contextlib.suppress(OSError):  # somebody else removed it, or it is not ours to remove
                path.unlink()


def _is_abandoned(path: Path) -> bool:
    """Whether nobody holds the file, and no process has the number of the one that made it.

    Both are asked: a library that puts a new file in the place of ours drops the lock, and numbers of processes are of one machine
    while its files may be shared.
    """
    found = _NAME.fullmatch(path.name)
    if found is None or fcntl is None or _is_alive(int(found["process"])):
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
