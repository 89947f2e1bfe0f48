"""Symbolic links that lead in a circle: what they point to can be neither read nor told from what is missing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from coalmine.errors import InputError

LEADS_IN_A_CIRCLE = (
    "is a symbolic link that leads in a circle, so it cannot be read; restore what was there, or remove it"
)


def real_path(path: str | os.PathLike[str]) -> Path:
    """Where a path leads, as `Path.resolve`; a link that leads in a circle leads to itself, and is no error.

    >>> real_path("/").as_posix()
    '/'
    """
    return Path(os.path.realpath(path))


def is_circle(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a symbolic link that leads in a circle.

    >>> is_circle("/")
    False
    """
    if not os.path.islink(path):  # noqa: PTH114 - the paths are many
        return False
    try:
        os.stat(path)  # noqa: PTH116 - see above
    except OSError as problem:
        return problem.errno == errno.ELOOP
    return False


def refuse_circle(path: str | os.PathLike[str]) -> None:
    """An InputError for a symbolic link that leads in a circle."""
    if is_circle(path):
        raise InputError(f"{path} {LEADS_IN_A_CIRCLE}")
