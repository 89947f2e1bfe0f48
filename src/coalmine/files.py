"""Files that are whole or not there at all, and private where they hold secrets."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from coalmine.errors import CoalmineError, InputError

PRIVATE = 0o600
PUBLIC = 0o644


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str], *, mode: int = PUBLIC) -> Iterator[Path]:
    """A path to write to; it takes the final name when the block ends well, and is removed when it does not.

    The temporary file stands beside the final one, so the rename is atomic, and it has the final mode from its first
    byte, so a secret is never readable by others for a moment.
    """
    final = Path(path)
    make_directory(final.parent)
    # The process id keeps two runs apart; the leading dot keeps a leftover of a killed run out of sight.
    temporary = final.with_name(f".{final.name}.{os.getpid()}.part")
    os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode))
    temporary.chmod(mode)
    try:
        yield temporary
        temporary.chmod(mode)  # some libraries put a new file in its place
        _flush(temporary)
        temporary.replace(final)
        _flush(final.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def make_directory(path: str | os.PathLike[str]) -> Path:
    """A directory that is there; called before long work, so that a wrong place is told at once."""
    directory = Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(
            f"{directory} cannot be a directory: a file is in its way; choose another place"
        ) from None
    return directory


@contextlib.contextmanager
def no_empty_directory(path: str | os.PathLike[str]) -> Iterator[None]:
    """What is refused leaves no directory that was not there before and has nothing in it, and none above it either."""
    directory = Path(path)
    new = [place for place in (directory, *directory.parents) if not place.exists()]
    try:
        yield
    except CoalmineError:
        with contextlib.suppress(OSError):
            for place in new:  # the deepest first
                place.rmdir()
        raise


def write_bytes(path: str | os.PathLike[str], content: bytes, *, mode: int = PUBLIC) -> None:
    """Write a whole file."""
    with whole_file(path, mode=mode) as temporary:
        temporary.write_bytes(content)


def write_json(path: str | os.PathLike[str], document: Any, *, mode: int = PUBLIC) -> None:
    """Write a record as indented JSON that ends with a newline."""
    write_bytes(path, to_json(document) + b"\n", mode=mode)


def to_json(document: Any) -> bytes:
    """A record, or anything made of records, as indented JSON; fields keep the order in which they are declared."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2)


def read_bytes(path: str | os.PathLike[str], what: str) -> bytes:
    """A file's bytes, or an InputError that calls the file `what`."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError(f"{what} was not found: {path} does not exist; check the path") from None
    except IsADirectoryError:
        raise InputError(
            f"{what} must be a file, but {path} is a directory; name the file inside it"
        ) from None
    except PermissionError:
        raise InputError(f"{what} cannot be read: no permission for {path}; run as its owner") from None


def sha256_of_file(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal, in constant memory."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
