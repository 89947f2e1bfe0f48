"""Files of an index: its manifest, and shards of symbols and sorted suffixes that are mapped into memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from coalmine.corpus.files.documents import Fields
from coalmine.errors import CorpusError
from coalmine.models.protocols import IntArray
from coalmine.records.documents import Document
from coalmine.storage.files import PRIVATE, sha256_of_file, whole_file

SCHEMA = "coalmine.index/1"
MANIFEST_FILE = "manifest.json"
TOKENIZER_FILE = "tokenizer.json"
# This many zeros follow the last symbol, so that as many bytes can be read at every place.
PADDING = 64
# Every 256th suffix, in memory, spares a search most of its steps.
_LANDMARK_STEP = 256
_STEP_BITS = 6
_TYPES: dict[str, Any] = {
    "symbols": np.uint8,
    "suffixes": np.dtype("<u4"),
    "starts": np.dtype("<u4"),
    "numbers": np.dtype("<i8"),
}

Words = NDArray[np.uint64]


# What is counted in an index fits 62 bits, so that sums of it fit 63.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class FileRecord(msgspec.Struct, frozen=True):
    """One file of a shard."""

    bytes: Count
    sha256: str


class ShardRecord(msgspec.Struct, frozen=True):
    """Some consecutive documents of the corpus and the sorted suffixes of their tokens."""

    documents: Count
    tokens: Count
    # "symbols", "suffixes", "starts" and "numbers".
    files: dict[str, FileRecord]


class CorpusRecord(msgspec.Struct, frozen=True):
    """Which corpus was indexed."""

    name: str
    sha256: str
    fields: Fields
    # What of its conversations is not in the index, such as the arguments of tool calls; not there if nothing is missing.
    not_read: str | UnsetType = UNSET


class TokenizerRecord(msgspec.Struct, frozen=True):
    """How it was tokenized."""

    kind: str
    size: int
    sha256: str
    # The SHA-256 of the chat template that conversations were written with; not there for texts.
    chat_template_sha256: str | UnsetType = UNSET


class IndexManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an index holds; manifest.json, which ends with a checksum of all that comes before it."""

    schema: str
    corpus: CorpusRecord
    tokenizer: TokenizerRecord
    documents: Count
    tokens: Count
    # How many bytes a symbol has; symbols are big-endian, token + 1, and 0 ends a document.
    symbol_bytes: Annotated[int, msgspec.Meta(ge=1, le=4)]
    shards: Annotated[tuple[ShardRecord, ...], msgspec.Meta(min_length=1)]

    @property
    def files(self) -> dict[str, str]:
        """The SHA-256 of all other files of the index, by name."""
        return {TOKENIZER_FILE: self.tokenizer.sha256} | {
            file_name(number, part): record.sha256
            for number, shard in enumerate(self.shards)
            for part, record in shard.files.items()
        }


INDEXES = Document(
    record=IndexManifest,
    schema=SCHEMA,
    file=MANIFEST_FILE,
    title="index",
    by="`coalmine data index`",
    others={"shard-*": "the tokens of one part of the corpus, and their suffixes in order"},
    name_is_common=True,
    companions=lambda manifest: dict(manifest.files),
)


def file_name(shard: int, part: str) -> str:
    """The name of a file of a shard, the first of which is 0."""
    return f"shard-{shard:05d}.{part}"


def write_file(path: Path, content: NDArray[Any]) -> FileRecord:
    """Write an array, whole or not at all, and hash it meanwhile."""
    content = np.ascontiguousarray(content)
    view = memoryview(content.data).cast("B") if content.size else memoryview(b"")
    with ThreadPoolExecutor(1) as pool:
        # Both hashing and writing release the interpreter lock, so they run at the same time.
        digest = pool.submit(lambda: hashlib.sha256(view).hexdigest())
        with whole_file(path, mode=PRIVATE) as temporary, open(temporary, "wb", buffering=0) as out:
            written = 0
            while written < len(view):
                written += out.write(view[written : written + (1 << 26)])
        return FileRecord(len(view), digest.result())


