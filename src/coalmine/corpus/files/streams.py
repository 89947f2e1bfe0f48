"""The bytes of a corpus file: plain, gzip or Zstandard, hashed as they are read and written."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from coalmine.errors import CorpusError, MissingExtraError

COMPRESSIONS = (".gz", ".zst")
BLOCK_BYTES = 1 << 20


def pyarrow_for(purpose: str) -> Any:
    """The pyarrow package, or a MissingExtraError that says what it was needed for."""
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtraError(purpose, "pyarrow", "tables") from None
    return pa


class MeteredReader(io.RawIOBase):
    """A file that counts, and if asked to hashes, the bytes read from it."""

    def __init__(self, path: Path, *, hashed: bool) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed with this object
        self._digest = hashlib.sha256() if hashed else None
        self.position = 0

    def readable(self) -> bool:
        """True."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes, or all that is left."""
        content = self._file.read(size) or b""
        if self._digest is not None:
            self._digest.update(content)
        self.position += len(content)
        return content

    def hexdigest(self) -> str:
        """The SHA-256 of the whole file; what was not read yet is read now."""
        if self._digest is None:
            raise ValueError("the file was not opened to be hashed")
        while self.read(BLOCK_BYTES):
            pass
        return self._digest.hexdigest()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


class HashedWriter(io.RawIOBase):
    """A file that hashes the bytes written to it."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "wb", buffering=BLOCK_BYTES)  # noqa: SIM115 - closed with this object
        self._digest = hashlib.sha256()

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, content: Any, /) -> int:
        """Write all of `content`."""
        self._digest.update(content)
        return self._file.write(content)

    def flush(self) -> None:
        """Flush the file."""
        if not self._file.closed:
            self._file.flush()

    def hexdigest(self) -> str:
        """The SHA-256 of what was written so far."""
        return self._digest.hexdigest()

    def close(self) -> None:
        """Close the file; what is still in the buffer is written, or the error that prevents it raised."""
        try:
            self._file.close()
        finally:
            super().close()


class _LeftOpen:
    """A file that stays open when pyarrow closes, or garbage-collects, its wrapper of it."""

    closed = False

    def __init__(self, file: MeteredReader | HashedWriter) -> None:
        self.read = file.read
        self.write = file.write
        self.flush = file.flush

    def close(self) -> None:
        """Do nothing; the code that opened the file closes it."""


class ByteSink(Protocol):
    """Where bytes go."""

    def write(self, content: bytes, /) -> Any:
        """Write all of `content`."""


def open_metered(path: Path, *, hashed: bool) -> MeteredReader:
    """Open a corpus, or raise a CorpusError that says why it cannot be."""
    try:
        if path.exists() and not path.is_file():
            what = "a directory" if path.is_dir() else "not a regular file"
            raise CorpusError(f"a corpus should be one file that can be read twice, but {path} is {what}")
        return MeteredReader(path, hashed=hashed)
    except FileNotFoundError:
        raise CorpusError(f"corpus not found: {path} does not exist; check the path") from None
    except OSError as error:
        raise CorpusError(f"corpus {path} cannot be read: {error.strerror}; check its permissions") from None


def decompressed_blocks(raw: MeteredReader, path: Path, compression: str) -> Iterator[bytes]:
    """The content of a corpus in blocks of about a megabyte, after decompression."""
    try:
        stream: Any = raw
        if compression == ".gz":
            stream = gzip.GzipFile(fileobj=raw, mode="rb")
        elif compression == ".zst":
            pa = pyarrow_for(f"reading {path.name}")
            stream = pa.CompressedInputStream(pa.PythonFile(_LeftOpen(raw), mode="r"), "zstd")
        while block := stream.read(BLOCK_BYTES):
            yield block
    except EOFError:
        raise CorpusError(
            f"{path} is cut off in the middle of its gzip data; copy or compress it again"
        ) from None
    except (gzip.BadGzipFile, zlib.error):
        raise CorpusError(
            f"{path} is not whole gzip data; rename it if it is not compressed, or compress it again"
        ) from None
    except OSError as error:
        detail = str(error)
        if compression == ".zst" and "runcated" in detail:
            problem = f"{path} is cut off in the middle of its Zstandard data; copy or compress it again"
        elif compression == ".zst":
            problem = f"{path} is not whole Zstandard data ({detail}); rename it if it is not compressed"
        else:
            problem = f"{path} cannot be read: {detail}; check the disk"
        raise CorpusError(problem) from None


@contextlib.contextmanager
def compressed_sink(raw: HashedWriter, path: Path, compression: str) -> Iterator[ByteSink]:
    """A sink that compresses what is written to it into `raw`; the same content gives the same bytes."""
    if compression == ".gz":
        # No time and no file name in the header: the same content gives the same file.
        with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as sink:
            yield sink
    elif compression == ".zst":
        pa = pyarrow_for(f"writing {path.name}")
        with pa.CompressedOutputStream(pa.PythonFile(_LeftOpen(raw), mode="w"), "zstd") as zstd_sink:
            yield zstd_sink
    else:
        yield raw
