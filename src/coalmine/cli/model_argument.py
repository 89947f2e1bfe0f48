"""The model that a command asks, wherever it is, and where the results go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coalmine.errors import InputError

if TYPE_CHECKING:
    from coalmine.models.loading import Kind

ANSWERS_FILE = "answers.sqlite"

Where = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A model's directory (of `coalmine train`, transformers or PEFT), an endpoint's URL, a TOML file that describes one, or "
        "python:module:function, which runs that function to make the model.",
    ),
]
As = Annotated[
    str,
    typer.Option(
        "--as",
        help="What a transformers checkpoint is used as: auto, causal, pairs or masked (T5 can be both).",
    ),
]
Source = Annotated[
    str | None,
    typer.Option("--source", help="For a model of pairs: the one source that every text is given."),
]
Device = Annotated[str, typer.Option("--device", help="Where the model runs, such as cpu or cuda.")]
Precision = Annotated[
    str,
    typer.Option(
        "--precision",
        help="float32, float64 for ranks that no rounding can move, or bfloat16 for large models.",
    ),
]


ContextChoice = Annotated[
    str,
    typer.Option(
        "--context",
        help="What a text is scored after, for causal models: auto (BOS, or end of text), bos, eot or none; docs/guides/models.md.",
    ),
]
ContextText = Annotated[
    str | None, typer.Option("--context-text", help="A text that comes after --context, before each text.")
]


def results_directory(where: str, out: Path | None, folder: str) -> Path:
    """Where the results of a command go: `out`, or `folder` in the audit directory beside the model's own."""
    from coalmine.evidence.directories import audit_directory

    return audit_directory(where, folder) if out is None else out


def open_model(
    where: str,
    out: Path | None,
    folder: str,
    *,
    kind: str,
    device: str,
    precision: str,
    source: str | None,
    context: str = "auto",
    context_text: str | None = None,
) -> tuple[Any, Path]:
    """The model, and the directory for results: `out`, or `folder` in the audit directory beside the model's own."""
    from coalmine.models.loading import is_endpoint
    from coalmine.storage.files import make_directory

    if out is None and is_endpoint(where):
        raise InputError("results of an endpoint need a place of their own; name a directory with --out")
    answers = None if out is None else out / ANSWERS_FILE
    model = model_alone(
        where,
        answers,
        kind=kind,
        device=device,
        precision=precision,
        source=source,
        context=context,
        context_text=context_text,
    )
    return model, make_directory(results_directory(where, out, folder))


def model_alone(
    where: str,
    answers: Path | None = None,
    *,
    kind: str,
    device: str,
    precision: str,
    source: str | None,
    context: str = "auto",
    context_text: str | None = None,
) -> Any:
    """The model, for a command that writes nothing; `answers` is where those of an endpoint are kept."""
    from coalmine.models.loading import load_model
    from coalmine.models.protocols import PairModel

    as_kind: Kind = kind  # type: ignore[assignment]  # load_model says which there are
    model = load_model(
        where,
        kind=as_kind,
        device=device,
        precision=precision,
        context=context,
        context_text=context_text,
        answers=answers,
    )
    if source is None:
        return model
    if not isinstance(model, PairModel):
        raise InputError(
            f"--source is for models of pairs, and {model.name!r} reads one text at a time; leave it out"
        )
    return model.given(source)
