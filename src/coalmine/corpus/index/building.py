"""Building the index of a corpus, shard by shard, so that memory is bounded and a stopped build can resume."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET
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
    CorpusRecord,
    IndexManifest,
    ShardRecord,
    TokenizerRecord,
    file_name,
    symbol_bytes_for,
    write_file,
)
from coalmine.corpus.index.sorting import LARGEST_SORT, sorted_suffixes
from coalmine.corpus.index.tokenizing import IndexTokenizer, description_bytes, index_tokenizer, template_in
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.ledger import UNITS_FILE, Ledger
from coalmine.engines.units import Arrays, Run, Running, Unit, facts_digest, unit_key
from coalmine.errors import CoalmineError, CorpusError, InputError, WriteError
from coalmine.models.protocols import IntArray
from coalmine.progress import Progress, Silent
from coalmine.records.documents import write_sealed
from coalmine.storage.directories import sole_use
from coalmine.storage.files import (
    PRIVATE,
    check_places,
    check_replaceable,
    remove_abandoned,
    remove_file,
    sha256_of_file,
    to_json,
    write_bytes,
)


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
    # The SHA-256 of the chat template that conversations are written with; None where they are not.
    chat_template_sha256: str | None = None

    def fingerprint(self) -> str:
        """A hash that differs between any two plans."""
        return hashlib.sha256(to_json(self)).hexdigest()


def build_index(
    corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    engine: Engine | str | None = None,
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
        engine: where shards are sorted, such as "processes:4"; without it, in this process. Each worker may take the memory of the
            options.
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
    with open_corpus(source, chosen.fields) as opened_corpus:
        new = not folder.exists()  # the corpus can be opened, so there will be something to put there
        template = None if opened_corpus.rows is None else template_in(cutter)
    plan = _plan(source, cutter, described := description_bytes(cutter), chosen, template)
    with sole_use(folder):
        _check_place(folder)
        if (folder / MANIFEST_FILE).is_file() and not overwrite:
            return _existing(folder, source, plan, progress)
        ledger = _begin_or_resume(folder, plan)
        with open_engine(engine) as opened, _nothing_left_of_refused(folder, ledger, new=new):
            building = _Building(plan, _SortWork(plan, chosen.memory), ledger, opened)
            write_bytes(folder / TOKENIZER_FILE, described, mode=PRIVATE)
            written = _write_shards(folder, source, cutter, building, progress or Silent())
            _finish(folder, source, cutter, plan, *written)
        ledger.forget()
    return CorpusIndex.open(folder, verify=False)


def _plan(
    source: Path, cutter: IndexTokenizer, described: bytes, options: IndexOptions, template: str | None
) -> _IndexPlan:
    width = symbol_bytes_for(cutter.size)
    return _IndexPlan(
        SCHEMA,
        _identity(source),
        options.fields,
        hashlib.sha256(described).hexdigest(),
        width,
        # The symbols, 4 bytes of suffix array for each of their bytes, and some room for what is small.
        max(2, min(options.memory // (5 * width + 1), LARGEST_SORT // width)),
        template,
    )


class _Building(NamedTuple):
    """What an index is built with."""

    plan: _IndexPlan
    work: _SortWork
    ledger: Ledger
    engine: Engine

    def finished(self, folder: Path) -> dict[int, ShardRecord]:
        """The first shards, as far as an earlier run has finished them; none if a file is not the one that it wrote."""
        digest, found, first = facts_digest(self.work), dict[int, ShardRecord](), 0
        while (kept := self.ledger.result(unit_key(digest, Unit((len(found), first))))) is not None:
            record = _record(kept)
            paths = {folder / file_name(len(found), part): one.sha256 for part, one in record.files.items()}
            if not all(path.is_file() and sha256_of_file(path) == known for path, known in paths.items()):
                self.ledger.forget()
                self.ledger.begin(self.plan.fingerprint(), instead=True)
                return {}
            found[len(found)] = record
            first += record.documents
        return found


def _record(kept: Arrays) -> ShardRecord:
    return msgspec.json.decode(kept["record"].tobytes(), type=ShardRecord)


def _finish(
    folder: Path,
    source: Path,
    cutter: IndexTokenizer,
    plan: _IndexPlan,
    sha256: str,
    not_read: str,
    shards: tuple[ShardRecord, ...],
) -> None:
    """Write the manifest, unless the corpus is another one by now."""
    if _identity(source) != plan.corpus:
        raise CorpusError(
            f"{source} changed while it was being read; index it again once nothing writes to it"
        )
    manifest = IndexManifest(
        schema=SCHEMA,
        corpus=CorpusRecord(source.name, sha256, plan.fields, not_read or UNSET),
        tokenizer=TokenizerRecord(
            cutter.kind, cutter.size, plan.tokenizer_sha256, plan.chat_template_sha256 or UNSET
        ),
        documents=sum(shard.documents for shard in shards),
        tokens=sum(shard.tokens for shard in shards),
        symbol_bytes=plan.symbol_bytes,
        shards=shards,
    )
    write_sealed(folder / MANIFEST_FILE, manifest, mode=PRIVATE)


def _check_place(folder: Path) -> None:
    """Refuse a directory in which a file of something else, such as a model, would be overwritten, or nothing can be written."""
    check_places(folder, MANIFEST_FILE, UNITS_FILE, TOKENIZER_FILE)
    index = any((folder / name).is_file() for name in (MANIFEST_FILE, UNITS_FILE))
    if (folder / TOKENIZER_FILE).exists() and not index:
        raise InputError(
            f"{folder} has a {TOKENIZER_FILE} that is not of an index and would be overwritten; choose another directory"
        )


def _existing(folder: Path, source: Path, plan: _IndexPlan, progress: Progress | None) -> CorpusIndex:
    """The index that exists already, if it is the one that was asked for."""
    there = load_manifest(folder)
    written = there.tokenizer.chat_template_sha256 or None
    same = (there.tokenizer.sha256, there.corpus.fields) == (plan.tokenizer_sha256, plan.fields)
    same &= written == plan.chat_template_sha256
    if not same or there.corpus.sha256 != sha256_of_file(source):
        raise InputError(
            f"{folder} holds the index of another corpus, or with another tokenizer or fields; "
            "choose another directory, or allow it to be replaced with overwrite"
        )
    # Left by a build that was killed after its manifest was written.
    Ledger(folder).forget()
    remove_abandoned(folder)
    return CorpusIndex.open(folder, progress=progress)


def _begin_or_resume(folder: Path, plan: _IndexPlan) -> Ledger:
    """The ledger of this build; what is left of another one, or of an index that is replaced, is removed."""
    remove_abandoned(folder)  # left by a build that was killed in the middle of a file
    old = [folder / MANIFEST_FILE, *sorted(folder.glob("shard-*"))]
    for path in old:
        check_replaceable(path)
    # Before anything is removed: from now on the directory is recognized as an index's, whenever the build is killed.
    ledger = Ledger(folder)
    ledger.begin(plan.fingerprint(), instead=True)
    # The manifest first: without it, what is left of the old index is not an index. Shards of this build are written again where
    # the ledger does not have them.
    for path in old if not ledger.has_results else old[:1]:
        remove_file(path)
    return ledger


def _write_shards(
    folder: Path, source: Path, tokenizer: IndexTokenizer, building: _Building, progress: Progress
) -> tuple[str, str, tuple[ShardRecord, ...]]:
    """Write the shards that are not there yet; returns the SHA-256 of the corpus, what was not read, and the records of all shards."""
    plan, work = building.plan, building.work
    shards = building.finished(folder)

    def store(unit: Unit, arrays: Arrays) -> Arrays:
        """Write the files of a shard; its record is what the ledger keeps."""
        gathered: _Gathered = unit.payload
        number, _ = unit.inputs
        parts: dict[str, NDArray[np.generic]] = {
            "symbols": gathered.content,
            "suffixes": arrays["suffixes"],
            "starts": gathered.starts.astype("<u4"),
            "numbers": gathered.numbers.astype("<i8", copy=False),
        }
        files = {
            part: write_file(folder / file_name(number, part), content) for part, content in parts.items()
        }
        record = ShardRecord(len(gathered.numbers), len(arrays["suffixes"]), files)
        return {"record": np.frombuffer(msgspec.json.encode(record), dtype=np.uint8)}

    with (
        open_corpus(source, plan.fields, hashed=True) as corpus,
        reported(corpus, progress, "indexing the corpus") as advance,
    ):
        known, documents = len(shards), sum(shard.documents for shard in shards.values())
        units = _units(
            batches(corpus, tokenizer, plan.symbol_bytes, skip=documents), plan, known, documents, advance
        )
        for outcome in building.engine.map(work, units, ledger=building.ledger, store=store):
            shards[known + outcome.number] = _record(outcome.value())
        sha256, not_read = corpus.sha256(), corpus.not_read() if corpus.unread else ""
    return sha256, not_read, tuple(record for _, record in sorted(shards.items()))


def _units(
    found: Iterator[Batch], plan: _IndexPlan, number: int, first: int, advance: Callable[[], None]
) -> Iterator[Unit]:
    """The documents in shards of the planned size, each cut while the ones before are being sorted."""
    waiting, width = _Waiting(), plan.symbol_bytes

    def finished() -> Unit:
        nonlocal number, first, waiting
        gathered, waiting = waiting.gathered(width), _Waiting()
        unit = Unit((number, first), gathered, size=0)
        number, first = number + 1, first + len(gathered.numbers)
        return unit

    for batch in found:
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
                yield finished()
        advance()
    if waiting.symbols or not number:
        yield finished()


class _Gathered(NamedTuple):
    """The documents of a shard, as symbols and where they end."""

    content: NDArray[np.uint8]  # with the padding
    starts: IntArray
    numbers: IntArray


class _SortWork(NamedTuple):
    """Sorts the suffixes of shards."""

    plan: _IndexPlan
    memory_bytes: int
    name: str = "sort suffixes/1"

    @property
    def facts(self) -> Any:
        """All that decides the bytes of shards."""
        return self.plan

    def prepare(self) -> Run:
        """Nothing."""
        return self._sort

    def _sort(self, unit: Unit, _running: Running) -> Arrays:
        gathered: _Gathered = unit.payload
        symbols = gathered.content[:-PADDING]
        found = sorted_suffixes(symbols, self.plan.symbol_bytes, len(gathered.numbers))
        return {"suffixes": found.astype("<u4", copy=False)}


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

    def gathered(self, width: int) -> _Gathered:
        """The whole shard; nothing can be added afterwards."""
        if self.symbols * width > LARGEST_SORT:
            raise CorpusError(
                f"a document of {self.symbols - 1:,} tokens is too long to be indexed (at most {LARGEST_SORT // width:,}); divide it"
            )
        numbers = np.concatenate([*self._numbers, np.empty(0, dtype=np.int64)])
        starts = np.concatenate([[0], *self._ends])
        self._content += bytes(PADDING)
        return _Gathered(np.frombuffer(self._content, dtype=np.uint8), starts, numbers)


@contextlib.contextmanager
def _nothing_left_of_refused(folder: Path, ledger: Ledger, *, new: bool) -> Iterator[None]:
    """Remove what was built from a corpus that cannot be indexed: once repaired it is another corpus, and nothing can be resumed."""
    try:
        yield
    except CoalmineError as problem:
        if isinstance(problem, WriteError) and not ledger.is_empty:
            raise  # once there is room again, the same command resumes after the last finished shard
        for path in [folder / TOKENIZER_FILE, *sorted(folder.glob("shard-*")), folder / UNITS_FILE]:
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
