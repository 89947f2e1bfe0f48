"""A limit on the network that a config can make a library build: not much larger than the weight files."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from coalmine.errors import ModelError
from coalmine.models.transformers.model_files import Held

# Tied weights are in a file once and in a network up to four times; masks and position tables are in no file.
_FACTOR, _FURTHER_NUMBERS, _FURTHER_TENSORS = 5, 1 << 26, 2_000


@contextlib.contextmanager
def no_larger_than(held: Held, settings: str, *, outlines_only: bool = False) -> Iterator[None]:
    """Refuse a network that this thread builds as soon as it is far larger than what its files hold.

    Tensors are counted when they are added to the network, before a value is written into them, so a refused network takes no memory.
    `settings` names the file that describes the network. With `outlines_only`, tensors that have values are not counted: transformers
    builds a network without values, and then replaces its tensors by those of the files.
    """
    from torch.nn.modules import module

    thread = threading.get_ident()
    numbers = tensors = 0

    def count(_: Any, __: str, tensor: Any) -> None:
        nonlocal numbers, tensors
        if tensor is None or threading.get_ident() != thread or (outlines_only and not tensor.is_meta):
            return
        numbers += tensor.numel()
        tensors += 1
        if (
            numbers > _FACTOR * held.numbers + _FURTHER_NUMBERS
            or tensors > _FACTOR * held.tensors + _FURTHER_TENSORS
        ):
            raise ModelError(
                f"{settings} describes a network far larger than its weights, which hold {held.numbers:,} numbers; save the model again"
            )

    hooks = [
        module.register_module_parameter_registration_hook(count),
        module.register_module_buffer_registration_hook(count),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
