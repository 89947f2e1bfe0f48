"""`Run`: the results about one model, each with the file that it was read from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from coalmine.corpus.planting.manifest import MANIFESTS, CanarySet
from coalmine.records.documents import Document
from coalmine.training.finetuning.record import FINETUNINGS, FinetuningRecord
from coalmine.training.record import TRAININGS, TrainingRecord

# What coalmine writes beside weights that it trained.
OF_TRAINING: tuple[Document[Any], ...] = (TRAININGS, FINETUNINGS)

Record = TypeVar("Record")


class Located(NamedTuple, Generic[Record]):
    """The content of a result file, and its path."""

    path: Path
    document: Record


@dataclass(frozen=True, kw_only=True)
class Run:
    """The results about one model, by kind of document; of several of a kind, the one to rely on comes first.

    `paths` are what the user named, and `name` is a short name for people.

    >>> run = Run(paths=(Path("model"),), name="model")
    >>> run.all(TRAININGS), run.first(TRAININGS)
    ((), None)
    """

    paths: tuple[Path, ...]
    name: str
    documents: Mapping[Document[Any], tuple[Located[Any], ...]] = field(default_factory=dict)
    # The results about secrets that were in the data all along: no other property has them, so that they never count as canaries.
    secrets: Run | None = None

    def all(self, kind: Document[Record]) -> tuple[Located[Record], ...]:
        """All results of one kind."""
        return self.documents.get(kind, ())

    def first(self, kind: Document[Record]) -> Record | None:
        """The result of one kind to rely on, or None."""
        found = self.all(kind)
        return found[0].document if found else None

    def with_added(self, kind: Document[Record], *more: Located[Record]) -> Run:
        """The same run with further results of one kind."""
        return self.with_all(kind, (*self.all(kind), *more))

    def with_all(self, kind: Document[Record], these: tuple[Located[Record], ...]) -> Run:
        """The same run with these results of one kind instead of those that it has."""
        return replace(self, documents={**self.documents, kind: these})

    def with_secrets_apart(self) -> Run:
        """The same run, in which results about secrets that were in the data all along are in `secrets`, and no longer here."""
        planted, natural = (
            {
                kind: tuple(one for one in these if kind.origin.natural(one.document) is which)
                for kind, these in self.documents.items()
            }
            for which in (False, True)
        )
        if not any(natural.values()):
            return self
        return replace(self, documents=planted, secrets=replace(self, documents=natural))

    @property
    def canaries(self) -> CanarySet | None:
        """The manifest that the canaries were measured with, or the only one there is."""
        return self.first(MANIFESTS)

    @property
    def training(self) -> TrainingRecord | None:
        """How the model was trained, where coalmine trained it."""
        return self.first(TRAININGS)

    @property
    def finetuning(self) -> FinetuningRecord | None:
        """How the model was fine-tuned, where coalmine did so."""
        return self.first(FINETUNINGS)

    @property
    def trainings(self) -> tuple[Located[TrainingRecord] | Located[FinetuningRecord], ...]:
        """Both: each has the hashes of its data and of its weights."""
        return (*self.all(TRAININGS), *self.all(FINETUNINGS))

    def about_models(self) -> Iterator[tuple[Document[Any], Located[Any], Mapping[str, Any]]]:
        """Each result that is about one model, with the description of that model; also those about secrets."""
        for kind, these in self.documents.items():
            if kind.origin.model is not None:
                for one in these:
                    yield kind, one, kind.origin.model(one.document)
        if self.secrets is not None:
            yield from self.secrets.about_models()

    @property
    def model(self) -> Mapping[str, Any] | None:
        """The model's description of itself, from the first result that has one."""
        return next((model for _, _, model in self.about_models() if model), None)

    @property
    def measured_manifests(self) -> frozenset[str]:
        """The SHA-256 of each manifest that results about single canaries were made with."""
        return frozenset(
            digest
            for kind, these in self.documents.items()
            if kind.origin.measures_canaries
            for one in these
            for digest in kind.origin.manifests(one.document)
            if digest is not None
        )

    @property
    def validation_loss_bits(self) -> float | None:
        """The validation loss of the weights that were kept, in bits per token."""
        record = self.training
        if record is None and self.finetuning is not None:
            return self.finetuning.validation_loss_bits
        if record is None or not 1 <= record.best_epoch <= len(record.epochs):
            return None
        return record.epochs[record.best_epoch - 1].validation_loss_bits

    def shown(self, path: Path) -> str:
        """A path as a report shows it: relative to the directory that the user named."""
        for given in self.paths:
            base = given if given.is_dir() else given.parent
            if path.is_relative_to(base):
                return str(Path(given.name if given.is_dir() else "") / path.relative_to(base))
        return path.name


def names_of(runs: Sequence[Run]) -> list[str]:
    """A name for each run; those of the same name are numbered."""
    names = [run.name for run in runs]
    return [name if names.count(name) == 1 else f"{name} ({place})" for place, name in enumerate(names, 1)]
