"""Snapshots of a training run, each one file: a stopped run resumes from it and ends with the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from coalmine.models.reference.checkpoint import UNFINISHED_FILE
from coalmine.storage.guarded_files import read_guarded, write_guarded

SNAPSHOT_FILE = UNFINISHED_FILE
_LENGTH_BYTES = 8


def save_snapshot(
    directory: Path,
    *,
    weights: dict[str, Tensor],
    best: dict[str, Tensor],
    optimizer: torch.optim.Optimizer,
    carried: tuple[Tensor, ...],
    facts: dict[str, Any],
) -> None:
    """Write everything that the rest of the run depends on; `facts` is plain JSON."""
    from safetensors.torch import save

    tensors = {f"weights/{name}": tensor for name, tensor in weights.items()}
    tensors |= {f"best/{name}": tensor for name, tensor in best.items()}
    tensors |= {f"carried/{place}": tensor for place, tensor in enumerate(carried)}
    tensors["random"] = torch.get_rng_state()
    for place, entries in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer/{place}/{name}": torch.as_tensor(value) for name, value in entries.items()}
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    # Not by the library, which would write to a temporary file of its own that is never removed after a kill.
    write_guarded(directory / SNAPSHOT_FILE, save(copies, metadata={"facts": json.dumps(facts)}))


class Snapshot(NamedTuple):
    """An unfinished run, as it was saved."""

    facts: dict[str, Any]
    tensors: dict[str, Tensor]


def read_snapshot(directory: Path) -> Snapshot | None:
    """The unfinished run in a directory, or None where there is none; an InputError where it is damaged."""
    from safetensors.torch import load

    path = directory / SNAPSHOT_FILE
    if not path.exists():
        return None
    content = read_guarded(path, "a training that was stopped", advice="remove it to train from the start")
    # The library does not give the metadata of bytes: it is in the header, after the length of it.
    length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    header = json.loads(content[_LENGTH_BYTES : _LENGTH_BYTES + length])
    return Snapshot(json.loads(header["__metadata__"]["facts"]), load(content))


def restore(
    tensors: dict[str, Tensor], network: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, Tensor], tuple[Tensor, ...]]:
    """Put a snapshot back into a network, an optimizer and torch's generator; returns the best weights and carried state."""

    def under(folder: str) -> dict[str, Tensor]:
        return {
            name.removeprefix(folder): tensor for name, tensor in tensors.items() if name.startswith(folder)
        }

    network.load_state_dict(under("weights/"))
    state = optimizer.state_dict()
    entries: dict[int, dict[str, Tensor]] = {}
    for name, tensor in under("optimizer/").items():
        place, entry = name.split("/")
        entries.setdefault(int(place), {})[entry] = tensor
    optimizer.load_state_dict({"state": entries, "param_groups": state["param_groups"]})
    torch.set_rng_state(tensors["random"])
    carried = under("carried/")
    return under("best/"), tuple(carried[str(place)] for place in range(len(carried)))
