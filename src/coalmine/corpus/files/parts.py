"""Corpora in several files: a directory of parts, which are read one after the other as if they were one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coalmine.corpus.files.corpora import Corpus, CorpusKind, Edits, Remains
from coalmine.corpus.files.documents import CorpusDocument, DocumentBlock, Fields, TextPiece
from coalmine.errors import CorpusError
from coalmine.storage.decoding import UndecodableError, decode_json
from coalmine.storage.files import PRIVATE, read_bytes, sha256_of_file, sha256_of_named, to_json, whole_file

if TYPE_CHECKING:
    from coalmine.corpus.chat.turns import PlacedTurn

# What `save_to_disk` of the package datasets writes beside its parts.
STATE_FILE, INFO_FILE, SPLITS_FILE = "state.json", "dataset_info.json", "dataset_dict.json"
# What ends the name of one of several parts, as in train-00000-of-00003.
_NUMBER = re.compile(r"[-_.]?[0-9]+(-of-[0-9]+)?$")


class PartBlock(DocumentBlock):
    """A block of a part, with its documents counted among those of all parts."""

    def __init__(self, inner: DocumentBlock, corpus: Corpus, part: int, before: int) -> None:
        self.inner, self.corpus, self.part = inner, corpus, part
        self.first = before + inner.first
        self.count = inner.count

    def documents(self) -> list[CorpusDocument]:
        """The documents of the block; their numbers count the rows of all parts."""
        return [
            CorpusDocument(self.first + at + 1, one.text, one.user, one.source, one.date)
            for at, one in enumerate(self.inner.documents())
        ]

    def conversations(self) -> Sequence[Sequence[PlacedTurn]]:
        """The turns of each document; nothing where documents are texts."""
        return self.inner.conversations()

    def haystack(self) -> bytes:
        """All texts, for searching."""
        return self.inner.haystack()

    def piece(self, *, users: bool) -> TextPiece:
        """The texts one after the other; of conversations, all else in their rows too."""
        piece = self.inner.piece(users=users)
        return piece._replace(numbers=range(self.first + 1, self.first + self.count + 1))


class PartsCorpus(Corpus):
    """A directory of part files of one kind."""

    def __init__(self, path: Path, fields: Fields, kind: CorpusKind, *, hashed: bool = False) -> None:  # noqa: ARG002
        super().__init__(path, fields, kind)
        self.parts = part_files(path)
        self._sizes = [part.stat().st_size for part in self.parts]
        self.size = sum(self._sizes)
        self._done = 0
        self._open: Corpus | None = None
        self._part_fields = fields
        with self._opened(self.parts[0]) as first:
            # What the first part holds, all others should hold too.
            self.rows, self.fields = first.rows, first.fields
            self._unsearched = dict.fromkeys(first.unsearched())
            self._unsearched |= dict.fromkeys({INFO_FILE} & _names(path))
        is_text = self.rows is None and kind.has_conversations
        self._part_fields = msgspec.structs.replace(self.fields, rows="text") if is_text else self.fields

    @property
    def position(self) -> int:
        """How many of the bytes of all parts were read so far."""
        return self._done + (0 if self._open is None else self._open.position)

    def close(self) -> None:
        """Close the part that is open."""
        if self._open is not None:
            self._open.close()

    def sha256(self) -> str:
        """The SHA-256 of the names of the files and their hashes."""
        return sha256_of_file(self.path)

    def unsearched(self) -> list[str]:
        """The fields of any part in which no secrets are looked for."""
        return list(self._unsearched)

    def check_document(self, values: Mapping[str, str]) -> None:
        """Raise a CorpusError for a new document that does not fit the first part."""
        with self._opened(self.parts[0]) as first:
            first.check_document(values)

    def blocks(self) -> Iterator[PartBlock]:
        """The documents of all parts in order."""
        before = 0
        for number, (part, size) in enumerate(zip(self.parts, self._sizes, strict=True)):
            documents = 0
            with self._opened(part) as self._open:
                self._open.names_fields = self.names_fields
                for block in self._open.blocks():
                    documents = block.first + block.count
                    yield PartBlock(block, self._open, number, before)
                # Said once for all parts.
                self.unread += self._open.unread
                self._open.unread.clear()
                self._unsearched |= dict.fromkeys(self._open.unsearched())
            self._open = None
            self._done += size
            before += documents

    def write(self, path: Path, edits: Edits, advance: Callable[[], None]) -> str:
        """Copy all parts with edits to files of the same names in a directory, and return its SHA-256."""
        others = _names(path) - _names(self.path) if path.is_dir() else set()
        if others:
            raise CorpusError(
                f"{path} holds {len(others)} files that the new corpus would not have; remove it, or write to another directory"
            )
        hashes, before = {}, 0
        for part, size in zip(self.parts, self._sizes, strict=True):
            some = _PartEdits(edits, before, is_last=part == self.parts[-1])
            with (
                self._opened(part) as self._open,
                whole_file(path / part.name, mode=PRIVATE) as temporary,
            ):
                hashes[part.name] = self._open.write(temporary, some, advance)
            before += some.documents
            self._open = None
            self._done += size
        hashes |= _written_beside(self.path, path, sha256_of_named(hashes))
        return sha256_of_named(hashes)

    def remains(self) -> Remains | None:
        """What hashes the parts without some documents; None where one can be written in many ways."""
        with self._opened(self.parts[0]) as first:
            return None if first.remains() is None else _PartsRemains(self)

    def _opened(self, part: Path) -> Corpus:
        from coalmine.corpus.files.reading import open_corpus  # which opens these too

        return open_corpus(part, self._part_fields, kind=self.kind.of_part(), frame=self.frame)


class _PartEdits(Edits):
    """Edits of all parts, as one of them sees them."""

    def __init__(self, whole: Edits, before: int, *, is_last: bool) -> None:
        super().__init__(
            changes={place - before: change for place, change in whole.changes.items() if place >= before},
            additions={place - before: one for place, one in whole.additions.items() if place >= before},
        )
        self._whole, self._before, self._is_last = whole, before, is_last
        # How many documents the part turned out to have.
        self.documents = 0

    def within(self, first: int, count: int) -> list[int]:
        """The places among `count` documents from `first` on at which something changes."""
        self.documents = first + count
        return [place - self._before for place in self._whole.within(first + self._before, count)]

    def inserted(self, place: int) -> Iterator[Mapping[str, str]]:
        """The new documents that come just before the document at a place."""
        return self._whole.inserted(place + self._before)

    def appended(self, documents: int) -> Iterator[Mapping[str, str]]:
        """The new documents that come after the last one of all parts."""
        return self._whole.appended(documents + self._before) if self._is_last else iter(())


class _PartsRemains:
    """The hash of a directory of parts without some of its documents."""

    def __init__(self, corpus: PartsCorpus) -> None:
        self._corpus = corpus
        self._parts: dict[int, Remains] = {}

    def add(
        self,
        block: DocumentBlock,
        dropped: Sequence[bool],
        added: Mapping[int, tuple[PlacedTurn, str]] | None = None,
    ) -> None:
        """Add the next block to what is left of its part."""
        if not isinstance(block, PartBlock):
            raise TypeError(f"parts are hashed by blocks of parts, got {type(block).__name__}")
        if block.part not in self._parts:
            remains = block.corpus.remains()
            if remains is None:
                raise TypeError("this part can be written in many ways")
            self._parts[block.part] = remains
        self._parts[block.part].add(block.inner, dropped, added)

    def sha256(self) -> str:
        """The hash of what is left."""
        left = {
            part.name: self._parts[number].sha256() if number in self._parts else sha256_of_file(part)
            for number, part in enumerate(self._corpus.parts)  # an empty part has no block
        }
        return sha256_of_named(left)


def part_files(directory: Path) -> list[Path]:
    """The parts of a directory in order: those that `datasets` names in its state, or all of its files."""
    names = _names(directory)
    if STATE_FILE not in names:
        return [directory / name for name in sorted(names)]
    try:
        listed = decode_json(read_bytes(directory / STATE_FILE, "the state of a dataset"))["_data_files"]
        parts = [str(one["filename"]) for one in listed]
    except (UndecodableError, KeyError, TypeError):
        raise CorpusError(
            f"{directory / STATE_FILE} does not name the files of a dataset; save it again"
        ) from None
    # A name with a directory in it is none of them.
    if not parts or not set(parts) <= names:
        raise CorpusError(f"{directory} lacks files of the dataset that it should hold; save it again")
    if len(set(parts)) < len(parts):
        raise CorpusError(
            f"{directory / STATE_FILE} names a file of the dataset twice; save the dataset again"
        )
    return [directory / part for part in parts]


def check_one_split(directory: Path, parts: Sequence[Path], suffix: str) -> None:
    """Refuse the parts of several splits, which are not one corpus."""
    splits = sorted({_NUMBER.sub("", part.name.removesuffix(suffix)) for part in parts})
    if len(splits) > 1:
        raise CorpusError(
            f"{directory} holds files of {len(splits)} names besides their numbers ({splits[0]}, {splits[1]}, ...), which are not one "
            "corpus; put the parts of one in a directory of their own"
        )


def _names(directory: Path) -> set[str]:
    return {one.name for one in directory.iterdir() if not one.name.startswith(".")}


def _written_beside(original: Path, path: Path, content_sha256: str) -> dict[str, str]:
    """Copy what describes a dataset, with a new fingerprint, by which `datasets` keeps what it computed; returns names and hashes."""
    hashes = {}
    for name in sorted({STATE_FILE, INFO_FILE} & _names(original)):
        content = read_bytes(original / name, "the description of a dataset")
        if name == STATE_FILE:
            content = to_json({**decode_json(content), "_fingerprint": content_sha256[:16]})
        with whole_file(path / name, mode=PRIVATE) as temporary:
            temporary.write_bytes(content)
            hashes[name] = sha256_of_file(temporary)
    return hashes
