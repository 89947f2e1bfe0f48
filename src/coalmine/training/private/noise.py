"""Randomness of private training: noise and draws of units, as functions of a key and the number of the step.

Nothing is carried from step to step, so that a run that was killed and resumed adds the very same noise. The key is drawn from the system
and kept only in the state of a training that is not finished, or it is derived from a seed; it is in no record, because anyone who knows it
can compute the noise and subtract it.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from coalmine.models.protocols import IntArray
from coalmine.randomness import arrays, child_seed, from_system
from coalmine.storage.files import to_json
from coalmine.training.private.options import PrivateOptions


class PrivateRandomness:
    """The noise and the draws of one training.

    >>> PrivateRandomness(7).drawn(0, units=1000, rate=0.5).size
    491
    """

    def __init__(self, key: int) -> None:
        self.key = key

    def drawn(self, step: int, *, units: int, rate: float) -> IntArray:
        """Which units are in a step, in ascending order: each by a coin of its own, so that there may be none."""
        return np.flatnonzero(arrays(self.key, "private", "draw", step).random(units) < rate)

    def add_noise(self, network: nn.Module, step: int, deviation: float) -> None:
        """Add independent Gaussian noise to the gradient of every trainable parameter."""
        if not deviation:
            return
        chance = arrays(self.key, "private", "noise", step)
        for parameter in network.parameters():
            if parameter.requires_grad:
                drawn = torch.from_numpy(chance.standard_normal(tuple(parameter.shape)))
                noise: Tensor = (drawn * deviation).to(parameter)
                parameter.grad = noise if parameter.grad is None else parameter.grad.add_(noise)


class TrainsPrivately(Protocol):
    """The options of a training that may be private."""

    @property
    def private(self) -> PrivateOptions | msgspec.UnsetType:
        """Those of privacy."""

    def without_seed_of_noise(self) -> msgspec.Struct:
        """The same for records, which others may read."""


def new_key(options: TrainsPrivately, data_sha256: str) -> int:
    """The key of a training that begins: drawn from the system, or from the seed if there is one.

    Of trainings with the same seed, each on its own data or with its own options has its own noise: where two had the same, the
    difference of their weights would have none.
    """
    private = options.private
    if not private or private.seed is None:
        return from_system()
    facts = to_json([options.without_seed_of_noise(), data_sha256]).decode()
    return child_seed(private.seed, "private", "key", facts)
