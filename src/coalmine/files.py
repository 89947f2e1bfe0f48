"""Files that are whole or not there at all, and private where they hold secrets."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from coalmine.errors import CoalmineError, InputError
from coalmine.work_files import new_work_file

PRIVATE = 0o600
PUBLIC = 0o644
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str], *, mode: int = PUBLIC) -> Iterator[Path]:
    """A path to write to; it takes the final name when the block ends well, and is removed when it does not.

    The temporary file is beside the final one, so the rename is atomic, and it has the final mode from its first byte, so a
    secret is never readable by others for a moment. Only a regular file is ever replaced.
    """
    final = Path(path)
    make_directory(final.parent)
    check_replaceable(final)
    temporary, held = new_work_file(final, mode)
    try:
        yield temporary
        _finish(temporary, mode)
        check_replaceable(final)
        temporary.replace(final)
        _flush(final.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(held)


def check_replaceable(path: Path) -> None:
    """Refuse to put a file in the place of anything but a regular file; called before long work as well as at its end."""
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(kind):
        raise InputError(f"{path} is a directory, and a file was to be written there; name a file")
    if stat.S_ISLNK(kind):
        raise InputError(
            f"{path} is a symbolic link, which is never replaced or followed; name the file that it points to, or another one"
        )
    if not stat.S_ISREG(kind):
        raise InputError(
            f"{path} is a device, pipe or socket, and only regular files are replaced; name a regular file"
        )


def _finish(temporary: Path, mode: int) -> None:
    """Give what was written its mode and bring it to the disk; a library may have put a new file in the place of ours."""
    descriptor = os.open(temporary, os.O_RDWR | _NO_FOLLOW)
    try:
        temporary.chmod(mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
    r"""A record, or anything made of records, as indented JSON; fields keep the order in which they are declared.

    A path of bytes that are not UTF-8 is text that JSON cannot hold: those bytes become their escapes, which is readable.

    >>> to_json({"path": b"a\xff".decode("utf-8", "surrogateescape")})
    b'{\n  "path": "a\\\\udcff"\n}'
    """
    try:
        encoded = msgspec.json.encode(document)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(_encodable(msgspec.to_builtins(document, str_keys=True)))
    return msgspec.json.format(encoded, indent=2)


def _encodable(document: Any) -> Any:
    """Plain JSON in which each half of a surrogate pair is its escape."""
    if isinstance(document, str):
        return document.encode("utf-8", "backslashreplace").decode()
    if isinstance(document, dict):
        return {_encodable(name): _encodable(value) for name, value in document.items()}
    if isinstance(document, (list, tuple)):
        return [_encodable(value) for value in document]
    return document


def read_bytes(path: str | os.PathLike[str], what: str) -> bytes:
    """A file's bytes, or an InputError that calls the file `what`."""
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{what} was not found: {path} does not exist; check the path") from None
    except IsADirectoryError:
        raise InputError(
            f"{what} must be a file, but {path} is a directory; name the file inside it"
        ) from None
    except PermissionError:
        raise InputError(f"{what} cannot be read: no permission for {path}; run as its owner") from None
    except OSError as error:
        raise InputError(f"{what} cannot be read: {error.strerror} ({path}); check the path") from None


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
