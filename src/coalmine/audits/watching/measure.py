"""Exposure while a model is trained, for `coalmine train --watch`: figures 7 and 8 of The Secret Sharer (Carlini et al., 2019,
arXiv:1802.08232).
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from coalmine.audits.exposure.measuring import expose
from coalmine.audits.watching.records import WatchOptions
from coalmine.corpus.planting.manifest import CanarySet, as_canary_set
from coalmine.models.protocols import Model


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
        self.options = WatchOptions.of(options, changes)
        self.options.check()
        self.canaries = as_canary_set(canaries)

    @property
    def every(self) -> int:
        """Batches between two measurements."""
        return self.options.every

    def measure(self, model: Model) -> list[dict[str, Any]]:
        """The exposure of each canary now."""
        results = expose(
            model,
            self.canaries,
            method=self.options.method,
            samples=self.options.samples,
            seed=self.options.seed,
            comparisons=False,
        )
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
