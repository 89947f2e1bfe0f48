"""Scans a corpus for secrets: one pass in constant memory, in which every place is written down and everything is counted."""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coalmine.corpus.files.corpora import Corpus
from coalmine.corpus.files.documents import Fields, TextPiece
from coalmine.corpus.files.reading import open_corpus, reported
from coalmine.corpus.files.streams import HashedWriter
from coalmine.corpus.outputs import exists_already, first_in_the_way, sole_writing
from coalmine.corpus.secrets.finding import Found, SecretFinder
from coalmine.corpus.secrets.kinds import chosen_kinds
from coalmine.corpus.secrets.results import (
    DISTINCT_FILE,
    OCCURRENCES_FILE,
    SCAN_FILE,
    SCANS,
    USERS_FILE,
    Scan,
    SecretOccurrence,
    finished_before,
)
from coalmine.corpus.secrets.tallying import Tally
from coalmine.errors import CorpusError, InputError
from coalmine.formats.format import Format
from coalmine.progress import Progress, Silent
from coalmine.storage.directories import UNFINISHED_FILE, work_directory
from coalmine.storage.files import PRIVATE, check_places, refused_writing, together, whole_file

if TYPE_CHECKING:
    from coalmine.corpus.index.queries import CorpusIndex

_ENCODER = msgspec.json.Encoder()
# Records that are written together.
_AT_ONCE = 1 << 10
# Bytes that may have been read when something before them is still asked about.
_DELAY = 4 << 20


def scan(
    corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    kinds: Sequence[str] | None = None,
    formats: Sequence[Format | str] = (),
    fields: Fields | None = None,
    index: CorpusIndex | str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    record: Callable[[Scan], None] | None = None,
) -> Scan:
    r"""Find the secrets that are in a corpus: personal numbers, payment cards, accounts, addresses, keys, and your own formats.

    The result counts them by kind, by user and by number of copies, beside what chance alone would let pass, and holds none of them.
    The secrets are in `occurrences.jsonl` and `distinct.jsonl`, which only you can read. Memory does not grow with the corpus.

    Args:
        corpus: a corpus file of any kind that `read_documents` reads.
        out: the directory for `scan.json`, `occurrences.jsonl` and `distinct.jsonl`.
        kinds: names of kinds, such as "ssn" and "card"; None for all that coalmine knows.
        formats: further kinds, as secret formats, such as "employee {digits:6}".
        fields: which fields of a row hold what; with `user`, secrets are counted by user. .txt has none.
        index: an index of the same corpus, or its directory; copies of each secret are then counted anywhere in it too.
        overwrite: replace what an earlier scan wrote to `out`. Without it, what the very same call wrote there is left as it is, and
            anything else is refused.
        progress: gets how much of the file was read.
        record: called with the result; what it writes appears together with the other files.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("ann is 219-09-9998\nbob is 219 09 9998, not 000-12-3456\n")
    ...     found = scan(Path(folder, "a.txt"), Path(folder, "scan"), kinds=["ssn"])
    >>> found.kinds[0].occurrences, found.kinds[0].secrets, found.kinds[0].shaped
    (2, 1, 2)
    """
    source, folder, chosen = Path(corpus), Path(out), fields or Fields()
    finder = SecretFinder(chosen_kinds(kinds, formats))
    written = [OCCURRENCES_FILE, DISTINCT_FILE, *([USERS_FILE] if chosen.user else []), SCAN_FILE]
    check_places(folder, *written, UNFINISHED_FILE)
    places = [] if overwrite else [folder / name for name in written]
    if (there := first_in_the_way(*places)) is not None:
        done = finished_before(source, folder, finder.kinds, chosen, is_indexed=index is not None)
        if done is None:
            raise exists_already(there)
        return done
    opened_index = _opened(index, progress or Silent())
    with (
        open_corpus(source, chosen, hashed=True) as opened,
        sole_writing(folder, written, places),
        refused_writing(folder),
        work_directory(folder) as work,
        together() as group,
    ):
        tally = Tally(finder.kinds, work, index=opened_index, has_users=chosen.user is not None)
        made = _scanned(_Reading(opened), finder, tally, folder, progress or Silent())
        if opened_index is not None:
            _check_index(opened_index, made)
            made = msgspec.structs.replace(made, is_indexed=True)
        if made.users is None:
            group.remove(folder / USERS_FILE)
        SCANS.save(folder, made)
        if record is not None:
            record(made)
    return made


