"""The state of a training as plain arrays: a stopped run resumes from it and ends with the same bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from coalmine.engines.units import Arrays

Weights = dict[str, Tensor]


class Learned(NamedTuple):
    """What a training has learned so far, besides what is in its network, its optimizer and torch's generator."""

    best: Weights
    # What recurrent networks carry from one batch to the next.
    carried: tuple[Tensor, ...]


def state_arrays(
    network: torch.nn.Module, optimizer: torch.optim.Optimizer, learned: Learned, position: bytes
) -> Arrays:
    """Everything that the rest of the run depends on, copied, because engines may send it while the training goes on.

    `position` is plain JSON.
    """
    tensors = _under("weights", network.state_dict()) | _under("best", learned.best)
    tensors |= {f"carried/{place}": tensor for place, tensor in enumerate(learned.carried)}
    tensors["random"] = torch.get_rng_state()
    for place, entries in optimizer.state_dict()["state"].items():
        tensors |= _under(f"optimizer/{place}", entries)
    arrays: Arrays = {
        name: torch.as_tensor(one).detach().cpu().numpy().copy() for name, one in tensors.items()
    }
    return arrays | {"position": np.frombuffer(position, dtype=np.uint8)}


def restore(
    arrays: Arrays, network: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[Learned, bytes]:
    """Put a state back into a network, an optimizer and torch's generator; returns the rest, and the position."""
    tensors = {
        name: torch.from_numpy(np.array(array)) for name, array in arrays.items() if name != "position"
    }
    network.load_state_dict(_of(tensors, "weights"))
    entries: dict[int, dict[str, Tensor]] = {}
    for name, tensor in _of(tensors, "optimizer").items():
        place, entry = name.split("/")
        entries.setdefault(int(place), {})[entry] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": entries, "param_groups": groups})
    torch.set_rng_state(tensors["random"])
    carried = _of(tensors, "carried")
    learned = Learned(_of(tensors, "best"), tuple(carried[str(place)] for place in range(len(carried))))
    return learned, arrays["position"].tobytes()


def _under(folder: str, tensors: dict[str, Any]) -> dict[str, Any]:
    return {f"{folder}/{name}": tensor for name, tensor in tensors.items()}


def _of(tensors: Weights, folder: str) -> Weights:
    return {
        name.removeprefix(f"{folder}/"): tensor
        for name, tensor in tensors.items()
        if name.startswith(f"{folder}/")
    }
