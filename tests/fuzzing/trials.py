"""One reader with a valid file, tried with other contents: each is read, or refused in one sentence that names it."""

import contextlib
import hashlib
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from coalmine.errors import CoalmineError, FormatError
from coalmine.records.documents import is_sealed
from resealing import vouch_again

SECONDS = 20


class Reader(NamedTuple):
    """One kind of file."""

    name: str
    # Writes a valid file, and all that belongs to it, into an empty directory; gives its path.
    make: Callable[[Path], Path]
    # Reads it as a command does, as far as what is in it can matter.
    read: Callable[[Path], Any]
    # Whether its content is a JSON document, so that it can be changed as one.
    json: bool = False
    # What messages may call it, where whoever reads it knows which file it is.
    called: tuple[str, ...] = ()
    # Whether reading it once takes more than a hundredth of a second.
    slow: bool = False
    # What somebody would do who changed the file and all that vouches for it.
    after: Callable[[Path], None] = vouch_again


class Trial:
    """One reader with a valid file of its own, to be tried with other contents."""

    def __init__(self, reader: Reader, folder: Path) -> None:
        self.reader = reader
        self.path = reader.make(folder)
        self.valid = self.path.read_bytes()
        self._sealed = is_sealed(self.valid)
        if reader.json:
            self.document = json.loads(self.valid)
            if self._sealed:
                del self.document["checksum"]

    def try_content(self, content: bytes) -> bool:
        """Whether the reader takes the content; what is neither taken nor refused in a sentence is raised."""
        self.path.write_bytes(content)
        return self._read()

    def try_document(self, text: bytes) -> bool:
        """The same for a JSON text, which gets the checksum that it would have."""
        self.path.write_bytes(_with_checksum(text) if self._sealed else text)
        self.reader.after(self.path)
        return self._read()

    def _read(self) -> bool:
        try:
            with _time_limit():
                self.reader.read(self.path)
        except CoalmineError as refusal:
            lines = refusal.shown().split("\n")
            # Only a format that the user wrote is shown on lines of its own.
            most = 3 if isinstance(refusal, FormatError) else 1
            if len(lines) > most or not all(map(str.isprintable, lines)) or len(lines[0]) > 2_100:
                raise AssertionError(f"not one sentence: {refusal.shown()[:3_000]!r}") from refusal
            if most == 1 and not any(
                part in str(refusal) for part in (self.path.name, self.path.parent.name, *self.reader.called)
            ):
                raise AssertionError(f"it does not name the file: {refusal}") from refusal
            return False
        return True


def _with_checksum(text: bytes) -> bytes:
    if not text.endswith(b"\n}"):
        return text  # nothing that could have been sealed
    content = text.removesuffix(b"\n}") + b",\n"
    return content + f'  "checksum": "{hashlib.sha256(content).hexdigest()}"\n}}\n'.encode()


@contextlib.contextmanager
def _time_limit():
    def stop(*_):
        raise AssertionError(f"still reading after {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
