"""What an audit is about: the models, the files that it is given, samples of them, and how fast the models are."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coalmine.audits.provenance.users import User, UserText
from coalmine.audits.provenance.views import look, view_of
from coalmine.audits.whole.records import Speeds
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

Place = str | os.PathLike[str]
ModelOrPlace = Model | Place
# The most documents, users, and texts of one user that are kept, and how many characters of each.
DOCUMENTS, USERS, TEXTS, CHARACTERS = 2_000, 400, 32, 8_000
# What a line is, in characters: so short that any model can read it, and a server answers soon.
LINE = 100
# How long a model is timed for, and the most lines or branches that it is asked about at once.
PROBE_SECONDS, MOST_ROWS = 0.5, 256


def load_models(
    model: ModelOrPlace, reference: ModelOrPlace | None, folder: Path, loading: LoadOptions | None
) -> tuple[Any, Any]:
    """The model and the reference, which is the base of an adapter where none is named. Answers of endpoints are kept in the folder."""

    def loaded(given: ModelOrPlace, answers: str) -> Any:
        return given if isinstance(given, Model) else load_model(given, loading, answers=folder / answers)

    if reference is None and not (isinstance(model, Model) or is_endpoint(model) or is_plugin(model)):
        reference = base_of_adapter(Path(model)) if Path(model).is_dir() else None
    other = None if reference is None else loaded(reference, "reference-answers.sqlite")
    return loaded(model, "answers.sqlite"), other


def read_inputs(
    data: Path, held_out: Path | None, canaries: CanarySet | Place | None
) -> tuple[CanarySet | None, dict[str, str]]:
    """The canaries, and the SHA-256 of each file by its role; an InputError for held-out text that is the training data.

    Where no canaries are named, those of the manifest beside the training data are taken, if it is about this very file.
    """
    hashes = {}
    for role, path in (("data", data), ("held_out", held_out)):
        if path is not None and not path.is_file():
            raise InputError(f"{path} is not a file; name a corpus, such as train.jsonl")
        if path is not None:
            hashes[role] = sha256_of_file(path)
    if hashes.get("held_out") == hashes["data"]:
        raise InputError(
            f"the held-out text {held_out} is the training data itself; give text that the model was not trained on"
        )
    planted = None if canaries is None else as_canary_set(canaries)
    if planted is None and (data.parent / MANIFEST_NAME).is_file():
        beside = CanarySet.load(data.parent)
        if beside.corpus is not None and beside.corpus.sha256_after == hashes["data"]:
            planted = beside
    if planted is not None:
        hashes["canaries"] = planted.sha256
    return planted, hashes


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


def gather(
    data: Path, held_out: Path | None, fields: Fields, seed: int, progress: Progress
) -> tuple[CorpusSample, CorpusSample | None, tuple[str, ...]]:
    """Samples of the training data and of the held-out text, without what of the latter is in the former, and warnings about that."""
    key = child_seed(seed, "audit", "sample").to_bytes(16, "big")
    if held_out is None:
        return _read(data, fields, key, progress, set(), "the training data"), None, ()
    kept = _read(held_out, fields, key, progress, set(), "the held-out text")
    alone = {_rank(one.texts[0].text, b"text", key) for one in kept.sample}
    alone |= {_rank(one.name, b"user", key) for one in kept.users}
    training = _read(data, fields, key, progress, alone, "the training data")
    sample = tuple(one for one in kept.sample if _rank(one.texts[0].text, b"text", key) in alone)
    users = tuple(one for one in kept.users if _rank(one.name, b"user", key) in alone)
    if not sample:
        raise InputError(
            f"every document of the held-out text {held_out} is in the training data too; give text that the model was not trained on"
        )
    out = len(kept.sample) - len(sample), len(kept.users) - len(users)
    warning = f"{out[0]:,} held-out documents and {out[1]:,} held-out users are in the training data too, and were left out"
    return training, kept._replace(sample=sample, users=users), (warning,) if any(out) else ()


def _rank(name: str, kind: bytes, key: bytes) -> bytes:
    """The place of a text or user in a random order, which is the same wherever it occurs."""
    content = name[:CHARACTERS].strip() if kind == b"text" else name
    digest = hashlib.blake2b(content.encode("utf-8", "surrogatepass"), key=kind, digest_size=16).digest()
    return hashlib.blake2b(digest, key=key, digest_size=8).digest()


def _read(
    path: Path, fields: Fields, key: bytes, progress: Progress, alone: set[bytes], what: str
) -> CorpusSample:
    """Samples of a corpus; what it has of the texts and users in `alone` is removed from there."""
    documents, characters, unit = 0, 0, kind_of(path).unit
    texts, people = _Smallest(DOCUMENTS, 1), _Smallest(USERS, TEXTS)
    with open_corpus(path, fields) as corpus, reported(corpus, progress, f"reading {what}") as advance:
        for block in nonempty_blocks(corpus):
            for document in block.documents():
                if document.text.strip():
                    documents += 1
                    characters += len(document.text)
                    ranks = [_rank(document.text, b"text", key)]
                    texts.offer(ranks[0], document)
                    if document.user:
                        ranks.append(_rank(document.user, b"user", key))
                        people.offer(ranks[1], document)
                    alone.difference_update(ranks)
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
    return tuple(UserText(one.text, one.source, one.date) for one in documents)


class _Smallest:
    """Documents by the ranks of their texts or users: those with the smallest, in this order, which is a random one.

    All documents of a user can be seen in one pass so, and a text counts once, however often it occurs.
    """

    def __init__(self, most: int, documents: int) -> None:
        self._most, self._each = most, documents
        self._kept: dict[bytes, list[CorpusDocument]] = {}
        self._last = b"\xff" * 9

    def offer(self, rank: bytes, document: CorpusDocument) -> None:
        """Keep a document if its rank is among the smallest so far, and it is one of the first with that rank."""
        if rank > self._last:
            return
        same = self._kept.setdefault(rank, [])
        if len(same) < self._each:
            same.append(msgspec.structs.replace(document, text=document.text[:CHARACTERS]))
        if len(self._kept) >= 2 * self._most:
            self.kept()

    def kept(self) -> list[list[CorpusDocument]]:
        """The documents of each of the smallest ranks; the others are forgotten."""
        self._kept = dict(sorted(self._kept.items())[: self._most])
        if len(self._kept) == self._most:
            self._last = max(self._kept)
        return list(self._kept.values())


def measure(
    model: Model, texts: Sequence[UserText], clock: Callable[[], float] = time.perf_counter
) -> Speeds:
    """The speeds of a model on texts of a corpus."""
    lines = [one._replace(text=one.text[:LINE]) for one in texts[:MOST_ROWS]]

    def score(rows: int) -> float:
        asked = [lines[place % len(lines)] for place in range(rows)]
        try:
            look(model, view_of(model), asked)
        except NotMeasurableError:
            if not isinstance(model, Scorer):
                raise
            model.score([open_sequence(model, one.text) for one in asked])
        return sum(len(one.text) for one in asked) / LINE

    def step(rows: int) -> float:
        if not isinstance(model, Stepper):
            raise NotMeasurableError("it supports no incremental decoding")
        depth = min(8, (max_length(model) or 16) - len(model.context) - 1)
        states: Any = model.start([model.context or (0,)]).states
        parents, tokens = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
        for _ in range(depth):
            states = model.step(states, parents, tokens).states
            parents = np.arange(rows, dtype=np.int64)
        return rows * depth

    return Speeds(lines=_rate(score, clock), steps=_rate(step, clock))


def _rate(ask: Callable[[int], float], clock: Callable[[], float]) -> float | None:
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """What an audit is about, and what was measured of it before anything is planned.

    Attributes:
        model: the model.
        reference: a model without this training data, such as the base of a fine-tuned one; None where there is none.
        data: the training data.
        hashes: the SHA-256 of each file that was given, by its role.
        canaries: what was planted in the training data.
        fields: which fields of the files hold the text, and whose it is.
        index: an index of the training data.
        training: samples of the training data, and `held_out` of the held-out text.
        speeds: how fast the model is, and `reference_speeds` the reference.
        folder: where the results go, each step in a folder of its own.
        seed: the root of all randomness.
    """

    model: Model
    reference: Model | None = None
    data: Path
    hashes: dict[str, str]
    canaries: CanarySet | None = None
    fields: Fields
    index: Path | None = None
    training: CorpusSample
    held_out: CorpusSample | None = None
    speeds: Speeds
    reference_speeds: Speeds
    folder: Path
    seed: int = 0

    def scoring(self, characters: float, *, compared: bool = False) -> float:
        """The seconds that scoring so much text takes, with the reference model too if it is `compared` with."""
        own, other = self.speeds.lines, self.reference_speeds.lines if compared else None
        return characters / LINE * ((1 / own if own else 0.0) + (1 / other if other else 0.0))
