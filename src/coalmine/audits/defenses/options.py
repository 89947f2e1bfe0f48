"""The options of `defend`."""

from __future__ import annotations

from typing import Annotated

from coalmine.audits.exposure.estimators import METHODS
from coalmine.audits.options import CONFIDENCE, SEED, Option, Options
from coalmine.corpus.files.documents import Fields
from coalmine.errors import InputError


class DefenseOptions(Options, frozen=True, kw_only=True):
    """How defenses are compared; `settings` in defenses.json.

    Attributes:
        seeds: how many models are trained with each defense. One says nothing about how much a seed matters.
        holdout: the share of documents that no model is trained on, by which all are validated.
        method: how exposure is measured, as in `ExposureOptions`.
        search: expansions that searching a format for its canaries may spend.
        sequences: how many training sequences each model is asked to recite, at most; 0 for none.
        delta: the delta at which epsilon is bounded, and that of private training.
        confidence: the level of intervals and bounds, between 0 and 1.
        seed: of the canaries and the held-out documents, and that of the first training; the others have the seeds after it.
        fields: which fields of a row hold what; .txt has none.

    >>> DefenseOptions(seeds=1).holdout
    0.05
    """

    seeds: Annotated[int, Option("Models per defense, each with a seed of its own.", least=1)] = 3
    holdout: Annotated[float, Option("Share of documents held out, by which all models are validated.")] = (
        0.05
    )
    method: Annotated[str, Option("How exposure is measured, as in `coalmine expose`.")] = "auto"
    search: Annotated[
        int, Option("Expansions that searching a format for its canaries may spend.", least=1)
    ] = 50_000
    sequences: Annotated[
        int, Option("Training sequences that each model is asked to recite; 0 for none.", least=0)
    ] = 200
    delta: Annotated[float, Option("The delta of private training, and of the audited epsilon.")] = 1e-9
    confidence: Annotated[float, CONFIDENCE] = 0.95
    seed: Annotated[int, SEED] = 0
    fields: Fields = Fields()

    def check(self) -> None:
        """Reject values that no bench can have."""
        from coalmine.statistics.scores import checked_confidence, checked_count, checked_delta

        checked_count(self.seeds, "seeds")
        checked_count(self.search, "search")
        if self.sequences < 0:
            raise InputError(f"sequences must be at least 0, got {self.sequences}; 0 asks for none")
        if not 0 < self.holdout < 1:
            raise InputError(
                f"holdout must be above 0 and below 1, got {self.holdout}; defenses are compared by their loss on what is held out"
            )
        if self.method not in METHODS:
            raise InputError(f"unknown method {self.method!r}: known are {', '.join(METHODS)}")
        checked_delta(self.delta)
        checked_confidence(self.confidence)
