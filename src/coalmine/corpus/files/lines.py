"""Files of UTF-8 lines: what plain text, JSON Lines, CSV and TSV share in reading and writing."""

from __future__ import annotations

import codecs
import contextlib
import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from coalmine.corpus.files.corpora import Addition, Corpus, CorpusKind, Edits
from coalmine.corpus.files.documents import CorpusDocument, DocumentBlock, Fields, LineBlock
from coalmine.corpus.files.streams import HashedWriter, compressed_sink, decompressed_blocks, open_metered
from coalmine.errors import CorpusError

if TYPE_CHECKING:
    from coalmine.corpus.chat.turns import PlacedTurn
    from coalmine.corpus.files.strings import Change

# As long as an indexed document can be; a few kilobytes of compressed data can expand to a line of any length.
LONGEST_LINE = 1 << 31
# Bytes that are looked at together when only some of a block may be other than ASCII.
_CHECKED_BYTES = 1 << 12


class LineCorpus(Corpus):
    """A file of UTF-8 lines that is open for one pass."""

    def __init__(self, path: Path, fields: Fields, kind: CorpusKind, *, hashed: bool = False) -> None:
        self._file = open_metered(path, hashed=hashed)
        super().__init__(path, fields, kind)
        # What comes before the first document and stays there: a byte order mark, the names of columns. Both this and the
        # line break are known once the first block was read.
        self.header = b""
        self.line_break = b"\n"
        # The number of the first line of the current block; `blocks` of each subclass moves it forward.
        self.line = 1

    @property
    def position(self) -> int:
        """How many of the file's bytes were read so far."""
        return self._file.position

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def sha256(self) -> str:
        """The SHA-256 of the file's bytes."""
        return self._file.hexdigest()

    @abstractmethod
    def blocks(self) -> Iterator[LineBlock]:
        """The documents in order; can be iterated over once."""

    @abstractmethod
    def row(self, values: Mapping[str, str]) -> bytes:
        """A new document, from role to value, as bytes without a line break."""

    @abstractmethod
    def changed_row(self, document: CorpusDocument, row: bytes, text: str) -> bytes:
        """The bytes of a document, without its line break, with another text."""

    @abstractmethod
    def rewritten(self, row: bytes, change: Change) -> bytes:
        """The bytes of a document, without its line break, in which every string went through `change`."""

    def added_row(self, turns: Sequence[PlacedTurn], row: bytes, addition: Addition) -> bytes:  # noqa: ARG002
        """The bytes of a conversation, without its line break, with something added to a turn."""
        raise TypeError(f"{self.kind.title} holds no conversations")

    def without_addition(self, row: bytes, turn: PlacedTurn, text: str) -> bytes:  # noqa: ARG002
        """The bytes of a conversation, without its line break, as they were before a text was added to a turn."""
        raise TypeError(f"{self.kind.title} holds no conversations")

    def check_document(self, values: Mapping[str, str]) -> None:
        """Raise a CorpusError for a document that cannot be written."""
        self.row(values)

    def place(self, line: int) -> str:
        """How messages name a line."""
        return f"{self.path}, line {line}"

    def write(self, path: Path, edits: Edits, advance: Callable[[], None]) -> str:
        """Copy the lines with edits; all other bytes stay as they were."""
        with contextlib.closing(HashedWriter(path)) as raw:
            with compressed_sink(raw, self.path, self.kind.compression) as sink:
                for piece in self._edited(edits, advance):
                    sink.write(piece)
            raw.flush()
        return raw.hexdigest()

    def remains(self) -> RemainingLines | None:
        """What hashes the file without some documents; a compressed file can be written in many ways."""
        return None if self.kind.compression else RemainingLines(self)

    def whole_lines(self) -> Iterator[bytes]:
        """The content, without the byte order mark, in blocks that end with a line."""
        for raw in self._cut_after_lines():
            self.check_utf8(raw)
            yield raw

    def check_utf8(self, raw: bytes) -> None:
        """Raise a CorpusError that names the line, counted from the current one, if this is not UTF-8."""
        try:
            if not _is_ascii_or_utf8(raw):
                raw.decode("utf-8")
        except UnicodeDecodeError as error:
            at = self.line + raw.count(b"\n", 0, error.start)
            raise CorpusError(
                f"{self.place(at)} is not UTF-8 (byte 0x{raw[error.start]:02x}); convert the corpus to UTF-8"
            ) from None

    def parts_of_lines(self) -> Iterator[bytes]:
        """The same in blocks that end with a line where one ends in them, and otherwise in the middle of it, after a character."""
        rest, begun = b"", False
        for block in decompressed_blocks(self._file, self.path, self.kind.compression):
            raw = rest + block
            if not begun:
                raw, begun = self._begin(raw), True
            cut = raw.rfind(b"\n") + 1 or _last_character(raw)
            rest = raw[cut:]
            if raw[:cut]:
                self.check_utf8(raw[:cut])
                yield raw[:cut]
        if rest:
            self.check_utf8(rest)
            yield rest

    def _edited(self, edits: Edits, advance: Callable[[], None]) -> Iterator[bytes]:
        ends_with_line_break = True
        documents = 0
        for number, block in enumerate(self.blocks()):
            if number == 0:
                # Known only now: it was read together with the first block.
                yield self.header
            yield from self._edited_block(block, edits)
            ends_with_line_break = block.raw.endswith(b"\n")
            documents = block.first + block.count
            advance()
        # A corpus whose last line has no line break stays one, so that removing the new lines gives the old bytes.
        for values in edits.appended(documents):
            row = self.row(values)
            yield row + self.line_break if ends_with_line_break else self.line_break + row

    def _edited_block(self, block: LineBlock, edits: Edits) -> Iterator[bytes]:
        places = edits.within(block.first, block.count)
        written = 0
        if places:
            spans = block.spans()
            by_text = edits.everywhere is None and any(place in edits.changes for place in places)
            documents = block.documents() if by_text else ()
        for place in places:
            begin, end = spans[place - block.first]
            yield block.raw[written:begin]
            for values in edits.inserted(place):
                yield self.row(values) + self.line_break
            written = begin
            row, line_end = _without_line_break(block.raw[begin:end])
            if place in edits.changes:
                change = edits.changes[place]
                if change is not None and edits.everywhere is not None:
                    yield self.rewritten(row, change) + line_end
                elif change is not None:
                    document = documents[place - block.first]
                    yield self.changed_row(document, row, change(document.text)) + line_end
                written = end
            elif place in edits.additions:
                turns = block.conversations()[place - block.first]
                yield self.added_row(turns, row, edits.additions[place]) + line_end
                written = end
        yield block.raw[written:]

    def _cut_after_lines(self) -> Iterator[bytes]:
        waiting: list[bytes] = []
        begun = False
        for block in decompressed_blocks(self._file, self.path, self.kind.compression):
            cut = block.rfind(b"\n") + 1
            if not cut:
                waiting.append(block)
                if sum(map(len, waiting)) > LONGEST_LINE:
                    raise CorpusError(
                        f"{self.path} has a line of more than {LONGEST_LINE:,} bytes, and a document is one line; divide it"
                    )
                continue
            whole = b"".join([*waiting, memoryview(block)[:cut]])
            waiting = [block[cut:]] if cut < len(block) else []
            if not begun:
                whole = self._begin(whole)
                begun = True
            if whole:
                yield whole
        rest = b"".join(waiting)
        if not begun:
            rest = self._begin(rest)
        if rest:
            yield rest

    def _begin(self, start: bytes) -> bytes:
        if start.startswith(codecs.BOM_UTF8):
            self.header = codecs.BOM_UTF8
            start = start[len(codecs.BOM_UTF8) :]
        if start[: start.find(b"\n") + 1].endswith(b"\r\n"):
            self.line_break = b"\r\n"
        return start


