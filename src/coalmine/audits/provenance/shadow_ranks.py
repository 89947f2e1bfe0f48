"""The ranks that a shadow model gives to the tokens of all reference users, text by text, and rank histograms of any shape from them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import msgspec
import numpy as np

from coalmine.audits.provenance.users import User, UserText
from coalmine.audits.provenance.views import look_at_each, view_of
from coalmine.engines.engine import Engine
from coalmine.engines.ledger import Ledger
from coalmine.engines.units import Arrays, Running, Unit
from coalmine.errors import CoalmineError, InputError, NoNumberError, NotMeasurableError
from coalmine.models.protocols import FloatArray, IntArray, Model, RemoteModel
from coalmine.models.works import ModelWork
from coalmine.progress import Progress
from coalmine.statistics.provenance.rank_histograms import RankHistogram
from coalmine.storage.files import PRIVATE, read_bytes, whole_file

TEXTS_AT_A_TIME = 2048


class ShadowRanks(NamedTuple):
    """What a shadow model says about the texts of all reference users.

    Attributes:
        ranks: of the tokens that count of all texts, one text after the other; from 0, and -1 for one that is not listed.
        lengths: how many of them each text has; 0 for a text that the model cannot read.
        ranked: how many tokens the model ranks; None where that is not known.
        top: the ranks of how many of the likeliest tokens are known; None for all.
        location: where the model is, if it can be loaded again.
    """

    ranks: IntArray
    lengths: IntArray
    ranked: int | None
    top: int | None
    location: str | None = None

    def features(
        self, histogram: RankHistogram, texts: Sequence[int], places: Sequence[Sequence[int]] | None = None
    ) -> FloatArray:
        """(users, width): the histogram of each user, and NaN for a user of whom nothing could be read.

        Args:
            histogram: how ranks are counted, with the vocabulary of this model.
            texts: how many texts each user has.
            places: which texts of each user are looked at; without it, all.
        """
        ends = np.concatenate([[0], np.cumsum(self.lengths)])
        found = np.full((len(texts), histogram.width), np.nan)
        first = 0
        for user, number in enumerate(texts):
            own = range(first, first + number)
            chosen = own if places is None else [own[place] for place in places[user]]
            ranks = [self.ranks[ends[text] : ends[text + 1]] for text in chosen]
            seen = np.concatenate(ranks) if ranks else np.empty(0, dtype=np.int64)
            if len(seen):
                found[user] = histogram.features(seen)
            first += number
        return found

    def why_not(self, histogram: RankHistogram) -> str | None:
        """Why ranks cannot be counted as for this target; None where they can be."""
        if self.top is not None and (histogram.top is None or histogram.top > self.top):
            return f"the shadow models list the {self.top:,} likeliest tokens only, and the target shows more"
        if self.ranked is None or (histogram.top or 1) > self.ranked:
            return "the shadow models rank fewer tokens than the target lists"
        if self.histogram(histogram).width != histogram.width:
            return "the vocabulary of the target or of the shadow models is smaller than the number of bins"
        return None

    def histogram(self, histogram: RankHistogram) -> RankHistogram:
        """The same for the vocabulary of this model."""
        return msgspec.structs.replace(histogram, vocabulary=self.ranked or histogram.vocabulary)

    def write(self, path: Path, key: str) -> str:
        """Write them to a file that only its owner can read; returns its SHA-256. `key` says of what they are the ranks."""
        stream = io.BytesIO()
        limits = np.array([-1 if one is None else one for one in (self.ranked, self.top)], dtype=np.int64)
        said = np.frombuffer(msgspec.json.encode([key, self.location]), dtype=np.uint8)
        np.savez_compressed(stream, ranks=self.ranks, lengths=self.lengths, limits=limits, said=said)
        content = stream.getvalue()
        with whole_file(path, mode=PRIVATE) as temporary:
            temporary.write_bytes(content)
        return hashlib.sha256(content).hexdigest()


def read_ranks(path: Path, key: str | None = None) -> ShadowRanks | None:
    """The ranks in a file; None where they are those of something else than `key`."""
    content = read_bytes(path, "the ranks of a shadow model")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as saved:
            of, location = msgspec.json.decode(saved["said"].tobytes(), type=tuple[str, str | None])
            if key is not None and of != key:
                return None
            ranked, top = (None if one < 0 else int(one) for one in saved["limits"])
            return ShadowRanks(saved["ranks"], saved["lengths"], ranked, top, location)
    except (ValueError, EOFError, KeyError, TypeError, OSError, BadZipFile, msgspec.DecodeError) as problem:
        raise InputError(f"{path} is damaged; remove it, and fit again") from problem


@dataclass(frozen=True)
class RanksWork(ModelWork):
    """Texts to ask one model about, in units of a few thousand."""

    model: Model

    name = "provenance-ranks/2"

    @property
    def models(self) -> tuple[Model, ...]:
        """The one that is asked."""
        return (self.model,)

    def units(self, users: Sequence[User]) -> Iterator[Unit]:
        """All texts, cut in the same way for every engine."""
        texts = [text for user in users for text in user.texts]
        for start in range(0, len(texts), TEXTS_AT_A_TIME):
            part = texts[start : start + TEXTS_AT_A_TIME]
            yield Unit(([text.text for text in part], [text.source for text in part]), size=len(part))

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Ask about the texts of a unit."""
        texts = [UserText(text, source) for text, source in zip(*unit.inputs, strict=True)]
        views, problems = look_at_each(self.model, view_of(self.model), texts)
        if problems and len(problems) == len(texts):
            raise problems[0]
        running.advance(len(texts))
        ranks = [np.empty(0, dtype=np.int32) if view is None else view.ranks for view in views]
        return {
            "ranks": np.concatenate(ranks).astype(np.int32),
            "lengths": np.array([len(one) for one in ranks], dtype=np.int32),
        }


def ask_ranks(
    model: Model, users: Sequence[User], *, engine: Engine, ledger: Ledger, progress: Progress, task: str
) -> ShadowRanks:
    """The ranks that a model gives to the tokens of all users; what an earlier run asked before it was stopped is not asked again.

    A text that the model has no number for has none; if it has none for any, the first problem is raised.
    """
    work = RanksWork(model)
    units = list(work.units(users))
    parts: list[Arrays] = [{}] * len(units)
    progress.start(task, sum(unit.size for unit in units))
    problems: dict[int, CoalmineError] = {}
    for outcome in engine.map(work, units, ledger=ledger, progress=progress):
        if isinstance(outcome.problem, NotMeasurableError | NoNumberError) and not isinstance(
            model, RemoteModel
        ):
            problems[outcome.number] = outcome.problem
            size = outcome.unit.size
            parts[outcome.number] = {
                "ranks": np.empty(0, dtype=np.int32),
                "lengths": np.zeros(size, dtype=np.int32),
            }
        else:
            parts[outcome.number] = outcome.value()
    progress.finish()
    if problems and len(problems) == len(units):
        raise problems[min(problems)]
    view = view_of(model)
    ranks, lengths = (np.concatenate([part[name] for part in parts]) for name in ("ranks", "lengths"))
    return ShadowRanks(ranks, lengths, view.ranked, view.top)
