"""Which local base model a PEFT adapter belongs to."""

from __future__ import annotations

import os
from pathlib import Path

from coalmine.errors import ModelError
from coalmine.models.transformers.model_files import ADAPTER_FILE, CONFIG_FILE, read_object


def base_of_adapter(directory: Path) -> Path | None:
    """The local directory of the model that an adapter belongs to, or None if there is no adapter.

    A relative path may be relative to the working directory, as libraries read it, or to the adapter, which is still right after both
    were moved. Directories without a model are skipped; if two different ones remain, it is unclear which is meant.
    """
    config = directory / ADAPTER_FILE
    if not config.exists():
        return None
    named = read_object(config).get("base_model_name_or_path")
    if not isinstance(named, str) or not named:
        raise ModelError(f"{config} does not say which model the adapter belongs to; save the adapter again")
    found = _directories(named, directory)
    if not found:
        raise ModelError(
            f"the adapter in {directory} belongs to {named!r}, which is not a local directory; nothing is fetched from a hub: "
            f"download the model, and put its path into {config}"
        )
    models = [base for base in found if _is_model(base)]
    for base in models or found:
        if (base / ADAPTER_FILE).exists():
            raise ModelError(
                f"the adapter in {directory} belongs to {base}, which is an adapter too; merge that one into its base (merge_and_unload), "
                f"and put the path of the whole model into {config}"
            )
    if not models:
        raise ModelError(
            f"the adapter in {directory} belongs to {found[0]}, which has no {CONFIG_FILE} that names a model_type of transformers; put "
            f"the path of the whole model into {config}"
        )
    if len(models) > 1:
        raise ModelError(
            f"the adapter in {directory} belongs to {named!r}, which is {models[0].resolve()} from the working directory and "
            f"{models[1].resolve()} from the adapter; put the full path of the one that it was trained on into {config}"
        )
    return models[0]


def refuse_adapters_below(directory: Path) -> None:
    """Name an adapter in a subdirectory, if a directory has no model: PEFT saves those that are not called "default" there."""
    if (directory / CONFIG_FILE).exists():
        return
    below = sorted(directory.glob(f"*/{ADAPTER_FILE}"))
    if below:
        raise ModelError(
            f"{directory} holds no model, and there {'is an adapter' if len(below) == 1 else f'are {len(below)} adapters'} below it; name "
            f"the directory of the adapter: {below[0].parent}"
        )


def _directories(named: str, directory: Path) -> list[Path]:
    """The directories that a path can refer to, each once."""
    found: list[Path] = []
    # Not Path.is_dir, which raises on names that are too long for a path.
    for candidate in (named, os.path.join(directory, named)):  # noqa: PTH118
        if os.path.isdir(candidate):  # noqa: PTH112
            path = Path(candidate)
            if not any(path.samefile(other) for other in found):
                found.append(path)
    return found


def _is_model(directory: Path) -> bool:
    """Whether a directory has the config of a transformers checkpoint; a config that cannot be read is refused by name."""
    path = directory / CONFIG_FILE
    return path.exists() and "model_type" in read_object(path)