class Shard:
    """A shard, mapped into memory. A position is a place in its symbols; a rank is a place in its sorted suffixes."""

    def __init__(self, directory: Path, number: int, record: ShardRecord, manifest: IndexManifest) -> None:
        symbol_bytes = manifest.symbol_bytes
        self._vocabulary = manifest.tokenizer.size
        self.number = number
        self.record = record
        self._directory = directory
        self.symbol_bytes = symbol_bytes
        self.documents = record.documents
        self.tokens = record.tokens
        # How many symbols a word of 8 bytes holds, and how many of its bits they take.
        self.symbols_in_word = 8 // symbol_bytes
        self._spare_bits = np.uint64(64 - 8 * symbol_bytes * self.symbols_in_word)
        self.length = record.tokens + record.documents
        self.symbols = _mapped(directory, number, "symbols")
        self.suffixes = _mapped(directory, number, "suffixes")
        self.starts = _mapped(directory, number, "starts")
        self.numbers = _mapped(directory, number, "numbers")
        # Few compared with the tokens, so that checking them all is cheap, even where checksums are not compared.
        starts, numbers = self.starts.astype(np.int64), self.numbers
        if starts[0] != 0 or starts[-1] != self.length or np.any(np.diff(starts) < 1):
            raise self.damaged("starts")
        if np.any(np.diff(numbers) < 1) or np.any(numbers[:1] < 1):
            raise self.damaged("numbers")
        self._words = np.ndarray(
            (self.length * symbol_bytes + 1,), dtype=np.dtype("<u8"), buffer=self.symbols.data, strides=(1,)
        )

    def damaged(self, part: str) -> CorpusError:
        """The error for a file with impossible values; only an index whose checksums were not compared gets this far."""
        name = file_name(self.number, part)
        return CorpusError(
            f"the index {self._directory} is damaged in shard {self.number}: {name} holds impossible values; build it again, with "
            "overwrite"
        )

    def positions(self, ranks: slice | IntArray) -> IntArray:
        """Where the suffixes of some ranks begin."""
        found: IntArray = self.suffixes[ranks].astype(np.int64)
        if found.size and int(found.max()) >= self.length:
            raise self.damaged("suffixes")
        return found

    def rows(self, places: IntArray, size: int) -> NDArray[np.uint8]:
        """The `size` bytes, 64 at most, from some places in the bytes of the symbols on; zeros after the end."""
        end = self.length * self.symbol_bytes
        if size == 8:
            return self._words[np.minimum(places, end)].view(np.uint8).reshape(-1, 8)
        every = np.ndarray((end + 1, size), dtype=np.uint8, buffer=self.symbols.data, strides=(1, 1))
        found: NDArray[np.uint8] = every[np.minimum(places, end)]
        return found

    def words(self, positions: IntArray, number: int) -> Words:
        """The `number`-th word after each position, as an integer that sorts as its symbols do."""
        places = (positions.astype(np.int64) + number * self.symbols_in_word) * self.symbol_bytes
        # After the end is the padding, all zeros.
        np.minimum(places, self.length * self.symbol_bytes, out=places)
        found: Words = self._words[places]
        found.byteswap(inplace=True)
        if self._spare_bits:
            found >>= self._spare_bits
        return found

    @cached_property
    def landmarks(self) -> Words:
        """The first word of every 256th suffix."""
        return self.words(self.suffixes[::_LANDMARK_STEP], 0)

    def between_landmarks(self, keys: Words) -> tuple[IntArray, IntArray]:
        """Bounds on the rank of the first suffix whose first word is above each key."""
        place = np.searchsorted(self.landmarks, keys, side="right").astype(np.int64)
        low = np.maximum(place - 1, -1) * _LANDMARK_STEP + 1
        return np.maximum(low, 0), np.minimum(place * _LANDMARK_STEP, self.tokens)

    @cached_property
    def _documents_at_steps(self) -> IntArray:
        """Which document every 64th position is in, as a place to start searching; much faster than bisection."""
        steps = np.arange(0, self.length + 1, 1 << _STEP_BITS).astype(np.uint32)
        return np.searchsorted(self.starts, steps, side="right").astype(np.int64) - 1

    def documents_at(self, positions: IntArray) -> IntArray:
        """Which document of the shard, counted from 0, each position is in."""
        found: IntArray = self._documents_at_steps[positions >> _STEP_BITS]
        past = np.flatnonzero(self.starts[found + 1] <= positions)
        while past.size:
            found[past] += 1
            past = past[self.starts[found[past] + 1] <= positions[past]]
        return found

    def room_at(self, positions: IntArray) -> IntArray:
        """How many tokens there are from each position to the end of its document."""
        ends: IntArray = self.starts[1:][self.documents_at(positions)].astype(np.int64) - 1
        return ends - positions

    def symbol_rows(self, positions: IntArray, length: int) -> NDArray[np.uint8]:
        """The bytes of the `length` symbols from each position on, one row each; zeros past the end of the shard."""
        places = positions.astype(np.int64)[:, None] * self.symbol_bytes + np.arange(
            length * self.symbol_bytes
        )
        found: NDArray[np.uint8] = self.symbols[np.minimum(places, self.length * self.symbol_bytes)]
        return found

    def span(self, begin: int, end: int) -> bytes:
        """The bytes of the symbols from one position to another."""
        return bytes(self.symbols[begin * self.symbol_bytes : end * self.symbol_bytes])

    def rows_at(self, positions: IntArray, length: int) -> IntArray:
        """The tokens from each position on, one row each; they must not extend over the end of its document."""
        raw = self.symbol_rows(positions, length).reshape(len(positions), length, self.symbol_bytes)
        symbols = np.zeros((len(positions), length), dtype=np.int32 if self.symbol_bytes < 4 else np.int64)
        for column in range(self.symbol_bytes):
            symbols = (symbols << 8) | raw[:, :, column]
        if np.any((symbols < 1) | (symbols > self._vocabulary)):
            raise self.damaged("symbols")
        return symbols - 1


