"""Errors of the operating system as one sentence: what was refused, where, and what to do."""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from coalmine.errors import WriteError

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}
# None of these can come from a bug of ours: they are about a disk, permissions, limits, or a path that the user gave.
_OF_THE_SYSTEM = {
    *_NO_ROOM,
    *_NOT_ALLOWED,
    errno.EFBIG,
    errno.EIO,
    errno.ELOOP,
    errno.EMFILE,
    errno.ENAMETOOLONG,
    errno.ENFILE,
    errno.ENODEV,
    errno.ENOTDIR,
    errno.ENXIO,
    errno.ESTALE,
}
_SHOWN = 120


class _Reason(NamedTuple):
    """Why something was refused, and what to do about it."""

    why: str
    what_to_do: str


def write_error(path: str | os.PathLike[str], error: OSError, left: str) -> WriteError:
    """The error for a file that could not be written; `left` says what is there now."""
    if error.errno in _NO_ROOM:
        return WriteError(
            f"no room to write {shortened(path)}: the disk is full or a quota is reached; free some space and run the same command "
            f"again ({left})"
        )
    reason = _reason(error)
    return WriteError(f"{shortened(path)} cannot be written: {reason.why}; {reason.what_to_do} ({left})")


def unreadable(path: str | os.PathLike[str], error: OSError) -> str:
    """A sentence that says which file cannot be read, why, and what to do.

    >>> unreadable("mail.txt", OSError(errno.EIO, "Input/output error"))
    'mail.txt cannot be read: Input/output error; check the disk'
    """
    if error.errno in _NOT_ALLOWED:
        return f"{shortened(path)} cannot be read: {_said(error)}; run as its owner"
    why, what_to_do = _reason(error)
    return f"{shortened(path)} cannot be read: {why}; {what_to_do}"


def describe_system_error(error: OSError) -> str | None:
    """A sentence for an error that nothing else has described; None if it may come from a bug of ours."""
    if error.errno not in _OF_THE_SYSTEM:
        return None
    reason = _reason(error)
    where = "a file" if error.filename is None else shortened(os.fsdecode(error.filename))
    return f"{where} cannot be used: {reason.why}; {reason.what_to_do}"


def shortened(path: str | os.PathLike[str]) -> str:
    """A path as a sentence can show it: only the beginning of one that is too long for any file system.

    >>> shortened("out/model"), len(shortened("x" * 5000))
    ('out/model', 123)
    """
    text = os.fspath(path)
    too_long = len(os.fsencode(text)) >= 4096 or any(len(os.fsencode(part)) > 255 for part in text.split("/"))
    return f"{text[:_SHOWN]}..." if too_long else text


def _reason(error: OSError) -> _Reason:
    if error.errno == errno.ENAMETOOLONG:
        return _Reason("the path is longer than the file system allows", "choose a shorter one")
    if error.errno == errno.EFBIG:
        return _Reason(
            "the file would be larger than is allowed (`ulimit -f` shows the limit)",
            "raise the limit, or choose another place",
        )
    if error.errno in _NO_ROOM:
        return _Reason("the disk is full or a quota is reached", "free some space")
    if error.errno in _NOT_ALLOWED:
        return _Reason(_said(error), "choose another place, or change its permissions")
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return _Reason("too many files are open (`ulimit -n` shows the limit)", "raise the limit")
    if error.errno in {errno.ENOENT, errno.ELOOP, errno.ENOTDIR}:
        return _Reason(_said(error), "check the path")
    return _Reason(_said(error), "check the disk")


def _said(error: OSError) -> str:
    # Libraries add words of their own to the message of the system, which says the same.
    return str(error) if error.errno is None else os.strerror(error.errno)
