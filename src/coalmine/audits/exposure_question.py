"""The canaries of one format as every estimator of exposure is asked about them, and what it answers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure_results import CandidateScores
from coalmine.errors import ModelOutputError
from coalmine.formats.format import Format
from coalmine.models.protocols import Model
from coalmine.progress import Progress
from coalmine.records import Estimate
from coalmine.search.frontier import Frontier
from coalmine.search.members import Members
from coalmine.search.resuming import ResumeFile
from coalmine.statistics.tail import TailFit


class Measured(NamedTuple):
    """What one method found for the canaries of one format, in their order."""

    estimates: list[Estimate]
    candidates: CandidateScores | None = None
    ranks: list[int | None] | None = None
    expansions: int = 0
    fit: TailFit | None = None


class Question(NamedTuple):
    """The canaries of one format, and how they are to be measured."""

    members: Members
    format_id: str
    references: tuple[str, ...]
    canary_ids: list[str]
    canary_texts: tuple[str, ...]
    canary_scores: NDArray[np.float64]
    samples: int
    budget: int
    memory_bytes: int
    confidence: float
    seed: int
    resume: ResumeFile
    progress: Progress

    @property
    def model(self) -> Model:
        """Who is asked."""
        return self.members.model

    @property
    def format(self) -> Format:
        """What is asked about."""
        return self.members.format

    @property
    def thresholds(self) -> NDArray[np.float64]:
        """What a member may cost and still count: ties count, and rounding does not decide what a tie is."""
        return self.canary_scores + self.model.resolution_bits

    def frontier(self, method: str) -> Frontier:
        """The frontier over this format, for a model that can be walked."""
        return self.members.frontier(
            f"the {method} method", "use the exact, sampled, extrapolated or references method"
        )

    def index_array(self, indices: list[int]) -> NDArray[Any]:
        """Indices as an array, of 64 bits where the space allows."""
        return np.array(indices, dtype=np.int64 if self.format.size < 2**62 else object)


def check_found(question: Question, ranks: NDArray[np.int64]) -> None:
    """Refuse ranks that do not even count the canary itself."""
    for name, rank in zip(question.canary_ids, ranks, strict=True):
        if rank < 1:  # not even the canary itself was found at its own cost
            raise ModelOutputError(
                f"the model {question.model.name!r} scores canary {name} differently when it is asked a second time; "
                "its adapter does not conform: run coalmine.models.conformance.check_model on it"
            )
