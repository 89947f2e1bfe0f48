"""What an audit looks at of a corpus: its size, a sample of its documents, and one of its users; read once, in constant memory."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from coalmine.audits.provenance.users import User, UserText
from coalmine.corpus.files.documents import CorpusDocument, Fields
from coalmine.corpus.files.kinds import kind_of
from coalmine.corpus.files.reading import nonempty_blocks, open_corpus, reported
from coalmine.errors import InputError
from coalmine.progress import Progress
from coalmine.randomness import child_seed

# The most documents, users, and texts of one user that are kept, and how many characters of each.
DOCUMENTS, USERS, TEXTS, CHARACTERS = 2_000, 400, 32, 8_000


class CorpusSample(NamedTuple):
    """What is kept of a corpus.

    Attributes:
        documents: how many there are with any text.
        characters: of all of them together.
        sample: some of them, in a random order, each as a user of its own.
        users: some of its users, in a random order, with some texts each; empty where no user field is named.
    """

    documents: int
    characters: int
    sample: tuple[User, ...]
    users: tuple[User, ...] = ()


class Gathered(NamedTuple):
    """What is kept of the training data and of the held-out text."""

    training: CorpusSample
    held_out: CorpusSample | None = None
    # What to know about them, in a sentence each.
    warnings: tuple[str, ...] = ()

    @property
    def characters(self) -> int:
        """Of both together."""
        return self.training.characters + (0 if self.held_out is None else self.held_out.characters)


def gather(data: Path, held_out: Path | None, fields: Fields, seed: int, progress: Progress) -> Gathered:
    """Read the training data and the held-out text once each; documents and users of the latter that are in the former are left out.

    Held-out text that is all in the training data is an InputError.
    """
    if held_out is None:
        return Gathered(_read(data, fields, seed, progress, set(), "the training data"))
    kept = _read(held_out, fields, seed, progress, set(), "the held-out text")
    alone = {_of_text(one.texts[0].text) for one in kept.sample} | {_of_user(one.name) for one in kept.users}
    training = _read(data, fields, seed, progress, alone, "the training data")
    sample = tuple(one for one in kept.sample if _of_text(one.texts[0].text) in alone)
    users = tuple(one for one in kept.users if _of_user(one.name) in alone)
    if not sample:
        raise InputError(
            f"every document of the held-out text {held_out} is in the training data {data} too, so there is nothing to compare with; "
            "give text that the model was not trained on"
        )
    warnings = []
    for left_out, there, what in (
        (len(kept.sample) - len(sample), len(kept.sample), "held-out documents"),
        (len(kept.users) - len(users), len(kept.users), "held-out users"),
    ):
        if left_out:
            warnings.append(
                f"{left_out:,} of {there:,} {what} are in the training data too, and were left out"
            )
    return Gathered(training, kept._replace(sample=sample, users=users), tuple(warnings))


def _digest(name: str, key: bytes) -> bytes:
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=key, digest_size=16).digest()


def _of_text(text: str) -> bytes:
    return _digest(text[:CHARACTERS].strip(), b"text")


def _of_user(name: str) -> bytes:
    return _digest(name, b"user")


def _read(
    path: Path, fields: Fields, seed: int, progress: Progress, alone: set[bytes], what: str
) -> CorpusSample:
    """Samples of a corpus; what it has of the texts and users in `alone` is removed from there."""
    documents, characters, unit = 0, 0, kind_of(path).unit
    texts, people = _Smallest(DOCUMENTS, 1, seed), _Smallest(USERS, TEXTS, seed)
    with open_corpus(path, fields) as corpus, reported(corpus, progress, f"reading {what}") as advance:
        for block in nonempty_blocks(corpus):
            for document in block.documents():
                if document.text.strip():
                    documents += 1
                    characters += len(document.text)
                    alone.discard(texts.offered(_of_text(document.text), document))
                    if document.user:
                        alone.discard(people.offered(_of_user(document.user), document))
            advance()
    if not documents:
        raise InputError(f"{path}, {what}, has no text; check that it is the file you mean")
    return CorpusSample(
        documents,
        characters,
        tuple(User(f"{unit} {one[0].number}", _texts(one)) for one in texts.kept()),
        tuple(User(one[0].user or "", _texts(one)) for one in people.kept()),
    )


def _texts(documents: Iterable[CorpusDocument]) -> tuple[UserText, ...]:
    return tuple(UserText(one.text[:CHARACTERS], one.source, one.date, one.number) for one in documents)


class _Smallest:
    """Documents by the hashes of their texts or users: those with the smallest hashes, in the order of these, which is a random one.

    All documents of a user can be seen in one pass so, and a text counts once, however often it occurs.
    """

    def __init__(self, most: int, documents: int, seed: int) -> None:
        self._most, self._each = most, documents
        self._key = child_seed(seed, "audit", "sample").to_bytes(16, "big")
        # The largest first, to be replaced.
        self._order: list[tuple[int, bytes]] = []
        self._kept: dict[bytes, list[CorpusDocument]] = {}

    def offered(self, digest: bytes, document: CorpusDocument) -> bytes:
        """The digest of a document, which is kept if it is among the smallest and the first of them."""
        if digest not in self._kept:
            entry = (-self._rank(digest), digest)
            if len(self._order) < self._most:
                heapq.heappush(self._order, entry)
            elif entry < self._order[0]:
                return digest
            else:
                del self._kept[heapq.heapreplace(self._order, entry)[1]]
            self._kept[digest] = []
        if len(self._kept[digest]) < self._each:
            self._kept[digest].append(msgspec.structs.replace(document, text=document.text[:CHARACTERS]))
        return digest

    def kept(self) -> list[list[CorpusDocument]]:
        """The documents of each hash."""
        return [self._kept[digest] for _, digest in sorted(self._order, reverse=True)]

    def _rank(self, digest: bytes) -> int:
        return int.from_bytes(hashlib.blake2b(digest, key=self._key, digest_size=8).digest(), "big")