def _without_line_break(line: bytes) -> tuple[bytes, bytes]:
    """What is on a line, and how it ends."""
    row = line.removesuffix(b"\n").removesuffix(b"\r") if line.endswith(b"\n") else line
    return row, line[len(row) :]


def _is_ascii_or_utf8(raw: bytes) -> bool:
    """Whether bytes are UTF-8; those that are ASCII, mostly nearly all, are not decoded."""
    if raw.isascii():
        return True
    decoder = codecs.getincrementaldecoder("utf-8")()
    within = False
    try:
        for begin in range(0, len(raw), _CHECKED_BYTES):
            some = raw[begin : begin + _CHECKED_BYTES]
            if within or not some.isascii():
                decoder.decode(some)
                within = bool(decoder.getstate()[0])
    except UnicodeDecodeError:
        return False
    return not within


def _last_character(raw: bytes) -> int:
    """Where the last character begins, which may be cut off."""
    places = range(len(raw) - 1, max(-1, len(raw) - 5), -1)
    return next((at for at in places if raw[at] & 0xC0 != 0x80), len(raw))


class RemainingLines:
    """The hash of a file of lines without some of its documents."""

    def __init__(self, corpus: LineCorpus) -> None:
        self._corpus = corpus
        self._digest = hashlib.sha256()
        # The last bytes that stay, which may turn out to be a line break that came with a planted document.
        self._tail = b""
        self._begun = False
        self._ends_with_dropped = False

    def add(
        self,
        block: DocumentBlock,
        dropped: Sequence[bool],
        added: Mapping[int, tuple[PlacedTurn, str]] | None = None,
    ) -> None:
        """Add a block, without the documents that are marked, and without what was added to turns of others."""
        if not isinstance(block, LineBlock):
            raise TypeError(f"lines are hashed by blocks of lines, got {type(block).__name__}")
        if not self._begun:
            self._begun = True
            self._keep(self._corpus.header)
        start = 0
        end = 0
        for number, ((begin, end), drop) in enumerate(zip(block.spans(), dropped, strict=True)):
            if drop:
                self._keep(block.raw[start:begin])
                start = end
            elif added and number in added:
                row, line_end = _without_line_break(block.raw[begin:end])
                self._keep(block.raw[start:begin])
                self._keep(self._corpus.without_addition(row, *added[number]) + line_end)
                start = end
        self._keep(block.raw[start:])
        ends_with_dropped = start == end == len(block.raw) and bool(dropped) and dropped[-1]
        self._ends_with_dropped = ends_with_dropped and not block.raw.endswith(b"\n")

    def sha256(self) -> str:
        """The hash of what is left."""
        # Where the last line has no line break and was planted, the line break before it was planted too.
        tail = self._tail.removesuffix(self._corpus.line_break) if self._ends_with_dropped else self._tail
        self._digest.update(tail)
        return self._digest.hexdigest()

    def _keep(self, content: bytes) -> None:
        if content:
            content = self._tail + content
            self._digest.update(content[:-2])
            self._tail = content[-2:]
