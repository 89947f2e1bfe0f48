"""What private training refuses, because the claim would not hold, each with its reason."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from coalmine.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from coalmine.training.options import TrainingOptions
    from coalmine.training.private.options import PrivateOptions


def check_choices(chosen: dict[str, Any]) -> None:
    """Refuse training options, named by the user, that private training cannot take."""
    if "patience" in chosen:
        raise InputError(
            f"private training cannot choose an epoch by the validation loss, got patience={chosen['patience']}: the choice would "
            "depend on the data without noise; leave patience out and give the number of epochs"
        )
    if chosen.get("shuffle") is False:
        raise InputError(
            "private training draws each unit by a coin of its own in every step (Poisson sampling), which its accounting needs, got "
            "shuffle=False; leave it out"
        )
    if "clip" in chosen:
        raise InputError(
            f"private training clips the gradient of each unit, got clip={chosen['clip']}, which clips that of a batch; give "
            "dp_clip instead"
        )


def check_layers(network: nn.Module) -> None:
    """Refuse layers that mix examples: the gradient of a unit would depend on the units beside it."""
    from torch.nn.modules.batchnorm import _NormBase

    for name, layer in network.named_modules():
        if isinstance(layer, _NormBase):
            raise InputError(
                f"private training needs the gradient of each unit by itself, and the layer {name!r} ({type(layer).__name__}) mixes the "
                "examples of a batch; replace it, for example with layer or group normalization"
            )


@contextlib.contextmanager
def refused_resuming(options: Iterable[TrainingOptions]) -> Iterator[None]:
    """Say why a private training cannot continue one that began with other options, where a ledger refuses that."""
    try:
        yield
    except InputError as problem:
        if not any(one.private for one in options):
            raise
        raise InputError(
            f"{problem}: a private training resumes only with the noise, clipping, unit and sampling that it began with, which its "
            "accounting assumes for every step"
        ) from None


def check_resumed_noise(kept: float, private: PrivateOptions, epsilon: float | None) -> None:
    """Refuse to resume with noise that is not as wanted: the noise and the epsilon of a training that was stopped."""
    if private.epsilon is None:
        alike, wanted = kept == private.noise, f"this one would add {private.noise:g}"
    else:
        alike = epsilon is not None and epsilon <= private.epsilon
        wanted = f"this one needs more for an epsilon of {private.epsilon:g}"
    if not alike:
        raise InputError(
            f"the private training that was stopped here began with a noise multiplier of {kept:g}, and {wanted}; resume with the same "
            "options and version of dp-accounting, or remove its unfinished files to train from the start"
        )


def check_delta(delta: float, units: int) -> None:
    """Refuse a delta under which publishing a whole unit at random would count as private."""
    if delta * units >= 1:
        raise InputError(
            f"dp_delta must be far below one over the number of units, got {delta:g} for {units:,} units: publishing one of them at random "
            "would be as private; give a smaller one, such as 1e-9"
        )
