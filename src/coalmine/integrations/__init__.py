"""Callbacks that measure exposure inside other trainers (transformers, Lightning); each is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coalmine.lazy import lazy

if TYPE_CHECKING:
    from coalmine.audits.watching.results import read_watched
    from coalmine.corpus.planting.survival import check_survival
    from coalmine.integrations.lightning_trainer import LightningExposureCallback
    from coalmine.integrations.transformers_trainer import ExposureCallback

__all__ = ["ExposureCallback", "LightningExposureCallback", "check_survival", "read_watched"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ExposureCallback": "coalmine.integrations.transformers_trainer",
        "LightningExposureCallback": "coalmine.integrations.lightning_trainer",
        "check_survival": "coalmine.corpus.planting.survival",
        "read_watched": "coalmine.audits.watching.results",
    },
)