def to_symbols(tokens: IntArray, symbol_bytes: int) -> NDArray[np.uint8]:
    """Tokens as the big-endian bytes of token + 1; a token of -1 becomes the end of a document.

    >>> to_symbols(np.array([0, 511, -1]), 2).tolist()
    [0, 1, 2, 0, 0, 0]
    """
    wide = (tokens.astype(np.int64) + 1).astype(">u4").view(np.uint8).reshape(-1, 4)
    return np.ascontiguousarray(wide[:, 4 - symbol_bytes :]).reshape(-1)


def symbol_bytes_for(vocabulary: int) -> int:
    """How many bytes a symbol of a vocabulary takes.

    >>> [symbol_bytes_for(size) for size in (255, 256, 65_535, 65_536, 2**24)]
    [1, 2, 2, 3, 4]
    """
    for width in (1, 2, 3):
        if vocabulary < 256**width:
            return width
    return 4


def check_files(
    directory: Path, manifest: IndexManifest, *, verify: bool, advance: Callable[[int], None]
) -> None:
    """Raise a CorpusError that names the shard whose files are not those of the manifest.

    Sizes are always compared; with `verify` the SHA-256 of each file too. `advance` gets the bytes that were checked.
    """
    for number, shard in enumerate(manifest.shards):
        symbols = (shard.documents + shard.tokens) * manifest.symbol_bytes + PADDING
        sizes = {
            "symbols": symbols,
            "suffixes": 4 * shard.tokens,
            "starts": 4 * shard.documents + 4,
            "numbers": 8 * shard.documents,
        }
        for part, size in sizes.items():
            path = directory / file_name(number, part)
            record = shard.files.get(part)
            problem = None
            if record is None or record.bytes != size:
                problem = "does not match its entry in the manifest"
            elif not path.is_file():
                problem = "is missing"
            elif path.stat().st_size != size:
                problem = f"has {path.stat().st_size:,} bytes instead of {size:,}"
            elif verify and sha256_of_file(path) != record.sha256:
                problem = "does not match its checksum"
            if problem is not None:
                raise CorpusError(
                    f"the index {directory} is damaged in shard {number}: {path.name} {problem}; build it again, with overwrite"
                )
            advance(size)


def _mapped(directory: Path, number: int, part: str) -> Any:
    path = directory / file_name(number, part)
    if path.stat().st_size == 0:
        return np.empty(0, dtype=_TYPES[part])  # nothing cannot be mapped
    return np.asarray(np.memmap(path, dtype=_TYPES[part], mode="r"))
