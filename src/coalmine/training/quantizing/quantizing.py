"""Quantizing the weights of a model: every file of weights is written again with few values, and no code of the model is run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import UNSET

from coalmine.errors import ModelError
from coalmine.models.reference.checkpoint import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    check_readable_name,
    digest_of_weights,
    finetuning_of,
    read_config,
    require_torch,
    training_of,
)
from coalmine.models.transformers.model_files import (
    ADAPTER_FILE,
    check_json,
    checkpoint_files,
    described_by,
    held_in,
    read_object,
)
from coalmine.progress import Progress, Silent
from coalmine.records.documents import sealed
from coalmine.storage.files import (
    PRIVATE,
    FileGroup,
    sha256_of_file,
    write_bytes,
)
from coalmine.training.changed_models import check_out, remove_earlier, write_changed
from coalmine.training.quantizing.options import QuantizeOptions
from coalmine.training.quantizing.record import QUANTIZATIONS, Quantization, QuantizedTensor

if TYPE_CHECKING:
    from torch import Tensor

_NOT_WEIGHTS = "not floating-point numbers"
_ONE_DIMENSION = "one dimension: biases and norms are not rounded to int8"
_EIGHT_BITS = "eight bits or fewer already"


def quantize(
    model: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
    record: Callable[[Quantization], None] | None = None,
    options: QuantizeOptions | None = None,
    **changes: Any,
) -> Quantization:
    """Write a copy of a model whose weights have few different values, with a record of what was done.

    The Secret Sharer (arXiv:1802.08232, section 9.1.3) forces each weight to be one of 256 values, and finds that this does not make a
    model forget. Weights are stored as plain numbers of the type that they had, so the copy is as large as the original, and every
    audit can read it. Memory for one file of weights is needed, and nothing of the model is run.

    Args:
        model: a directory that `train` wrote, or a transformers checkpoint with weights in safetensors.
        out: the directory for the quantized model and quantization.json.
        overwrite: replace what an earlier run wrote to `out`. Without it, what the very same call wrote there is left as it is, and
            anything else is refused.
        progress: gets the numbers that were rounded.
        record: called with the result; what it writes appears together with the model.
        options: how weights are rounded; by default to 256 values per tensor.
        changes: fields of `QuantizeOptions` by name, such as `values=16` or `int8=True`.

    >>> quantize("model", "quantized", values=256).rounded  # doctest: +SKIP
    651328
    """
    chosen = QuantizeOptions.of(options, changes)
    require_torch("quantizing a model")
    original, folder = _Original.of(Path(model)), Path(out)
    check_out(original.directory, folder)
    return write_changed(
        QUANTIZATIONS,
        folder,
        [path.name for path in (*original.weights, *original.others)],
        lambda group: _written(original, folder, chosen, group, progress or Silent()),
        lambda done: (done.options, done.files_before) == (chosen, original.sha256()),
        overwrite=overwrite,
        record=record,
    )


class _Original(NamedTuple):
    """The model that is quantized."""

    directory: Path
    # Whether `coalmine train` wrote it.
    ours: bool
    weights: list[Path]
    others: list[Path]

    @classmethod
    def of(cls, directory: Path) -> _Original:
        if not os.path.isdir(directory):  # noqa: PTH112 - Path.is_dir raises on names that are too long
            raise ModelError(
                f"model not found: {directory} is not a directory; only local models can be quantized: name a directory that `coalmine "
                "train` or transformers wrote"
            )
        check_readable_name(directory)
        if (directory / ADAPTER_FILE).exists():
            raise ModelError(
                f"{directory} holds an adapter, and only a whole model can be quantized; merge it into its base (merge_and_unload), save "
                "that, and quantize it"
            )
        config = read_object(directory / CONFIG_FILE) if (directory / CONFIG_FILE).exists() else {}
        if "model_type" not in config:
            read_config(directory / CONFIG_FILE)
            return cls(directory, True, [directory / WEIGHTS_FILE], [directory / CONFIG_FILE])
        if config.get("quantization_config"):
            raise ModelError(
                f"{directory / CONFIG_FILE} says that the weights are quantized already; dequantize the model, and save it again"
            )
        check_json(directory)
        return cls(directory, False, checkpoint_files(directory), described_by(directory))

    def sha256(self) -> dict[str, str]:
        """The SHA-256 of each of its files that is read."""
        return {path.name: sha256_of_file(path) for path in (*self.weights, *self.others)}


def _written(
    original: _Original, folder: Path, options: QuantizeOptions, group: FileGroup, progress: Progress
) -> Quantization:
    """Write the weights, what belongs to them, and the record last."""
    if original.ours:
        digest_of_weights(original.directory)
    before, held = original.sha256(), held_in(original.weights)
    progress.start("Quantizing", held.numbers)
    tensors: list[QuantizedTensor] = []
    for path in original.weights:
        tensors += _rewritten(path, folder / path.name, options, progress)
    progress.finish()
    if not any(one.distinct is not None for one in tensors):
        raise ModelError(
            f"{original.directory} has no weights to round ({_reasons(tensors)}); quantize another model"
        )
    after = {path.name: sha256_of_file(group.where(folder / path.name)) for path in original.weights}
    for path in original.others:
        content = path.read_bytes()
        if original.ours:
            config = read_config(path)
            content = sealed(msgspec.structs.replace(config, weights_sha256=after[WEIGHTS_FILE]))
        write_bytes(folder / path.name, content, mode=PRIVATE)
        after[path.name] = sha256_of_file(group.where(folder / path.name))
    remove_earlier(folder, after, group)
    facts = training_of(original.directory) if original.ours else finetuning_of(original.directory)
    made = Quantization(
        options=options,
        rounding=_in_words(options),
        model=original.directory.resolve().name,
        data_sha256=facts.data_sha256,
        privacy=facts.privacy,
        files=after,
        files_before=before,
        tensors=tuple(tensors),
    )
    QUANTIZATIONS.save(folder, made)
    return made


def _rewritten(
    path: Path, target: Path, options: QuantizeOptions, progress: Progress
) -> Iterator[QuantizedTensor]:
    """Write a file of weights again, rounded."""
    from safetensors import safe_open
    from safetensors.torch import save

    rounded: dict[str, Tensor] = {}
    with safe_open(path, framework="pt") as tensors:
        metadata = tensors.metadata()
        for name in sorted(tensors.keys()):
            weights = tensors.get_tensor(name).contiguous()
            rounded[name], described = _rounded(name, weights, options, path)
            if described.numbers:
                yield described
            progress.advance(described.numbers)
    # Made in memory, because the library has an error of its own for a disk that is full.
    write_bytes(target, save(rounded, metadata=metadata), mode=PRIVATE)


def _rounded(
    name: str, weights: Tensor, options: QuantizeOptions, path: Path
) -> tuple[Tensor, QuantizedTensor]:
    from coalmine.training.quantizing.rounding import rounded_by_row, rounded_to_values

    kept = _reason_to_keep(weights, options)
    if kept is not None or not weights.numel():
        return weights, QuantizedTensor(
            name=name, numbers=weights.numel(), distinct=None, largest_error=0.0, kept=kept or _NOT_WEIGHTS
        )
    if not weights.isfinite().all():
        raise ModelError(
            f"{path} holds {name}, some of whose numbers are not finite, so there is nothing to round them to; train the model again"
        )
    number = options.number
    result = rounded_by_row(weights) if number is None else rounded_to_values(weights, number)
    return result.weights, QuantizedTensor(
        name=name, numbers=weights.numel(), distinct=result.distinct, largest_error=result.largest_error
    )


def _reason_to_keep(weights: Tensor, options: QuantizeOptions) -> str | None:
    """Why a tensor is not rounded; None for one that is."""
    if not weights.is_floating_point():
        return _NOT_WEIGHTS
    if weights.element_size() == 1:
        return _EIGHT_BITS
    return _ONE_DIMENSION if options.int8 and weights.dim() < 2 else None


def _in_words(options: QuantizeOptions) -> str:
    """How values are chosen."""
    if options.number is None:
        return (
            "each row of a tensor of two or more dimensions is rounded to whole multiples, from -127 to 127, of its largest absolute "
            "weight divided by 127"
        )
    return (
        f"each weight is rounded to the nearest of {options.number:,} values, evenly spaced from the least to the greatest weight of its "
        "tensor; a tensor with no more different values is kept"
    )


def _reasons(tensors: list[QuantizedTensor]) -> str:
    found = sorted({one.kept for one in tensors if one.kept is not UNSET})
    return "; ".join(found) or "no tensors"
