"""Exposure while a model is trained, for `coalmine train --watch` and callbacks, and `exposure-during-training.json`: what a callback saw.

These are figures 7 and 8 of The Secret Sharer (Carlini et al., 2019, arXiv:1802.08232).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from coalmine.audits.exposure.estimators import METHODS
from coalmine.audits.options import SEED, Option, Options
from coalmine.records.documents import Document, Origin
from coalmine.records.watching import Moment, manifests_of_watch, said_of_canaries

if TYPE_CHECKING:
    from coalmine.corpus.planting.manifest import CanarySet
    from coalmine.models.protocols import Model

SCHEMA = "coalmine.watched/1"


class WatchOptions(Options, frozen=True, kw_only=True):
    """How often exposure is measured during a training, and how.

    Attributes:
        every: batches between two measurements; there is one after each epoch too.
        method: the name of an estimator, or "auto"; see `expose`.
        samples: how many members are drawn, where the estimator draws.
        seed: the root of all randomness.

    >>> WatchOptions(every=50).method
    'references'
    """

    every: Annotated[int, Option("Batches between two measurements.")] = 100
    method: Annotated[str, Option("How to measure; see `coalmine expose --help`.")] = "references"
    samples: int = 2_000
    seed: Annotated[int, SEED] = 0

    def check(self) -> None:
        """Reject values that cannot be measured with."""
        self._require(self.every >= 1, "every", "at least 1")
        self._require(self.method in METHODS, "method", f"one of {', '.join(METHODS)}")


class ExposureWatch:
    """Measures the exposure of canaries every `every` batches and at the end of each epoch.

    >>> train("planted/", out="model/", watch=ExposureWatch("planted/canaries.json", every=100))  # doctest: +SKIP

    It costs what the measurement costs and nothing else: the training ends with the same weights with it and without it.
    The default compares each canary with the manifest's references, which is the cheapest and shows exposure up to log2 of
    their number; `method="extrapolated"` shows more and needs `samples` scores each time. The fields of `WatchOptions` can be given as
    keywords, instead of a record or on top of one.
    """

    def __init__(
        self,
        canaries: CanarySet | str | os.PathLike[str],
        options: WatchOptions | None = None,
        **changes: Any,
    ) -> None:
        from coalmine.corpus.planting.manifest import as_canary_set

        self.options = WatchOptions.of(options, changes)
        self.options.check()
        self.canaries, self.every = as_canary_set(canaries), self.options.every

    def measure(self, model: Model) -> list[dict[str, Any]]:
        """The exposure of each canary now."""
        from coalmine.audits.exposure.measuring import expose

        asked = {name: getattr(self.options, name) for name in ("method", "samples", "seed")}
        results = expose(model, self.canaries, **asked, comparisons=False)
        return [
            {
                "canary_id": result.canary_id,
                "format_id": result.format_id,
                "repetitions": result.repetitions,
                "log_perplexity_bits": result.log_perplexity_bits,
                "status": result.estimate.status,
                "exposure": result.exposure,
                "low": result.interval[0],
                "high": result.interval[1],
            }
            for result in results
        ]

    def describe(self) -> dict[str, Any]:
        """For the record of the training."""
        return {
            "kind": "exposure",
            "manifest_sha256": self.canaries.sha256,
            **msgspec.structs.asdict(self.options),
        }


class WatchedTraining(msgspec.Struct, frozen=True, kw_only=True):
    """Exposure during a training."""

    schema: str = SCHEMA
    # What was watched, as `ExposureWatch.describe` returns it.
    watch: dict[str, Any]
    trainer: str = "coalmine train"
    watched: list[Moment]
    # The template of each format, by its id.
    formats: dict[str, str] = {}
    # The SHA-256 of the chat template that canaries of chat data were scored in; not there for plain texts.
    chat_template_sha256: str | msgspec.UnsetType = msgspec.UNSET


WATCHES = Document(
    record=WatchedTraining,
    schema=SCHEMA,
    file="exposure-during-training.json",
    title="exposure during training",
    by="the callbacks",
    origin=Origin(
        manifests=lambda record: manifests_of_watch(record.watch),
        canaries=lambda record: said_of_canaries(record.watched),
        is_measurement=False,
    ),
)
"""exposure-during-training.json: `run.all(WATCHES)` gives what callbacks saw during training."""


def read_watched(path: str | os.PathLike[str]) -> WatchedTraining:
    """Read the exposure-during-training.json that a callback wrote; exposures are in bits.

    >>> [moment.step for moment in read_watched("model-audit/watching/exposure-during-training.json").watched]  # doctest: +SKIP
    [0, 100, 200]
    """
    return WATCHES.alone(path)
