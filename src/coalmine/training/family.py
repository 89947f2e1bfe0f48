"""Trainings on an engine, each into a directory of its own: what is missing is run, and what is there is checked."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from coalmine.corpus.files.documents import Fields
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.ledger import UNITS_FILE, Ledger
from coalmine.engines.units import Arrays
from coalmine.errors import CoalmineError, InputError, ModelOutputError, SomeFailedError
from coalmine.models.reference.checkpoint import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    check_readable_name,
    check_trained,
    require_torch,
)
from coalmine.progress import Progress, Silent
from coalmine.storage.directories import sole_use
from coalmine.storage.files import check_places, no_empty_directory, remove_abandoned
from coalmine.training.data import TrainingText, check_documents, read_corpus
from coalmine.training.options import TrainingOptions
from coalmine.training.private.card import CARD_FILE
from coalmine.training.private.refusals import refused_resuming
from coalmine.training.record import RECORD_FILE, TrainingRecord, fingerprint, read_training
from coalmine.training.work import Member, TrainingWork, save_trained


class TrainedModel(msgspec.Struct, frozen=True, kw_only=True):
    """Where a model was written, and how it was trained."""

    path: Path
    record: TrainingRecord
    # False where the directory already held the very same training, finished.
    trained_now: bool
    # What it took since it was last resumed; None where it was there already.
    seconds: float | None = None


class Goal(NamedTuple):
    """A training, and the directory for its files."""

    directory: Path
    member: Member


class Readable(Protocol):
    """Where the texts of trainings come from."""

    def read(self, goals: Sequence[Goal]) -> TrainingText:
        """The texts; raises if one of the trainings cannot be on them."""


class InMemory(NamedTuple):
    """Documents that the caller has."""

    text: TrainingText

    def read(self, goals: Sequence[Goal]) -> TrainingText:
        """The texts."""
        for goal in goals:
            check_documents(self.text.documents, goal.member.options)
        return self.text


class CorpusFiles(NamedTuple):
    """What the trainings read: a corpus or the directory of a planted one, a validation corpus, and the fields of both."""

    data: str | os.PathLike[str]
    valid: str | os.PathLike[str] | None
    fields: Fields | None

    def read(self, goals: Sequence[Goal]) -> TrainingText:
        """The texts."""
        valid = None if self.valid is None else Path(self.valid)
        return read_corpus(Path(self.data), valid, self.fields, [goal.member.options for goal in goals])


def reach(
    goals: Sequence[Goal],
    sources: Readable,
    ledger: Ledger,
    *,
    named: Callable[[TrainingText], str] | None = None,
    engine: Engine | str | None,
    progress: Progress | None,
) -> list[TrainedModel]:
    """Train what is missing, and return all.

    One training alone has the directory of the ledger as its own. The directories of a family are below it, and `named` gives what
    all runs have in common that may resume each other there.
    """
    require_torch("training")
    for goal in goals:
        check_readable_name(goal.directory)
        card = (CARD_FILE,) if goal.member.options.private else ()
        check_places(goal.directory, WEIGHTS_FILE, CONFIG_FILE, *card, RECORD_FILE, UNITS_FILE)
    out = ledger.directory or goals[0].directory
    with no_empty_directory(out), sole_use(out):
        work = TrainingWork(sources.read(goals), tuple(goal.member for goal in goals))
        family = _Family(goals, work, out)
        missing = family.missing()
        if missing:
            with refused_resuming(goal.member.options for goal in goals):
                ledger.begin(work.fingerprint(0) if named is None else named(work.text))
            family.train(missing, ledger, engine, progress or Silent())
        if family.cannot_be_resumed():
            ledger.forget()
            remove_abandoned(out)  # by a run that was killed while writing
        return family.trained()


class _Family:
    """Trainings on one corpus, as far as they are done."""

    def __init__(self, goals: Sequence[Goal], work: TrainingWork, out: Path) -> None:
        self._goals, self._work, self._out = goals, work, out
        self._done: dict[int, TrainedModel] = {}
        self._failed: dict[int, CoalmineError] = {}

    def missing(self) -> list[int]:
        """The trainings that are not done; a directory that holds another one is refused."""
        for place, (directory, member) in enumerate(self._goals):
            record, wanted = _finished(directory), self._work.fingerprint(place)
            if record is None:
                if directory != self._out:
                    with refused_resuming([member.options]):
                        Ledger(directory).begin(wanted)  # refuses another one that is not finished
            elif _fingerprint(record) == wanted:
                self._done[place] = TrainedModel(path=directory, record=record, trained_now=False)
            else:
                raise InputError(
                    f"{directory} already holds a model that was trained on other data or with other options; "
                    "choose another directory, or remove it"
                )
        return [place for place in range(len(self._goals)) if place not in self._done]

    def train(
        self, missing: Sequence[int], ledger: Ledger, engine: Engine | str | None, progress: Progress
    ) -> None:
        """Run trainings, and write each as soon as it is over."""
        units = [self._work.unit(place) for place in missing]
        threads = max(goal.member.options.threads for goal in self._goals)
        progress.start("Training", sum(unit.size for unit in units))
        with open_engine(engine, threads=threads) as opened:
            for outcome in opened.map(self._work, units, ledger=ledger, progress=progress):
                place = missing[outcome.number]
                if outcome.arrays is None:
                    self._failed[place] = outcome.problem or CoalmineError("no result; please report this")
                else:
                    self._done[place] = self._saved(self._goals[place].directory, outcome.arrays)
        progress.finish()

    def cannot_be_resumed(self) -> bool:
        """Whether nothing is left to do: a training that diverged would do so again."""
        return all(isinstance(problem, ModelOutputError) for problem in self._failed.values())

    def trained(self) -> list[TrainedModel]:
        """All of them; raises the problem of one that failed, or an error with all problems of a family."""
        if not self._failed:
            return [self._done[place] for place in range(len(self._goals))]
        if self._goals[0].directory == self._out:
            raise self._failed[0]
        raise SomeFailedError(
            {self._goals[place].directory: problem for place, problem in sorted(self._failed.items())},
            [trained for _, trained in sorted(self._done.items())],
        )

    def _saved(self, directory: Path, arrays: Arrays) -> TrainedModel:
        alone = contextlib.nullcontext() if directory == self._out else sole_use(directory)
        with alone:
            record = save_trained(arrays, directory)
            if directory != self._out:
                Ledger(directory).forget()  # the same training, begun there alone
        return TrainedModel(path=directory, record=record, trained_now=True, seconds=float(arrays["seconds"]))


def _finished(directory: Path) -> TrainingRecord | None:
    if not all((directory / name).is_file() for name in (RECORD_FILE, WEIGHTS_FILE, CONFIG_FILE)):
        return None
    record = read_training(directory)
    check_trained(directory, record)
    return record


def _fingerprint(record: TrainingRecord) -> str:
    return fingerprint(
        record.options,
        record.data_sha256,
        record.watch,
        record.fields,
        record.validation_sha256,
        record.tokenizer_sha256,
    )


def family_fingerprint(text: TrainingText, shared: TrainingOptions) -> str:
    """That of a family, to which presets and seeds can be added; `shared` are the options that all of it have besides."""
    return f"family {fingerprint(shared, text.sha256, None, text.fields, text.validation_sha256)}"
