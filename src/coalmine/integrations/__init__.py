"""Exposure inside other people's trainers: callbacks for transformers and Lightning, loaded when they are first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coalmine.corpus.planting.survival import check_survival
    from coalmine.integrations.exposure_log import read_watched
    from coalmine.integrations.lightning_trainer import LightningExposureCallback
    from coalmine.integrations.transformers_trainer import ExposureCallback

_HOMES = {
    "ExposureCallback": "coalmine.integrations.transformers_trainer",
    "LightningExposureCallback": "coalmine.integrations.lightning_trainer",
    "check_survival": "coalmine.corpus.planting.survival",
    "read_watched": "coalmine.integrations.exposure_log",
}

__all__ = ["ExposureCallback", "LightningExposureCallback", "check_survival", "read_watched"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'coalmine.integrations' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
