"""Work files with a checksum: the file that a stopped command resumes from ends with the SHA-256 of everything before it.

A damaged file is rejected by name, and never repaired or overwritten: anyone who wants to start over removes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from coalmine.errors import InputError
from coalmine.storage.files import PRIVATE, check_replaceable, read_bytes, whole_file

_DIGEST_BYTES = hashlib.sha256().digest_size


class _HashedWriter(io.RawIOBase):
    """A file that hashes what is written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, content: Any, /) -> int:
        """Write all of `content`."""
        self.digest.update(content)
        return self._file.write(content)


@contextlib.contextmanager
def guarded_file(path: Path) -> Iterator[io.RawIOBase]:
    """A stream to write a work file to from beginning to end; only its owner can read it, and it is complete or absent."""
    with whole_file(path, mode=PRIVATE) as temporary, open(temporary, "wb") as file:
        stream = _HashedWriter(file)
        yield stream
        file.write(stream.digest.digest())


def read_guarded(path: Path, what: str, *, advice: str = "remove it to start over") -> bytes:
    """The content of a work file; an InputError that names the file if it is not what was written."""
    check_replaceable(path)  # it will be replaced, and opening a pipe would wait forever
    content = read_bytes(path, what)
    written, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if hashlib.sha256(written).digest() != digest:
        raise InputError(f"{path}, left by {what}, is empty, damaged or from another version; {advice}")
    return written
