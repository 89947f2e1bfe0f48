"""The options of `defend`."""

from __future__ import annotations

from typing import Annotated

from coalmine.audits.exposure.estimators import METHODS
from coalmine.audits.options import CONFIDENCE, SEED, Option, Options
from coalmine.corpus.files.documents import Fields
from coalmine.errors import InputError


class DefenseOptions(Options, frozen=True, kw_only=True):
    """How defenses are compared; `settings` in defenses.json. The first training has the seed, and the others those after it.

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
        checked_delta(self.delta)
        checked_confidence(self.confidence)
        self._require(self.sequences >= 0, "sequences", "at least 0")
        self._require(0 < self.holdout < 1, "holdout", "above 0 and below 1")
        self._require(self.method in METHODS, "method", f"one of {', '.join(METHODS)}")
        if self.fields.source is not None:
            raise InputError(
                "defenses are compared on single texts, and the fields name pairs; name the target as the text field"
            )
