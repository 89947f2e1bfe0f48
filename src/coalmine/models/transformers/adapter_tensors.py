"""Checks of the tensors in an adapter's file: each is the adapter's own and in use as written, or equals the base's tensor of that name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coalmine.errors import ModelError
from coalmine.models.transformers.model_files import ADAPTER_FILE

# The numbers of a tensor that are compared at a time: 16 MB in single precision.
_AT_A_TIME = 1 << 22


def tensors_of_base(adapted: Any, base: Iterable[Tensor]) -> dict[str, Tensor]:
    """The tensors of the base, by the names that they have inside the adapter."""
    known = {id(tensor) for tensor in base}
    return {name: tensor for name, tensor in every_tensor(adapted) if id(tensor) in known}


def every_tensor(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers; tied ones under each of their names."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def check_names(path: Path, names: frozenset[str], own: Iterable[str], further: Iterable[str]) -> None:
    """Check that a file has all of the adapter's own tensors, and besides those only `further` ones, which are compared."""
    own = frozenset(own)
    missing = own - names
    if missing:
        raise ModelError(
            f"{path} has no {min(missing)} ({len(missing)} of the adapter's {len(own)} tensors are missing), so a part of the adapter "
            "would not be measured; save the adapter again"
        )
    unused = names - own - frozenset(further)
    if unused:
        raise ModelError(
            f"{path} holds {min(unused)}, which has no place in the adapter that {ADAPTER_FILE} describes ({len(unused)} of its "
            f"{len(names)} tensors would not be used); save the adapter again"
        )


def check_rows(path: Path, built: dict[str, Tensor], rows: int) -> None:
    """Refuse an adapter with a larger vocabulary than its base, with advice."""
    for name, (_, shape) in _written(path).items():
        here = tuple(built[name].shape) if name in built else shape
        if len(here) == len(shape):
            for written, has in zip(shape, here, strict=True):
                if has == rows < written:
                    raise ModelError(too_few_rows(path, f"holds {name} for {written:,} tokens", rows))


def too_few_rows(path: Path, what: str, rows: int) -> str:
    """The message for a vocabulary that was enlarged before the adapter was trained."""
    return (
        f"{path} {what}, and its base has rows for {rows:,} only; resize the base's embeddings and save it with those of the adapter "
        '(docs/guides/models.md, "An enlarged vocabulary")'
    )


def check_base(path: Path, base: dict[str, Tensor]) -> None:
    """Check that each base tensor in an adapter's file equals that of the base, number by number: the rest was trained on that base."""
    for name in sorted(_written(path).keys() & base.keys()):
        if not _same(path, name, base[name]):
            trained = (
                " (the adapter trained it, as `bias` in its config says)" if name.endswith("bias") else ""
            )
            raise ModelError(
                f"{path} holds {name}, a tensor of its base that is not what the base has{trained}, so that the two cannot be measured "
                "side by side; name the base that it was trained on, or merge it into its base (merge_and_unload) and save the whole model"
            )


def read_tensors(path: Path, names: Iterable[str]) -> dict[str, Tensor]:
    """Some tensors of a file."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as tensors:
        return {name: tensors.get_tensor(name) for name in names}


def check_in_use(path: Path, names: Iterable[str], in_use: dict[str, Tensor]) -> None:
    """Check that the tensors in use are those in the file, number by number."""
    for name in sorted(names):
        if name not in in_use or not _same(path, name, in_use[name]):
            raise ModelError(f"PEFT does not read {name} as it is in {path}; save the adapter again")


def _written(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The data type and the shape of each tensor, from the header."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as tensors:
        parts = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118 - not a dictionary
        return {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in parts.items()}


def _same(path: Path, name: str, tensor: Tensor) -> bool:
    """Whether a tensor has the numbers in a file, compared in parts; numbers of more precision are rounded to that of the others."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as tensors:
        part = tensors.get_slice(name)
        if tuple(part.get_shape()) != tuple(tensor.shape):
            return False
        if not tensor.dim():
            return _equal(tensors.get_tensor(name), tensor)
        step = max(1, _AT_A_TIME * len(tensor) // max(1, tensor.numel()))
        return all(
            _equal(part[start : start + step], tensor[start : start + step])
            for start in range(0, len(tensor), step)
        )


def _equal(one: Tensor, other: Tensor) -> bool:
    other = other.detach().cpu()
    if one.is_floating_point() and other.is_floating_point():
        coarser = max(one.dtype, other.dtype, key=lambda dtype: torch.finfo(dtype).eps)
        one, other = one.to(coarser), other.to(coarser)
    # The same numbers, NaN included.
    return bool(((one == other) | (one.isnan() & other.isnan())).all())
