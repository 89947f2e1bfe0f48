"""Queries of an index: how often a sequence occurs in a corpus, and where."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from coalmine.corpus.index.searching import Sequences, intervals, longest_prefixes
from coalmine.corpus.index.shards import (
    INDEXES,
    MANIFEST_FILE,
    TOKENIZER_FILE,
    IndexManifest,
    Shard,
    check_files,
    to_symbols,
)
from coalmine.corpus.index.tokenizing import ByteTokens, IndexTokenizer, from_description, utf8
from coalmine.engines.ledger import UNITS_FILE
from coalmine.errors import CorpusError, InputError, ModelError, UnreadWarning
from coalmine.models.protocols import IntArray
from coalmine.progress import Progress, Silent
from coalmine.storage.files import read_bytes

# This many sequences are looked up at once; more would not fit the processor's cache.
_AT_ONCE = 1 << 16

Query = str | Sequence[int] | IntArray


class Occurrence(NamedTuple):
    """One place in a corpus."""

    # The line or row of the document, as the corpus counts them, from 1.
    document: int
    # How many tokens of the document come before it.
    offset: int


class LongestMatch(msgspec.Struct, frozen=True):
    """The longest part of a query that occurs in the corpus; of several, the first. All numbers are 0 where no token does."""

    # Where in the query it begins, and how long it is, in tokens.
    start: int
    length: int
    count: int
    first: Occurrence | None


class CorpusIndex:
    r"""The suffix array of a corpus, made by `build_index`; it counts and finds sequences of tokens.

    A query is a text, or a sequence of token ids. With an index over bytes, every occurrence of a text is found.

    >>> import tempfile
    >>> from coalmine.corpus import build_index
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("banana\nbandana\n")
    ...     _ = build_index(Path(folder, "a.txt"), Path(folder, "index"))
    ...     index = CorpusIndex.open(Path(folder, "index"))
    ...     index.counts(["ana", "x"]).tolist(), index.longest_match("a bandage").length
    ([3, 0], 5)
    """

    def __init__(self, path: Path, manifest: IndexManifest, tokenizer: IndexTokenizer) -> None:
        self.path = path
        self.manifest = manifest
        self.tokenizer = tokenizer
        self.shards = tuple(
            Shard(path, number, record, manifest) for number, record in enumerate(manifest.shards)
        )
        # How many symbols, ends of documents included, come before each shard: places in the whole corpus.
        self.shard_begins = np.cumsum([0] + [shard.length for shard in self.shards])

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, verify: bool = True, progress: Progress | None = None
    ) -> CorpusIndex:
        """Open an index. With `verify` all of its bytes are read and hashed; without, only sizes are compared."""
        folder = Path(path)
        manifest = load_manifest(folder)
        progress = progress or Silent()
        total = sum(record.bytes for shard in manifest.shards for record in shard.files.values())
        if verify:
            progress.start("checking the index", total)
        if manifest.corpus.not_read:
            warnings.warn(manifest.corpus.not_read, UnreadWarning, stacklevel=2)
        check_files(folder, manifest, verify=verify, advance=progress.advance if verify else lambda _: None)
        if verify:
            progress.finish()
        return cls(folder, manifest, _load_tokenizer(folder, manifest))

    @property
    def documents(self) -> int:
        """How many documents it holds."""
        return self.manifest.documents

    @property
    def tokens(self) -> int:
        """How many tokens it holds."""
        return self.manifest.tokens

    def encode(self, text: str) -> IntArray:
        """The tokens of a text, as a query of it is looked up."""
        utf8(text)
        return self.tokenizer.encode_query(text)

    def decode(self, tokens: Sequence[int] | IntArray) -> str:
        """The text of some tokens."""
        listed = [int(token) for token in tokens]
        if listed and max(listed) >= self.tokenizer.size:
            raise CorpusError(
                f"the index {self.path} holds tokens that its {TOKENIZER_FILE} does not have; build it again, with overwrite"
            )
        return self.tokenizer.decode(listed)

    def count(self, query: Query) -> int:
        """How often a sequence occurs in the corpus; occurrences may overlap, and none extends over the end of a document."""
        return int(self.counts([query])[0])

    def counts(self, queries: Sequence[Query] | IntArray) -> IntArray:
        """`count` of many queries at once, in their order; a matrix has a query in each row."""
        result = np.zeros(len(queries), dtype=np.int64)
        for begin in range(0, len(queries), _AT_ONCE):
            some = self._sequences(queries[begin : begin + _AT_ONCE])
            for shard in self.shards:
                low, high = intervals(shard, some)
                result[begin : begin + _AT_ONCE] += high - low
        return result

    def locate(self, query: Query, *, limit: int | None = None) -> list[Occurrence]:
        """Where a sequence occurs, in the order of the corpus; with `limit`, only the first `limit` places."""
        if limit is not None and limit < 0:
            raise InputError(
                f"limit should be a number of places, at least 0, got {limit}; leave it out for all"
            )
        found: list[Occurrence] = []
        some = self._sequences([query])
        for shard in self.shards:
            [low], [high] = intervals(shard, some)
            positions = np.sort(shard.positions(slice(low, high)))
            wanted = None if limit is None else limit - len(found)
            found += self._occurrences(shard, positions[:wanted])
        return found

    def surroundings(self, query: Query, *, around: int, limit: int) -> int:
        """How many different texts there are around the first `limit` copies of a sequence: `around` tokens before and after each.

        Copies of a whole document have one surrounding; a phrase that many documents share has many.
        """
        found: set[tuple[bytes, bytes]] = set()
        some, left = self._sequences([query]), limit
        size = len(self._tokens(query))
        for shard in self.shards:
            [low], [high] = intervals(shard, some)
            positions = np.sort(shard.positions(slice(low, high)))[:left]
            left -= len(positions)
            documents = shard.documents_at(positions)
            begins = np.maximum(positions - around, shard.starts[documents].astype(np.int64))
            ends = np.minimum(
                positions + size + around, shard.starts[documents + 1].astype(np.int64) - 1
            )  # without the symbol that ends the document
            for begin, at, end in zip(begins.tolist(), positions.tolist(), ends.tolist(), strict=True):
                found.add((shard.span(begin, at), shard.span(at + size, end)))
        return len(found)

    def longest_match(self, query: Query) -> LongestMatch:
        """The longest run of a query's tokens that occurs in the corpus."""
        tokens = self._tokens(query)
        starts = np.arange(len(tokens))
        width = self.manifest.symbol_bytes
        some = Sequences(to_symbols(tokens, width), len(tokens) - starts, width, starts=starts)
        longest = np.max([longest_prefixes(shard, some)[0] for shard in self.shards], axis=0)
        start = int(np.argmax(longest))
        length = int(longest[start])
        if not length:
            return LongestMatch(0, 0, 0, None)
        best = tokens[start : start + length]
        return LongestMatch(start, length, self.count(best), self.locate(best, limit=1)[0])

    def tokens_at(self, place: Occurrence, length: int) -> IntArray:
        """`length` tokens of a document, from an offset on."""
        for shard in self.shards:
            if not shard.documents or not shard.numbers[0] <= place.document <= shard.numbers[-1]:
                continue
            number = int(np.searchsorted(shard.numbers, place.document))
            if shard.numbers[number] != place.document:
                break
            room = int(shard.starts[number + 1]) - 1 - int(shard.starts[number]) - place.offset
            if place.offset < 0 or length < 0 or length > room:
                raise InputError(
                    f"document {place.document} has {room + place.offset:,} tokens, but those from {place.offset} to "
                    f"{place.offset + length} were requested; ask for fewer"
                )
            start = np.array([int(shard.starts[number]) + place.offset])
            row: IntArray = shard.rows_at(start, length)[0]
            return row
        raise InputError(f"the index has no document {place.document}; take one that `locate` gave")

    def document_lengths(self) -> Iterator[tuple[int, int]]:
        """Each document and how many tokens it has, in order."""
        for shard in self.shards:
            lengths = np.diff(shard.starts.astype(np.int64)) - 1
            yield from zip(shard.numbers.tolist(), lengths.tolist(), strict=True)

    def occurrences_at(self, places: IntArray) -> list[Occurrence]:
        """The documents and offsets of some places in the whole corpus, counted in symbols, in ascending order."""
        found: list[Occurrence] = []
        cuts = np.searchsorted(places, self.shard_begins)
        for shard, begin, end in zip(self.shards, cuts[:-1], cuts[1:], strict=True):
            found += self._occurrences(shard, places[begin:end] - self.shard_begins[shard.number])
        return found

    def sequences_at(self, places: IntArray, length: int) -> IntArray:
        """The tokens from places in the whole corpus on, in ascending order, one row each; none may extend over the end of its document."""
        cuts = np.searchsorted(places, self.shard_begins)
        return np.concatenate(
            [
                shard.rows_at(places[begin:end] - self.shard_begins[shard.number], length)
                for shard, begin, end in zip(self.shards, cuts[:-1], cuts[1:], strict=True)
            ]
        )

    def _occurrences(self, shard: Shard, positions: IntArray) -> list[Occurrence]:
        documents = shard.documents_at(positions)
        offsets = positions - shard.starts[documents].astype(np.int64)
        return [
            Occurrence(number, offset)
            for number, offset in zip(shard.numbers[documents].tolist(), offsets.tolist(), strict=True)
        ]

    def _tokens(self, query: Query) -> IntArray:
        tokens = self.encode(query) if isinstance(query, str) else np.asarray(query)
        if tokens.ndim != 1 or not tokens.size:
            raise InputError("a query needs at least one token, but is empty; it would occur everywhere")
        if not np.issubdtype(tokens.dtype, np.integer):
            raise InputError(
                f"the tokens of a query should be whole numbers, got {tokens.dtype}; give their ids"
            )
        if tokens.min() < 0 or tokens.max() >= self.tokenizer.size:
            raise ModelError(
                f"a query has token {tokens.min() if tokens.min() < 0 else tokens.max()}, but tokens are 0 to "
                f"{self.tokenizer.size - 1}; cut the text with the tokenizer of the index"
            )
        return tokens.astype(np.int64)

    def _sequences(self, queries: Sequence[Query] | IntArray) -> Sequences:
        width = self.manifest.symbol_bytes
        if isinstance(queries, np.ndarray) and queries.ndim == 2:
            rows, columns = queries.shape
            flat = self._tokens(queries.reshape(-1)) if rows else np.empty(0, dtype=np.int64)
            return Sequences(to_symbols(flat, width), np.full(rows, columns), width)
        if isinstance(self.tokenizer, ByteTokens) and all(isinstance(q, str) and q for q in queries):
            encoded = [utf8(q) for q in queries if isinstance(q, str)]
            symbols = np.frombuffer(b"".join(encoded), dtype=np.uint8) + np.uint8(1)
            return Sequences(symbols, np.array([len(text) for text in encoded], dtype=np.int64), 1)
        found = [self._tokens(query) for query in queries]
        flat = np.concatenate([*found, np.empty(0, dtype=np.int64)])
        return Sequences(to_symbols(flat, width), np.array([len(t) for t in found], dtype=np.int64), width)


