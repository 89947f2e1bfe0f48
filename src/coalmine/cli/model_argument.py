"""The model that a command asks, wherever it is, and where the results go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from coalmine.cli.taking import Arguments, Part
from coalmine.errors import InputError
from coalmine.models.options import LoadOptions
from coalmine.records.options import Option

ANSWERS_FILE = "answers.sqlite"

Where = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A model's directory (of `coalmine train`, transformers or PEFT), an endpoint's URL, a TOML file that describes one, "
        "python:module:function, which runs that function to make the model, or NAME:WHERE for an adapter that a package registers.",
    ),
]


class Loading(Arguments, frozen=True, kw_only=True):
    """How a model is loaded that scores texts, and for a model of pairs which source it is given."""

    options: LoadOptions
    source: Annotated[
        str | None, Option("For a model of pairs: the one source that every text is given.")
    ] = None


class LoadingAsTrained(Loading, frozen=True, kw_only=True):
    """How a model is loaded that reads texts in its own context."""

    options: Annotated[LoadOptions, Part(("kind", "device", "precision"))]


def results_directory(where: str, out: Path | None, folder: str) -> Path:
    """Where the results of a command go: `out`, or `folder` in the audit directory beside the model's own."""
    from coalmine.evidence.directories import audit_directory

    return audit_directory(where, folder) if out is None else out


def open_model(where: str, out: Path | None, folder: str, loading: Loading) -> tuple[Any, Path]:
    """The model, and the directory for results: `out`, or `folder` in the audit directory beside the model's own."""
    from coalmine.models.loading import is_endpoint
    from coalmine.storage.files import make_directory

    if out is None and is_endpoint(where):
        raise InputError("results of an endpoint need a directory of their own; name one with --out")
    model = model_alone(where, loading, answers=None if out is None else out / ANSWERS_FILE)
    return model, make_directory(results_directory(where, out, folder))


def model_alone(where: str, loading: Loading, *, answers: Path | None = None) -> Any:
    """The model, for a command that writes nothing; `answers` is where those of an endpoint are kept."""
    from coalmine.models.loading import load_model
    from coalmine.models.protocols import PairModel

    model = load_model(where, loading.options, answers=answers)
    if loading.source is None:
        return model
    if not isinstance(model, PairModel):
        raise InputError(
            f"--source is for models of pairs, and {model.name!r} reads one text at a time; leave it out"
        )
    return model.given(loading.source)
