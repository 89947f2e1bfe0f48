"""States of networks as plain arrays, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coalmine.models.reference.networks import State


def to_arrays(state: State) -> list[NDArray[Any]]:
    """The tensors of a state; bfloat16, which NumPy does not have, as two bytes each.

    >>> to_arrays((torch.tensor([1.5], dtype=torch.bfloat16),))[0].dtype.str
    '|V2'
    """
    return [
        part.view(torch.int16).numpy().view("V2") if part.dtype == torch.bfloat16 else part.numpy()
        for part in (one.detach().cpu().contiguous() for one in state)
    ]


def from_arrays(arrays: Sequence[NDArray[Any]]) -> State:
    """The same tensors again, in the memory of the machine.

    >>> from_arrays(to_arrays((torch.tensor([1.5], dtype=torch.bfloat16),)))
    (tensor([1.5000], dtype=torch.bfloat16),)
    """
    return tuple(
        torch.from_numpy(one.view(np.int16).copy()).view(torch.bfloat16)
        if one.dtype.kind == "V"
        else torch.from_numpy(one.copy())
        for one in arrays
    )
