"""Looking at a model, or at its data, in the middle of its training without changing how the training goes on."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# A 4-bit layer of bitsandbytes on a CPU with this property packs its weights when it is evaluated, and cannot be trained after that.
_PACKS = "support_avx512bf16_for_cpu"
# What such a layer may change when it is evaluated; the precision that it computes in is that of the first input that it sees.
_OF_4_BIT = (_PACKS, "compute_dtype", "compute_type_is_set")


@contextlib.contextmanager
def undisturbed(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode for the block; afterwards each module's mode and every global random state are as before.

    Gradients are not touched as long as the block computes none.
    """
    modes = [(module, module.training) for module in model.modules()]
    quantized = [module for module in model.modules() if hasattr(module, _PACKS)]
    facts = [[getattr(module, name) for name in _OF_4_BIT] for module in quantized]
    devices = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
    try:
        with undisturbed_draws(sorted(devices, key=str)):
            for module in quantized:
                setattr(module, _PACKS, False)
            model.eval()
            yield
    finally:
        for module, values in zip(quantized, facts, strict=True):
            for name, value in zip(_OF_4_BIT, values, strict=True):
                setattr(module, name, value)
        for module, training in modes:
            # Module by module, because some may be frozen in evaluation mode on purpose.
            module.training = training


@contextlib.contextmanager
def undisturbed_draws(devices: Sequence[Any] = ()) -> Iterator[None]:
    """Afterwards every global random state is as before the block: those of torch, NumPy and Python."""
    import numpy as np
    import torch

    of_numpy, of_python = np.random.get_state(), random.getstate()  # noqa: NPY002  # the trainer's own, to restore it
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        np.random.set_state(of_numpy)  # noqa: NPY002  # as above
        random.setstate(of_python)
