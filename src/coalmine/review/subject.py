"""What an audit is about: the model, its training data, and everything that it is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from coalmine.corpus.files.documents import Fields
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.engines.engine import Engine
from coalmine.models.protocols import Model
from coalmine.progress import Progress
from coalmine.review.costs import Costs
from coalmine.review.samples import Gathered


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The inputs of an audit, and what was measured of them before anything is planned.

    Attributes:
        model: the model.
        reference: a model without this training data, such as the base of a fine-tuned one; None where there is none.
        data: the training data.
        held_out: text like it that the model was not trained on.
        fields: which fields of both hold what.
        canaries: what was planted, if anything.
        index: an index of the training data in the model's tokens, if the user has one.
        gathered: samples of the training data and of the held-out text.
        costs: how fast the model is, and `reference_costs` the reference.
        reading_seconds: what reading the training data once takes.
        workers: how many units of work run at the same time.
        hashes: the SHA-256 of each file that was given, by its role.
        folder: where the results go, each step in a folder of its own.
        seed: the root of all randomness.
    """

    model: Model
    reference: Model | None = None
    data: Path
    held_out: Path | None = None
    fields: Fields
    canaries: CanarySet | None = None
    index: Path | None = None
    gathered: Gathered
    costs: Costs
    reference_costs: Costs | None = None
    reading_seconds: float = 0.0
    workers: float = 1.0
    hashes: dict[str, str] = field(default_factory=dict)
    folder: Path
    seed: int = 0

    def models_take(self, kind: str) -> float | None:
        """Seconds per unit of one kind of `Costs`, asked of the model and of the reference; None where the model cannot be asked."""
        own: float | None = getattr(self.costs, kind)
        if not own:
            return None
        other: float | None = None if self.reference_costs is None else getattr(self.reference_costs, kind)
        return (1 / own + (1 / other if other else 0.0)) / self.workers


class StepRun(NamedTuple):
    """Where the work of a step runs, and where its results go."""

    folder: Path
    engine: Engine
    progress: Progress
