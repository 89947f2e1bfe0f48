"""Errors of the operating system as one sentence: what was refused, where, and what to do."""

from __future__ import annotations

import errno
import os

from coalmine.errors import WriteError

_NO_ROOM = dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space and run the same command again")
_NOT_ALLOWED = dict.fromkeys(
    (errno.EACCES, errno.EPERM, errno.EROFS), "choose another place, or change its permissions"
)
_LIMITS = {
    errno.EFBIG: "raise the limit that `ulimit -f` shows, or choose another place",
    errno.EMFILE: "raise the limit that `ulimit -n` shows",
    errno.ENFILE: "raise the limit that `ulimit -n` shows",
}
_PATHS = dict.fromkeys((errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR), "check the path")
_DISK = dict.fromkeys((errno.EIO, errno.ENODEV, errno.ENXIO, errno.ESTALE), "check the disk")
# None of these can come from a bug of ours: they are about a disk, permissions, limits, or a path that the user gave.
_OF_THE_SYSTEM = _NO_ROOM | _NOT_ALLOWED | _LIMITS | _PATHS | _DISK


def write_error(path: str | os.PathLike[str], error: OSError, left: str) -> WriteError:
    """The error for a file that could not be written; `left` says what is there now."""
    return WriteError(f"{os.fspath(path)} cannot be written: {_reason(error)} ({left})")


def unreadable(path: str | os.PathLike[str], error: OSError) -> str:
    """A sentence that says which file cannot be read, why, and what to do.

    >>> unreadable("mail.txt", OSError(errno.EIO, "Input/output error"))
    'mail.txt cannot be read: Input/output error; check the disk'
    """
    return f"{os.fspath(path)} cannot be read: {_reason(error)}"


def describe_system_error(error: OSError) -> str | None:
    """A sentence for an error that nothing else has described; None if it may come from a bug of ours."""
    if error.errno not in _OF_THE_SYSTEM:
        return None
    where = "a file" if error.filename is None else os.fsdecode(error.filename)
    return f"{where} cannot be used: {_reason(error)}"


def _reason(error: OSError) -> str:
    # Libraries add words of their own to the message of the system, which says the same.
    why = str(error) if error.errno is None else os.strerror(error.errno)
    return f"{why}; {_OF_THE_SYSTEM.get(error.errno or 0, 'check the path')}"
