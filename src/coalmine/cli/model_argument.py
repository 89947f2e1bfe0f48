"""The model that a command asks, wherever it is, where the results go, and the record of the run beside them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from coalmine.cli.taking import Arguments, Part
from coalmine.engines.options import EngineOptions
from coalmine.errors import InputError
from coalmine.models.options import LoadOptions
from coalmine.records.options import Option

if TYPE_CHECKING:
    from coalmine.cli.run_record import RunClock
    from coalmine.engines.engine import Engine
    from coalmine.engines.ledger import Ledger

ANSWERS_FILE = "answers.sqlite"

Where = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A model's directory (of `coalmine train`, transformers or PEFT) or .gguf file, an endpoint's URL, a TOML file that "
        "describes one, python:module:function, which runs that function to make the model, or NAME:WHERE for an adapter that a package "
        "registers.",
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

    options: Annotated[LoadOptions, Part(("kind", "device", "device_map", "precision"))]


class ModelRun(NamedTuple):
    """A command that asks one model, while it runs."""

    model: Any
    # For the results.
    directory: Path
    ledger: Ledger
    engine: Engine
    options: EngineOptions
    clock: RunClock

    def record(self, **facts: Any) -> None:
        """Write run.json, after which what the run kept is no longer needed."""
        from coalmine.cli.run_record import identity_of, memory_of

        self.clock.save(
            self.directory,
            **facts,
            engine=self.options.engine,
            threads=self.options.threads,
            **identity_of(self.model),
            **memory_of(self.model),
        )
        self.ledger.forget()


@contextlib.contextmanager
def model_run(
    where: str, out: Path | None, folder: str, loading: Loading, running: EngineOptions, *files: str
) -> Iterator[ModelRun]:
    """Open the model and the engine, with the sole use of the directory for results, once `files` can be written there."""
    from coalmine.cli.run_record import RUN_FILE, RunClock
    from coalmine.engines.ledger import Ledger
    from coalmine.storage.files import check_places, no_empty_directory
    from coalmine.storage.unfinished import sole_use

    place = results_directory(where, out, folder)
    with no_empty_directory(place):
        clock = RunClock()
        check_places(place, *files, RUN_FILE)
        model, directory = open_model(where, out, folder, loading)
        with sole_use(directory), running.opened() as engine:
            yield ModelRun(model, directory, Ledger(directory), engine, running, clock)


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
