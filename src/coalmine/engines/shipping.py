"""Objects as bytes and the buffers of their arrays and tensors, which workers of one machine can share without copies.

An engine whose workers are on other machines ships works, units and results in this form. A buffer that comes back is read-only for
NumPy; torch does not know of such memory, so tensors that were shipped are for reading only: weights of a model, never written to.
"""

from __future__ import annotations

import io
import pickle
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Packed(NamedTuple):
    """An object: its pickle, and the memory of its arrays and tensors."""

    content: bytes
    buffers: list[np.ndarray]  # of bytes


def packed(value: Any, pickler: type[pickle.Pickler] = pickle.Pickler) -> Packed:
    """The parts of an object, which share the memory of its arrays; `pickler` may know more kinds of objects than the usual one.

    >>> unpacked(packed({"a": np.arange(3)}))
    {'a': array([0, 1, 2])}
    """
    stream, buffers = io.BytesIO(), list[pickle.PickleBuffer]()

    class Shipping(pickler):  # type: ignore[misc, valid-type]  # the base is an argument
        def reducer_override(self, obj: Any) -> Any:
            torch = sys.modules.get("torch")
            if torch is not None and type(obj) is torch.Tensor and _is_plain(torch, obj):
                whole = obj.detach().contiguous()
                name = str(obj.dtype).removeprefix("torch.")
                content = whole.reshape(-1).view(torch.uint8).numpy()
                return _tensor, (pickle.PickleBuffer(content), name, tuple(obj.shape))
            above = getattr(super(), "reducer_override", None)
            return NotImplemented if above is None else above(obj)

    Shipping(stream, protocol=5, buffer_callback=buffers.append).dump(value)
    return Packed(stream.getvalue(), [np.frombuffer(buffer.raw(), dtype=np.uint8) for buffer in buffers])


def unpacked(parts: Packed | Sequence[Any]) -> Any:
    """The object; its arrays and tensors use the memory of the buffers."""
    content, buffers = parts
    return pickle.loads(content, buffers=buffers)  # noqa: S301 - from our own driver or worker, which run each other's code anyway


def _is_plain(torch: Any, tensor: Any) -> bool:
    """Whether a tensor is memory of this machine and nothing else."""
    return (
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and not tensor.is_quantized
        and not tensor.requires_grad
        and tensor.numel() > 0
    )


def _tensor(buffer: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    import torch

    with warnings.catch_warnings():  # that the memory is not writable: nothing writes to it
        warnings.simplefilter("ignore", UserWarning)
        return torch.frombuffer(buffer, dtype=getattr(torch, dtype)).reshape(shape)
