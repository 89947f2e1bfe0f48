"""What does one run hold? The results of one model, each with the file that it was read from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_args

import msgspec

from coalmine.audits.exposure.results import SCORES_FILE, ExposureDocument
from coalmine.audits.extraction.results import Extraction, Verified
from coalmine.audits.membership.results import Membership
from coalmine.audits.recitation.results import Recitation
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.records import Estimate, Status
from coalmine.records.documents import SealedKind
from coalmine.training.record import TrainingRecord

Audit = Literal["exposure", "extraction", "membership", "recitation", "provenance", "watching"]
AUDITS: tuple[Audit, ...] = get_args(Audit)
WATCHED_SCHEMA = "coalmine.watched/1"
RUN_SCHEMA = "coalmine.run/1"

Document = TypeVar("Document")


class Located(NamedTuple, Generic[Document]):
    """A document, and the file that it was read from."""

    path: Path
    document: Document


class SeenCanary(msgspec.Struct, frozen=True, kw_only=True):
    """What a look during training must say of each canary for a report to read it."""

    canary_id: str
    repetitions: int
    status: Status
    exposure: float | None
    low: float | None
    high: float | None = None

    @property
    def estimate(self) -> Estimate:
        """The exposure as an estimate, of which a look keeps no more than this."""
        return Estimate(
            method="watched",
            status=self.status,
            value=self.exposure,
            low=self.low,
            high=self.high,
            confidence=None,
            n=0,
            statement="",
        )


class WatchedMoment(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen after some number of steps; `seen` is empty where nothing could be measured."""

    step: int
    epoch: float
    seen: list[dict[str, Any]]
    problem: str | None = None


class WatchedTraining(msgspec.Struct, frozen=True, kw_only=True):
    """The content of exposure-during-training.json, which a callback wrote, or of the watch in a training.json."""

    schema: str = WATCHED_SCHEMA
    watch: dict[str, Any]
    watched: list[WatchedMoment]


WATCHES = SealedKind(WatchedTraining, WATCHED_SCHEMA, "the exposure during training")
RUN_RECORDS: SealedKind[dict[str, Any]] = SealedKind(dict[str, Any], RUN_SCHEMA, "the record of a run")


@dataclass(frozen=True, kw_only=True)
class Run:
    """The results of one model, each with its file; the properties give the one to go by, or None."""

    # What the user named, and a short name for people.
    paths: tuple[Path, ...]
    name: str
    exposures: tuple[Located[ExposureDocument], ...] = ()
    extractions: tuple[Located[Extraction], ...] = ()
    verifications: tuple[Located[Verified], ...] = ()
    memberships: tuple[Located[Membership], ...] = ()
    recitations: tuple[Located[Recitation], ...] = ()
    trainings: tuple[Located[TrainingRecord], ...] = ()
    watches: tuple[Located[WatchedTraining], ...] = ()
    manifests: tuple[Located[CanarySet], ...] = ()
    # The run.json of each command.
    records: tuple[Located[dict[str, Any]], ...] = ()

    @property
    def exposure(self) -> ExposureDocument | None:
        """The exposures to go by: where there are several, those of the best method."""
        return self.exposures[0].document if self.exposures else None

    @property
    def verified(self) -> Verified | None:
        """Whether the canaries came out."""
        return self.verifications[0].document if self.verifications else None

    @property
    def membership(self) -> Membership | None:
        """Membership and epsilon."""
        return self.memberships[0].document if self.memberships else None

    @property
    def recitation(self) -> Recitation | None:
        """How much of the training data is recited."""
        return self.recitations[0].document if self.recitations else None

    @property
    def training(self) -> TrainingRecord | None:
        """How the model was trained, where coalmine trained it."""
        return self.trainings[0].document if self.trainings else None

    @property
    def watched(self) -> WatchedTraining | None:
        """Exposure during training, by our trainer or by a callback of another."""
        if self.watches:
            return self.watches[0].document
        record = self.training
        if record is None or record.watch is None or not record.watched:
            return None
        moments = [WatchedMoment(step=one.step, epoch=one.epoch, seen=one.seen) for one in record.watched]
        return WatchedTraining(watch=record.watch, watched=moments)

    @property
    def canaries(self) -> CanarySet | None:
        """The manifest that the canaries were measured with, or the only one there is."""
        return self.manifests[0].document if self.manifests else None

    @property
    def measured_manifests(self) -> frozenset[str]:
        """The SHA-256 of each manifest that results of single canaries were made with."""
        digests = (
            *(one.document.manifest_sha256 for one in self.exposures),
            *(one.document.manifest_sha256 for one in self.verifications),
            *(one.document.manifest_sha256 for one in self.memberships),
        )
        return frozenset(digest for digest in digests if digest is not None)

    @property
    def tested(self) -> tuple[Audit, ...]:
        """The audits whose results are there."""
        there = {
            "exposure": self.exposures,
            "extraction": self.extractions or self.verifications,
            "membership": self.memberships,
            "recitation": self.recitations,
            "provenance": (),
            "watching": self.watched,
        }
        return tuple(audit for audit in AUDITS if there[audit])

    @property
    def not_tested(self) -> tuple[Audit, ...]:
        """The audits whose results are not there."""
        return tuple(audit for audit in AUDITS if audit not in self.tested)

    @property
    def model(self) -> dict[str, Any] | None:
        """The model's description of itself, by the first result that has one."""
        return next((found for found in models_in(self) if found), None)

    @property
    def validation_loss_bits(self) -> float | None:
        """The validation loss of the weights that were kept, in bits a token."""
        record = self.training
        if record is None or not 1 <= record.best_epoch <= len(record.epochs):
            return None
        return record.epochs[record.best_epoch - 1].validation_loss_bits

    def scores_path(self, exposure: Located[ExposureDocument]) -> Path | None:
        """The scores.parquet beside an exposure.json, if it is there."""
        path = exposure.path.with_name(SCORES_FILE)
        return path if path.is_file() else None

    def shown(self, path: Path) -> str:
        """A path as a report shows it: from the directory that the user named."""
        for given in self.paths:
            base = given if given.is_dir() else given.parent
            if path.is_relative_to(base):
                return str(Path(given.name if given.is_dir() else "") / path.relative_to(base))
        return path.name


def models_in(run: Run) -> list[dict[str, Any]]:
    """The descriptions of the model, by each result that has one."""
    return [
        *(one.document.model for one in run.exposures),
        *(one.document.model for one in run.extractions),
        *(one.document.model for one in run.verifications),
        *(one.document.model for one in run.memberships),
        *(asked_model(one.document) for one in run.recitations),
    ]


def asked_model(recitation: Recitation) -> dict[str, Any]:
    """The model that a recitation is about: the largest of a family."""
    asked = [one for one in recitation.models if one.role == "asked"]
    return max(asked, key=lambda one: one.parameters or 0).description if asked else {}
