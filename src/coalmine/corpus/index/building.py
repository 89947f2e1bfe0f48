"""Building the index of a corpus, shard by shard, so that memory is bounded and a stopped build can resume."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.corpus.files.documents import Fields
from coalmine.corpus.files.reading import open_corpus, reported
from coalmine.corpus.index.batches import Batch, batches
from coalmine.corpus.index.options import IndexOptions
from coalmine.corpus.index.queries import CorpusIndex, load_manifest
from coalmine.corpus.index.shards import (
    MANIFEST_FILE,
    PADDING,
    SCHEMA,
    TOKENIZER_FILE,
    UNFINISHED_FILE,
    CorpusRecord,
    IndexManifest,
    ShardRecord,
    TokenizerRecord,
    file_name,
    symbol_bytes_for,
    write_file,
)
from coalmine.corpus.index.sorting import LARGEST_SORT, sorted_suffixes
from coalmine.corpus.index.tokenizing import IndexTokenizer, description_bytes, index_tokenizer
from coalmine.errors import CoalmineError, CorpusError, InputError, WriteError
from coalmine.models.protocols import IntArray
from coalmine.progress import Progress, Silent
from coalmine.records.documents import write_sealed
from coalmine.storage.decoding import UndecodableError, decode_json
from coalmine.storage.files import (
    PRIVATE,
    check_places,
    check_replaceable,
    remove_file,
    sha256_of_file,
    to_json,
    write_bytes,
)
from coalmine.storage.guarded_files import read_guarded, write_guarded
from coalmine.storage.unfinished import sole_use
from coalmine.storage.work_files import remove_abandoned


class _IndexPlan(msgspec.Struct, frozen=True):
    """What decides the bytes of the shards; an unfinished build is resumed only with the same plan."""

    schema: str
    # Size, modification time and inode.
    corpus: tuple[int, int, int]
    fields: Fields
    tokenizer_sha256: str
    symbol_bytes: int
    # No shard is longer than this many symbols, unless a single document is.
    shard_symbols: int


class _Unfinished(msgspec.Struct, frozen=True):
    """The shards that are finished."""

    plan: _IndexPlan
    shards: tuple[ShardRecord, ...] = ()


def build_index(
    corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
    options: IndexOptions | None = None,
    **changes: Any,
) -> CorpusIndex:
    r"""Write the index of a corpus to a directory, and open it.

    The same corpus and tokenizer give the same answers however many shards there are. A build that was stopped resumes after
    its last finished shard when it is started again in the same way.

    Args:
        corpus: a corpus file of any kind that `read_documents` reads.
        out: the directory of the index; its files hold the training data, and are readable by their owner only.
        overwrite: replace another index in `out`.
        progress: gets the bytes of the corpus that were read.
        options: the tokenizer, the memory and the fields; the default is `IndexOptions()`.
        changes: fields of `IndexOptions` by name, such as `tokenizer="model/"` or `memory=500_000_000` (bytes).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("banana\nbandana\n")
    ...     index = build_index(Path(folder, "a.txt"), Path(folder, "index"))
    ...     index.count("ana"), index.locate("band")
    (3, [Occurrence(document=2, offset=0)])
    """
    chosen = IndexOptions.of(options, changes)
    source, folder = Path(corpus), Path(out)
    cutter = index_tokenizer(chosen.tokenizer)
    with open_corpus(source, chosen.fields):
        new = not folder.exists()  # the corpus can be opened, so there will be something to put there
    described = description_bytes(cutter)
    plan = _plan(source, cutter, described, chosen)
    with sole_use(folder):
        _check_place(folder)
        if (folder / MANIFEST_FILE).is_file() and not overwrite:
            return _existing(folder, source, plan, progress)
        _build(folder, source, cutter, described, plan, new=new, progress=progress or Silent())
    return CorpusIndex.open(folder, verify=False)


def _plan(source: Path, cutter: IndexTokenizer, described: bytes, options: IndexOptions) -> _IndexPlan:
    width = symbol_bytes_for(cutter.size)
    return _IndexPlan(
        SCHEMA,
        _identity(source),
        options.fields,
        hashlib.sha256(described).hexdigest(),
        width,
        # The symbols, 4 bytes of suffix array for each of their bytes, and some room for what is small.
        max(2, min(options.memory // (5 * width + 1), LARGEST_SORT // width)),
    )


def _build(
    folder: Path,
    source: Path,
    cutter: IndexTokenizer,
    described: bytes,
    plan: _IndexPlan,
    *,
    new: bool,
    progress: Progress,
) -> None:
    """Write the shards that are not there yet, and the manifest last."""
    unfinished = _begin_or_resume(folder, plan)
    with _nothing_left_of_refused(folder, new=new):
        write_bytes(folder / TOKENIZER_FILE, described, mode=PRIVATE)
        sha256, shards = _write_shards(folder, source, cutter, unfinished, progress)
        if _identity(source) != plan.corpus:
            raise CorpusError(
                f"{source} changed while it was being read; index it again once nothing writes to it"
            )
        manifest = IndexManifest(
            schema=SCHEMA,
            corpus=CorpusRecord(source.name, sha256, plan.fields),
            tokenizer=TokenizerRecord(cutter.kind, cutter.size, plan.tokenizer_sha256),
            documents=sum(shard.documents for shard in shards),
            tokens=sum(shard.tokens for shard in shards),
            symbol_bytes=plan.symbol_bytes,
            shards=shards,
        )
        write_sealed(folder / MANIFEST_FILE, manifest, mode=PRIVATE)
        remove_file(folder / UNFINISHED_FILE)


def _check_place(folder: Path) -> None:
    """Refuse a directory in which a file of something else, such as a model, would be overwritten, or nothing can be written."""
    check_places(folder, MANIFEST_FILE, UNFINISHED_FILE, TOKENIZER_FILE)
    index = any((folder / name).is_file() for name in (MANIFEST_FILE, UNFINISHED_FILE))
    if (folder / TOKENIZER_FILE).exists() and not index:
        raise InputError(
            f"{folder} has a {TOKENIZER_FILE} that is not of an index and would be overwritten; choose another directory"
        )


def _existing(folder: Path, source: Path, plan: _IndexPlan, progress: Progress | None) -> CorpusIndex:
    """The index that exists already, if it is the one that was asked for."""
    there = load_manifest(folder)
    same = (there.tokenizer.sha256, there.corpus.fields) == (plan.tokenizer_sha256, plan.fields)
    if not same or there.corpus.sha256 != sha256_of_file(source):
        raise InputError(
            f"{folder} holds the index of another corpus, or with another tokenizer or fields; "
            "choose another directory, or allow it to be replaced with overwrite"
        )
    # Left by a build that was killed after its manifest was written.
    remove_file(folder / UNFINISHED_FILE)
    remove_abandoned(folder)
    return CorpusIndex.open(folder, progress=progress)


def _begin_or_resume(folder: Path, plan: _IndexPlan) -> _Unfinished:
    remove_abandoned(folder)  # left by a build that was killed in the middle of a file
    found = _read_unfinished(folder)
    old = [folder / MANIFEST_FILE, *sorted(folder.glob("shard-*"))]
    for path in old:
        check_replaceable(path)
    if found is None or found.plan != plan:
        # Before anything is removed: from now on the directory is recognized as an index's, whenever the build is killed.
        found = _Unfinished(plan)
        write_guarded(folder / UNFINISHED_FILE, to_json(found))
    done = {file_name(number, part) for number, shard in enumerate(found.shards) for part in shard.files}
    # The manifest first: without it, what is left of the old index is not an index.
    for path in old:
        if path.name not in done:
            remove_file(path)
    return found


def _read_unfinished(folder: Path) -> _Unfinished | None:
    """The state of a build that was stopped, or None if there is none."""
    path = folder / UNFINISHED_FILE
    if not path.exists():
        return None
    what, advice = "an index whose building was stopped", f"remove {folder} to start over"
    try:
        return decode_json(read_guarded(path, what, advice=advice), _Unfinished)
    except UndecodableError:
        raise InputError(f"{path}, the state of {what}, was written by another version; {advice}") from None


def _write_shards(
    folder: Path, source: Path, tokenizer: IndexTokenizer, unfinished: _Unfinished, progress: Progress
) -> tuple[str, tuple[ShardRecord, ...]]:
    """Write the shards that are not there yet; returns the SHA-256 of the corpus and the records of all shards."""
    plan, shards = unfinished.plan, list(unfinished.shards)
    width = plan.symbol_bytes

    def finish(waiting: _Waiting) -> None:
        shards.append(waiting.write(folder, len(shards), width))
        write_guarded(folder / UNFINISHED_FILE, to_json(_Unfinished(plan, tuple(shards))))

    with (
        open_corpus(source, plan.fields, hashed=True) as corpus,
        reported(corpus, progress, "indexing the corpus") as advance,
    ):
        waiting = _Waiting()
        for batch in batches(corpus, tokenizer, width, skip=sum(shard.documents for shard in shards)):
            begin = 0
            while begin < len(batch.numbers):
                before = int(batch.ends[begin - 1]) if begin else 0
                room = plan.shard_symbols - waiting.symbols
                end = int(np.searchsorted(batch.ends, before + room, side="right"))
                if end == begin and not waiting.symbols:
                    end = begin + 1
                waiting.add(batch.part(begin, end, width))
                begin = end
                if begin < len(batch.numbers):
                    finish(waiting)
                    waiting = _Waiting()
            advance()
        if waiting.symbols or not shards:
            finish(waiting)
        sha256 = corpus.sha256()
    return sha256, tuple(shards)


class _Waiting:
    """The documents of the shard that is being gathered."""

    def __init__(self) -> None:
        self.symbols = 0
        self._numbers: list[IntArray] = []
        self._ends: list[IntArray] = []
        # One array that grows: pieces that are joined at the end would be held twice.
        self._content = bytearray()

    def add(self, batch: Batch) -> None:
        """Add some documents."""
        if len(batch.numbers):
            self._numbers.append(batch.numbers)
            self._ends.append(batch.ends + self.symbols)
            self._content += np.ascontiguousarray(batch.symbols).data
            self.symbols += int(batch.ends[-1])

    def write(self, folder: Path, number: int, width: int) -> ShardRecord:
        """Sort the suffixes and write the files of the shard; nothing can be added afterwards."""
        if self.symbols * width > LARGEST_SORT:
            raise CorpusError(
                f"a document of {self.symbols - 1:,} tokens is too long to be indexed (at most {LARGEST_SORT // width:,}); divide it"
            )
        numbers = np.concatenate([*self._numbers, np.empty(0, dtype=np.int64)])
        starts = np.concatenate([[0], *self._ends])
        self._content += bytes(PADDING)
        padded = np.frombuffer(self._content, dtype=np.uint8)
        with ThreadPoolExecutor(1) as pool:
            # Sorting releases the interpreter lock, so the symbols are written meanwhile.
            symbols = pool.submit(write_file, folder / file_name(number, "symbols"), padded)
            suffixes = sorted_suffixes(padded[:-PADDING], width, len(numbers))
        parts: dict[str, NDArray[np.generic]] = {
            "suffixes": suffixes.astype("<u4", copy=False),
            "starts": starts.astype("<u4"),
            "numbers": numbers.astype("<i8", copy=False),
        }
        records = {
            "symbols": symbols.result(),
            **{
                part: write_file(folder / file_name(number, part), content) for part, content in parts.items()
            },
        }
        return ShardRecord(len(numbers), len(suffixes), records)


@contextlib.contextmanager
def _nothing_left_of_refused(folder: Path, *, new: bool) -> Iterator[None]:
    """Remove what was built from a corpus that cannot be indexed: once repaired it is another corpus, and nothing can be resumed."""
    try:
        yield
    except WriteError:
        raise  # once there is room again, the same command resumes after the last finished shard
    except CoalmineError:
        for path in [folder / TOKENIZER_FILE, *sorted(folder.glob("shard-*")), folder / UNFINISHED_FILE]:
            with contextlib.suppress(InputError):  # the first error is the one to report
                remove_file(path)
        if new:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _identity(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise CorpusError(f"corpus {path} cannot be read: {error.strerror}; check the path") from None
    return (found.st_size, found.st_mtime_ns, found.st_ino)