def _scanned(reading: _Reading, finder: SecretFinder, tally: Tally, folder: Path, progress: Progress) -> Scan:
    """Go over the corpus, and write all but scan.json."""
    corpus = reading.corpus
    with (
        _private_lines(folder / OCCURRENCES_FILE) as occurrences,
        reported(corpus, progress, "scanning") as advance,
    ):
        for candidates in finder.batches(reading.contents(advance)):
            found = reading.occurrences(candidates)
            occurrences.add(found)
            tally.add(found)
            for kind, _, _, text, value, _ in candidates:
                if value is None:
                    tally.add_failed(kind.name, text)
    reading.check()
    with _private_lines(folder / DISTINCT_FILE) as distinct:
        distinct.add(tally.distinct())
    users_sha256 = None
    if tally.users is not None:
        with _private_lines(folder / USERS_FILE) as users:
            users.add(tally.by_users())
        users_sha256 = users.sha256
    return Scan(
        corpus=corpus.path.name,
        corpus_sha256=corpus.sha256(),
        documents=reading.documents,
        bytes=reading.bytes,
        fields=corpus.fields,
        not_searched=tuple(corpus.unsearched()),
        kinds=tally.kinds(),
        users=tally.users,
        by_user=tally.by_user(),
        repeated=tally.repeated(),
        occurrences_sha256=occurrences.sha256,
        distinct_sha256=distinct.sha256,
        users_sha256=users_sha256,
    )


class _Lines:
    """Records that are written one per line, many at a time."""

    def __init__(self, writer: HashedWriter) -> None:
        self._writer = writer
        self.sha256 = ""

    def add(self, records: Iterable[msgspec.Struct]) -> None:
        """Write some more."""
        left = iter(records)
        while some := list(islice(left, _AT_ONCE)):
            self._writer.write(_ENCODER.encode_lines(some))

    def end(self) -> None:
        """Nothing follows."""
        self.sha256 = self._writer.hexdigest()


@contextlib.contextmanager
def _private_lines(path: Path) -> Iterator[_Lines]:
    """A file of lines that only its owner can read; its hash is known afterwards."""
    with whole_file(path, mode=PRIVATE) as temporary, contextlib.closing(HashedWriter(temporary)) as writer:
        lines = _Lines(writer)
        yield lines
        lines.end()


class _Reading:
    """The texts of a corpus as they are read, and which document each byte belongs to."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.documents = self.bytes = 0
        self._changed_at = corpus.path.stat().st_mtime_ns
        # The pieces that may still be asked about: where each begins and ends, and where its first text begins.
        self._pieces: deque[tuple[int, int, int, TextPiece]] = deque()
        self._length = self._last_begin = 0

    def contents(self, advance: Callable[[], None]) -> Iterator[bytes]:
        """The bytes of all texts; once `_DELAY` more were taken, nobody asks about them anymore."""
        for piece in self.corpus.pieces():
            begin = self._length
            while self._pieces and self._pieces[0][1] < begin - _DELAY:
                self._pieces.popleft()
            self._length += len(piece.content)
            first_begin = self._last_begin if piece.continues else begin
            # Without its text, of which there would be several megabytes.
            self._pieces.append((begin, self._length, first_begin, piece._replace(content=b"")))
            self.documents += len(piece.numbers) - piece.continues
            self.bytes += len(piece.content) - len(piece.numbers) + piece.goes_on
            self._last_begin = begin + piece.ends[-2] if len(piece.ends) > 1 else first_begin
            yield piece.content
            advance()

    def occurrences(self, candidates: Sequence[Found]) -> list[SecretOccurrence]:
        """Where the secrets among them are; they are asked for in order."""
        found: list[SecretOccurrence] = []
        # Where the piece ends that the last one was in, and its document; and where that document begins.
        piece_end = document_end = first = document = -1
        user: str | None = None
        for kind, start, end, text, value, specimen in candidates:
            if value is None:
                continue
            if start >= piece_end:
                begin, piece_end, first_begin, piece = self._piece_at(start)
                ends, numbers, users = piece.ends, piece.numbers, piece.users
            if start >= document_end:
                place = bisect_right(ends, start - begin)
                first, document_end = begin + ends[place - 1] if place else first_begin, begin + ends[place]
                document, user = numbers[place], None if users is None else users[place]
            found.append(
                SecretOccurrence(document, user, kind.name, start - first, end - first, text, value, specimen)
            )
        return found

    def _piece_at(self, start: int) -> tuple[int, int, int, TextPiece]:
        """Where the piece begins that has this byte, where it ends, where its first document begins, and the piece."""
        while self._pieces[0][1] <= start:
            self._pieces.popleft()
        return self._pieces[0]

    def check(self) -> None:
        """Raise a CorpusError if there was nothing, or if it changed meanwhile."""
        path = self.corpus.path
        if not self.documents:
            raise CorpusError(f"{path} holds no documents; check that it is the file you mean")
        if path.stat().st_mtime_ns != self._changed_at:
            raise CorpusError(f"{path} changed while it was being read; run again once nothing writes to it")


def _opened(index: CorpusIndex | str | os.PathLike[str] | None, progress: Progress) -> CorpusIndex | None:
    from coalmine.corpus.index.queries import CorpusIndex

    return (
        index
        if index is None or isinstance(index, CorpusIndex)
        else CorpusIndex.open(index, progress=progress)
    )


def _check_index(index: CorpusIndex, made: Scan) -> None:
    if index.manifest.corpus.sha256 != made.corpus_sha256:
        raise InputError(
            f"the index {index.path} is not one of {made.corpus}, but of a file with other content; make one with `coalmine data index`"
        )