def load_manifest(folder: Path) -> IndexManifest:
    """The manifest of an index, or a CorpusError that says why there is none."""
    path = folder / MANIFEST_FILE
    if not path.is_file():
        if (folder / UNITS_FILE).is_file():
            raise CorpusError(
                f"the index {folder} was not finished; run the same `coalmine data index` again to resume"
            )
        raise CorpusError(
            f"{folder} is not an index: it has no {MANIFEST_FILE}; make one with `coalmine data index`"
        )
    manifest = INDEXES.alone(path)
    shards = manifest.shards
    counted = (sum(shard.documents for shard in shards), sum(shard.tokens for shard in shards))
    if counted != (manifest.documents, manifest.tokens):
        raise CorpusError(
            f"{path} is damaged (its shards hold other numbers of documents or tokens than it says); build the index again, with overwrite"
        )
    return manifest


def _load_tokenizer(folder: Path, manifest: IndexManifest) -> IndexTokenizer:
    path = folder / TOKENIZER_FILE
    content = read_bytes(path, "the tokenizer of the index")
    if hashlib.sha256(content).hexdigest() != manifest.tokenizer.sha256:
        raise CorpusError(f"{path} does not match its checksum; build the index again, with overwrite")
    try:
        return from_description(json.loads(content.decode("utf-8", "surrogatepass")))
    except (ValueError, RecursionError, ModelError):
        raise CorpusError(f"{path} is not a tokenizer; build the index again, with overwrite") from None


def raw_sequences(shard: Shard, positions: IntArray, length: int) -> Sequences:
    """The `length` symbols from some positions on as sequences, ends of documents among them."""
    symbols = shard.symbol_rows(positions, length).reshape(-1)
    return Sequences(symbols, np.full(len(positions), length), shard.symbol_bytes)
