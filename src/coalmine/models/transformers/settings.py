"""Checks of what a model's config says, before a library acts on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coalmine.errors import ModelError
from coalmine.models.transformers.model_files import Held
from coalmine.models.transformers.quantization import SETTING

# Settings that count parts of a network, each of which has its own tensor, or classes that a library lists one by one.
_COUNTS = re.compile(r"(^|_)(n_?layers?|num_\w*layers?|\w+_layers|depth|num_\w*blocks?|num_labels)$")
_USUAL_COUNT = 1000
# Libraries compare ids with tensors, which hold no larger numbers.
_MOST_IDS = 1 << 31


def check_settings(path: Path, document: dict[str, Any], held: Held) -> None:
    """Refuse settings that make a library read files that were not checked, or build without end."""
    from transformers import CONFIG_MAPPING

    if document.get("auto_map") and str(document.get("model_type")) not in CONFIG_MAPPING:
        raise ModelError(
            f"{path} names code of its own (auto_map) for its model type, which transformers does not have, and no code that comes with a "
            "model is run; write an adapter for it (docs/guides/adapters.md)"
        )
    for name, value in _settings(document):
        if name in {SETTING, "compression_config"} and value and document.get(name) is not value:
            raise ModelError(
                f"{path} says that a part of the model is quantized, and only models that are quantized as a whole are read; dequantize "
                "the model, and save it again"
            )
        if name == "transformers_weights" and value:
            raise ModelError(
                f"{path} names a weights file of its own (transformers_weights), and only the usual names are read; remove the setting"
            )
        if name in {"attn_implementation", "_attn_implementation"} and "/" in str(value):
            raise ModelError(
                f"{path} names code in a hub as its {name}, and no code is fetched; remove the setting"
            )
        if name.endswith("token_id") and isinstance(value, int) and abs(value) > _MOST_IDS:
            raise ModelError(f"{path} sets {name} to {value:.3g}, which no token has; save the model again")
        if (
            _COUNTS.search(name)
            and isinstance(value, int | float)
            and value > max(_USUAL_COUNT, held.tensors)
        ):
            raise ModelError(
                f"{path} sets {name} to {value:,}, and the weights hold {held.tensors:,} tensors only; save the model again"
            )


def _settings(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every setting of a config, those of its parts included."""
    waiting: list[Any] = [document]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield from one.items()
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
