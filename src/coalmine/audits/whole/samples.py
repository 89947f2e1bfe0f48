"""What an audit looks at of a corpus: its size, a sample of its documents, and one of its users; read once, in constant memory."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from coalmine.audits.provenance.users import User, UserText
from coalmine.corpus.files.documents import CorpusDocument, Fields
from coalmine.corpus.files.kinds import kind_of
from coalmine.corpus.files.reading import nonempty_blocks, open_corpus, reported
from coalmine.errors import InputError
from coalmine.progress import Progress
from coalmine.randomness import child_seed, integers

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
        return Gathered(_read(data, fields, seed, progress, _Seen({}, {}), "the training data"))
    kept = _read(held_out, fields, seed, progress, _Seen({}, {}), "the held-out text")
    asked = _Seen(
        {_digest(user.texts[0].text): False for user in kept.sample},
        {user.name: False for user in kept.users},
    )
    training = _read(data, fields, seed, progress, asked, "the training data")
    sample = tuple(user for user in kept.sample if not asked.texts[_digest(user.texts[0].text)])
    users = tuple(user for user in kept.users if not asked.users[user.name])
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


class _Seen(NamedTuple):
    """Which of some texts, by their hashes, and of some users a corpus has."""

    texts: dict[bytes, bool]
    users: dict[str, bool]

    def note(self, document: CorpusDocument) -> None:
        if self.texts and (digest := _digest(document.text[:CHARACTERS])) in self.texts:
            self.texts[digest] = True
        if document.user in self.users:
            self.users[document.user] = True


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.strip().encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _read(path: Path, fields: Fields, seed: int, progress: Progress, seen: _Seen, what: str) -> CorpusSample:
    documents, characters, unit = 0, 0, kind_of(path).unit
    kept, people = _Reservoir(DOCUMENTS, seed), _Users(seed)
    for document in _documents(path, fields, progress, f"reading {what}"):
        documents += 1
        characters += len(document.text)
        seen.note(document)
        kept.offer(document)
        if document.user:
            people.offer(document)
    if not documents:
        raise InputError(f"{path}, {what}, has no text; check that it is the file you mean")
    sample = tuple(User(f"{unit} {one.number}", (_text(one),)) for one in kept.shuffled())
    return CorpusSample(documents, characters, sample, people.kept())


def _documents(path: Path, fields: Fields, progress: Progress, task: str) -> Iterator[CorpusDocument]:
    """The documents that have any text; one without a user has the user None, or the empty one."""
    with open_corpus(path, fields) as corpus, reported(corpus, progress, task) as advance:
        for block in nonempty_blocks(corpus):
            yield from (document for document in block.documents() if document.text.strip())
            advance()


def _text(document: CorpusDocument) -> UserText:
    return UserText(document.text[:CHARACTERS], document.source, document.date, document.number)


class _Reservoir:
    """A uniform sample of documents that come one after the other."""

    def __init__(self, size: int, seed: int) -> None:
        self._size, self._seen = size, 0
        self._draw = integers(seed, "audit", "documents")
        self._kept: list[CorpusDocument] = []

    def offer(self, document: CorpusDocument) -> None:
        self._seen += 1
        if len(self._kept) < self._size:
            self._kept.append(_shortened(document))
            return
        place = self._draw.randrange(self._seen)
        if place < self._size:
            self._kept[place] = _shortened(document)

    def shuffled(self) -> list[CorpusDocument]:
        """The sample in a random order, so that its beginning is a sample too; each text once, since copies are found together."""
        self._draw.shuffle(self._kept)
        return list({_digest(one.text): one for one in self._kept}.values())


class _Users:
    """Some of the users of a corpus: those whose names have the smallest hashes, so that all their texts can be seen in one pass."""

    def __init__(self, seed: int) -> None:
        self._key = child_seed(seed, "audit", "users").to_bytes(16, "big")
        # The largest hash first, to be replaced.
        self._order: list[tuple[int, str]] = []
        self._texts: dict[str, list[UserText]] = {}

    def offer(self, document: CorpusDocument) -> None:
        name = document.user or ""
        texts = self._texts.get(name)
        if texts is None:
            rank = self._rank(name)
            if len(self._order) >= USERS:
                if -rank < self._order[0][0]:
                    return
                _, other = heapq.heapreplace(self._order, (-rank, name))
                del self._texts[other]
            else:
                heapq.heappush(self._order, (-rank, name))
            texts = self._texts[name] = []
        if len(texts) < TEXTS:
            texts.append(_text(document))

    def kept(self) -> tuple[User, ...]:
        """The users in the order of their hashes, which is a random one."""
        return tuple(User(name, tuple(self._texts[name])) for _, name in sorted(self._order, reverse=True))

    def _rank(self, name: str) -> int:
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=self._key, digest_size=8)
        return int.from_bytes(digest.digest(), "big")


def _shortened(document: CorpusDocument) -> CorpusDocument:
    return msgspec.structs.replace(document, text=document.text[:CHARACTERS])
