"""What an audit is about: the models, the files that it is given, samples of them, and how fast the models are."""

from __future__ import annotations

import hashlib
import heapq
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np

from coalmine.audits.provenance.users import User, UserText
from coalmine.audits.provenance.views import look, view_of
from coalmine.corpus.files.documents import CorpusDocument, Fields
from coalmine.corpus.files.kinds import kind_of
from coalmine.corpus.files.reading import nonempty_blocks, open_corpus, reported
from coalmine.corpus.planting.manifest import MANIFEST_NAME, CanarySet, as_canary_set
from coalmine.errors import InputError, MissingExtraError, ModelError, NotMeasurableError
from coalmine.models.loading import is_endpoint, load_model
from coalmine.models.options import LoadOptions
from coalmine.models.plugins import is_plugin
from coalmine.models.protocols import Model, Scorer, Stepper, max_length, open_sequence
from coalmine.models.transformers.adapter_base import base_of_adapter
from coalmine.progress import Progress
from coalmine.randomness import child_seed
from coalmine.storage.files import sha256_of_file

ANSWERS_FILE = "answers.sqlite"
ModelOrPlace = Model | str | os.PathLike[str]
Place = str | os.PathLike[str]


class Models(NamedTuple):
    """The model, and the one that it is compared with."""

    model: Model
    reference: Model | None


def load_models(
    model: ModelOrPlace, reference: ModelOrPlace | None, folder: Path, loading: LoadOptions | None
) -> Models:
    """The models; the base of an adapter is its reference where none is named. Answers of endpoints are kept in the folder."""

    def loaded(given: ModelOrPlace, answers: str) -> Any:
        return given if isinstance(given, Model) else load_model(given, loading, answers=folder / answers)

    local = not (isinstance(model, Model) or is_endpoint(model) or is_plugin(model)) and Path(model).is_dir()
    if reference is None and local:
        reference = base_of_adapter(Path(cast("Place", model)))
    other = None if reference is None else loaded(reference, f"reference-{ANSWERS_FILE}")
    return Models(loaded(model, ANSWERS_FILE), other)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The files of an audit, and the SHA-256 of each by its role."""

    data: Path
    held_out: Path | None
    canaries: CanarySet | None
    fields: Fields
    index: Path | None
    hashes: dict[str, str]


def read_inputs(
    data: Place,
    held_out: Place | None,
    canaries: CanarySet | Place | None,
    fields: Fields | None,
    index: Place | None,
) -> Inputs:
    """The files of an audit; an InputError for one that is missing, or for held-out text that is the training data.

    Where no canaries are named, those of the manifest beside the training data are taken, if it is about this very file.
    """
    training, other = Path(data), None if held_out is None else Path(held_out)
    for path, what in ((training, "the training data"), (other, "the held-out text")):
        if path is not None and not path.is_file():
            raise InputError(f"{what} {path} is not a file; name a corpus, such as train.jsonl")
    hashes = {"data": sha256_of_file(training)}
    if other is not None:
        hashes["held_out"] = sha256_of_file(other)
        if hashes["held_out"] == hashes["data"]:
            raise InputError(
                f"the held-out text {other} is the training data itself, so there is nothing to compare with; give text that the model "
                "was not trained on"
            )
    planted = _beside(training, hashes["data"]) if canaries is None else as_canary_set(canaries)
    if planted is not None and planted.natural:
        raise InputError(
            "the manifest that was given as canaries is one of secrets that were found, and not of planted ones; leave it out: an audit "
            "finds the secrets of its training data by itself"
        )
    if planted is not None:
        hashes["canaries"] = planted.sha256
    return Inputs(
        data=training,
        held_out=other,
        canaries=planted,
        fields=fields or Fields(),
        index=None if index is None else Path(index),
        hashes=hashes,
    )


def _beside(data: Path, sha256: str) -> CanarySet | None:
    """The canaries that `coalmine plant` put into this very corpus, whose manifest is beside it."""
    if not (data.parent / MANIFEST_NAME).is_file():
        return None
    found = CanarySet.load(data.parent)
    return found if found.corpus is not None and found.corpus.sha256_after == sha256 else None


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


Clock = Callable[[], float]
# What a line is, in characters: so short that any model can read it, and a server answers soon.
LINE = 100
# How long a model is timed for, and the most lines or branches that it is asked about at once.
PROBE_SECONDS, MOST_ROWS = 0.5, 256


class Speeds(NamedTuple):
    """How fast a model is; None for what it cannot be asked.

    Attributes:
        lines: lines of text scored per second.
        steps: steps of incremental decoding per second.
    """

    lines: float | None = None
    steps: float | None = None


def measure(model: Model, texts: Sequence[UserText], clock: Clock = time.perf_counter) -> Speeds:
    """The speeds of a model on texts of a corpus."""
    lines = [one._replace(text=one.text[:LINE]) for one in texts[:MOST_ROWS]]

    def score(rows: int) -> float:
        asked = [lines[place % len(lines)] for place in range(rows)]
        try:
            view = view_of(model)
        except NotMeasurableError:
            if not isinstance(model, Scorer):
                raise
            model.score([open_sequence(model, one.text) for one in asked])
        else:
            look(model, view, asked)
        return sum(len(one.text) for one in asked) / LINE

    return Speeds(_rate(score, clock), _rate(lambda rows: _steps(model, rows), clock))


def _steps(model: Model, rows: int) -> float:
    if not isinstance(model, Stepper):
        raise NotMeasurableError("it supports no incremental decoding")
    depth = min(8, (max_length(model) or 16) - len(model.context) - 1)
    states: Any = model.start([model.context or (0,)]).states
    parents, tokens = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
    for _ in range(depth):
        states = model.step(states, parents, tokens).states
        parents = np.arange(rows, dtype=np.int64)
    return rows * depth


def _rate(ask: Callable[[int], float], clock: Clock) -> float | None:
    """How much per second; the first call, which may load and compile, counts only where it is slow enough to be trusted."""
    rows, rate = 1, None
    try:
        while True:
            began = clock()
            done = ask(rows)
            took = max(clock() - began, 1e-9)
            rate = done / took
            if took >= PROBE_SECONDS or rows >= MOST_ROWS:
                return rate
            rows *= 4
    except (NotMeasurableError, ModelError, MissingExtraError):
        return rate


class Timing(NamedTuple):
    """How time and speeds are measured, so that a test can say what they are.

    Attributes:
        clock: seconds that only grow.
        measure: the speeds of a model on texts of a corpus.
    """

    clock: Clock = time.monotonic
    measure: Callable[[Model, Sequence[UserText]], Speeds] = measure


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """What an audit is about, and what was measured of it before anything is planned.

    Attributes:
        model: the model.
        reference: a model without this training data, such as the base of a fine-tuned one; None where there is none.
        inputs: the training data, and what it is compared with.
        gathered: samples of the training data and of the held-out text.
        speeds: how fast the model is, and `reference_speeds` the reference.
        reading_seconds: what reading the training data once takes.
        folder: where the results go, each step in a folder of its own.
        seed: the root of all randomness.
    """

    model: Model
    reference: Model | None = None
    inputs: Inputs
    gathered: Gathered
    speeds: Speeds
    reference_speeds: Speeds
    reading_seconds: float = 0.0
    folder: Path
    seed: int = 0

    def scoring(self, characters: float, *, compared: bool = False) -> float:
        """The seconds that scoring so much text takes, with the reference model too if it is `compared` with."""
        own, other = self.speeds.lines, self.reference_speeds.lines if compared else None
        return characters / LINE * ((1 / own if own else 0.0) + (1 / other if other else 0.0))
