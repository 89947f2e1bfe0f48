"""Audit directories: results go beside the model's own directory, because people upload that."""

from __future__ import annotations

import os
import re
from pathlib import Path

from coalmine.models.plugins import is_plugin, plugin_file_name
from coalmine.storage.files import real_path

SUFFIX = "-audit"
_CHECKPOINT = re.compile(r"checkpoint-[0-9]+")


def audit_directory(model: str | os.PathLike[str], audit: str | None = None) -> Path:
    """The directory for the results of a model in a directory, or for those of one audit of it.

    A model that a function or an adapter makes has no directory; its results go into the current one. A checkpoint of a trainer lies in a
    directory that people upload, and in which the trainer takes every `checkpoint-*` for one of its own and may remove it, so its
    results are beside that directory.

    >>> audit_directory("out/model", "exposure").as_posix()
    'out/model-audit/exposure'
    >>> audit_directory("out/checkpoint-500", "exposure").as_posix()
    'out-audit/checkpoint-500/exposure'
    >>> audit_directory("python:my_models:gru", "exposure").as_posix()
    'my_models-gru-audit/exposure'
    """
    place = Path(plugin_file_name(model)) if is_plugin(model) else _with_a_name(Path(model))
    if _CHECKPOINT.fullmatch(place.name):
        directory = audit_directory(place.parent) / place.name
    else:
        directory = place.with_name(place.name + SUFFIX)
    return directory if audit is None else directory / audit


def audited_model(directory: str | os.PathLike[str]) -> Path | None:
    """The model's directory that an audit directory is named after, whether it exists or not; None for a directory of another name.

    >>> audited_model("out/model-audit").as_posix()
    'out/model'
    >>> audited_model("out/model") is None
    True
    """
    place = _with_a_name(Path(directory))
    if _CHECKPOINT.fullmatch(place.name):
        trainer = audited_model(place.parent)
        return None if trainer is None else trainer / place.name
    name = place.name.removesuffix(SUFFIX)
    return place.with_name(name) if name and name != place.name else None


def model_of_result(path: str | os.PathLike[str]) -> Path | None:
    """The directory of the model that a file in an audit directory is about, whether it exists or not; None for a file elsewhere.

    >>> model_of_result("/out/model-audit/exposure/exposure.json").as_posix()
    '/out/model'
    """
    folder = Path(path).absolute().parent
    return audited_model(folder) or audited_model(folder.parent)


def result_directory(named: str | os.PathLike[str], audit: str, file_name: str) -> Path:
    """Where a result is: in the named directory, or in the one of its audit beside a named model, or below what is named."""
    place = Path(named)
    for directory in (place, audit_directory(place, audit), place / audit):
        if (directory / file_name).is_file():
            return directory
    return place


def beside(place: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Where else the results of a named place are: for a model's directory or file its audit directory, if there is one."""
    directory = audit_directory(place)
    return (directory,) if Path(place).exists() and directory.is_dir() else ()


def _with_a_name(place: Path) -> Path:
    # "." and ".." have no name to put anything after.
    return place if place.name not in {"", ".."} else real_path(place)
