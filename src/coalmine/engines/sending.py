"""Works packed to be sent to our own processes: the only place that pickles anything, and nothing that comes from a file is unpickled.

Workers of this machine get weights in shared memory. Those of other machines get an object in parts: its pickle, and the memory of its
arrays and tensors, which workers of one machine can share without copies. Memory that comes back is read-only for NumPy; torch does not
know of such memory, so tensors that were sent are for reading only: weights of a model, never written to.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import sys
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import numpy as np

from coalmine.engines.units import Work
from coalmine.errors import InputError


def packed(works: Sequence[Work]) -> bytes:
    """Works for one process, with the weights of torch models in shared memory if there is enough of it."""
    if "torch" in sys.modules:
        import torch.multiprocessing  # noqa: F401 - teaches the pickler to share tensors

        with contextlib.suppress(RuntimeError, OSError), _refused_in_words():
            return bytes(ForkingPickler.dumps(works))
    with _refused_in_words():
        return pickle.dumps(works)


class Parts(NamedTuple):
    """An object: its pickle, and the memory of its arrays and tensors."""

    content: bytes
    buffers: list[np.ndarray]  # of bytes


def in_parts(value: Any, pickler: type[pickle.Pickler] = pickle.Pickler) -> Parts:
    """The parts of an object, which share the memory of its arrays; `pickler` may know more kinds of objects than the usual one.

    >>> from_parts(in_parts({"a": np.arange(3)}))
    {'a': array([0, 1, 2])}
    """
    stream, buffers = io.BytesIO(), list[pickle.PickleBuffer]()

    class InParts(pickler):  # type: ignore[misc, valid-type]  # the base is an argument
        def reducer_override(self, obj: Any) -> Any:
            torch = sys.modules.get("torch")
            if torch is not None and type(obj) is torch.Tensor and _is_plain(torch, obj):
                content = obj.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
                return _tensor, (
                    pickle.PickleBuffer(content),
                    str(obj.dtype).removeprefix("torch."),
                    tuple(obj.shape),
                )
            above = getattr(super(), "reducer_override", None)
            return NotImplemented if above is None else above(obj)

    with _refused_in_words():
        InParts(stream, protocol=5, buffer_callback=buffers.append).dump(value)
    return Parts(stream.getvalue(), [np.frombuffer(buffer.raw(), dtype=np.uint8) for buffer in buffers])


def from_parts(parts: Parts | Sequence[Any]) -> Any:
    """The object; its arrays and tensors use the memory of the parts."""
    content, buffers = parts
    return pickle.loads(content, buffers=buffers)  # noqa: S301 - from our own driver or worker, which run each other's code anyway


def why_not_sent(value: Any) -> str | None:
    """Why a value cannot be sent to another process, or None if it can."""
    try:
        pickle.dumps(value)
    except Exception as problem:  # noqa: BLE001 - an object can refuse with any exception
        return str(problem)
    return None


@contextlib.contextmanager
def _refused_in_words() -> Iterator[None]:
    try:
        yield
    except (pickle.PicklingError, TypeError, AttributeError) as problem:
        raise InputError(
            f"this model cannot be sent to other processes ({problem}); load it from a path, or use the engine here"
        ) from problem


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
