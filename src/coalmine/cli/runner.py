"""The runner: what all commands share, from their output to run.json. A command is a record of what it takes, and one function."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from typer.core import TyperGroup

from coalmine.cli.output import Output
from coalmine.cli.run_record import RUN_FILE, RunClock, identity_of, memory_of
from coalmine.cli.taking import Arguments, takes
from coalmine.errors import InputError

if TYPE_CHECKING:
    from coalmine.engines.engine import Engine
    from coalmine.engines.ledger import Ledger
    from coalmine.engines.options import EngineOptions
    from coalmine.models.options import LoadOptions

ANSWERS_FILE = "answers.sqlite"
_LOOK: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}
app = typer.Typer(
    name="coalmine",
    help="Measures what a language model remembers of its training data.",
    epilog="Start with `coalmine demo`. Exit codes: 0 done, 1 a policy is broken, 2 not measurable, or wrong usage or input, "
    "70 a bug in coalmine.",
    **_LOOK,
)


class Printing(Arguments, frozen=True, kw_only=True):
    """What every command prints."""

    json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON document on standard output and nothing else there."),
    ] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show no progress and no table; errors still show.")
    ] = False


class Session(Output):
    """One run of a command: what it prints, where its results go, the models and the engine that it asks, and its record.

    Attributes:
        directory: where the results go, once `into` or `beside` was called.
    """

    def __init__(self, given: Any, printing: Printing) -> None:
        super().__init__(json=printing.json, quiet=printing.quiet)
        self.directory = Path()
        self._given, self._clock = given, RunClock()
        self._models: list[Any] = []

    def into(self, directory: Path, *files: str, recorded: bool = True) -> None:
        """Let results go into a directory where these files and run.json can be written; one that is new and stays empty is removed."""
        from coalmine.storage.files import check_places, no_empty_directory

        self.directory = directory
        self.held.enter_context(no_empty_directory(directory))
        check_places(directory, *files, *([RUN_FILE] if recorded else []))

    def beside(self, model: str, folder: str, *files: str) -> None:
        """Let results go to --out, or to `folder` in the audit directory beside a model's own."""
        from coalmine.evidence.directories import audit_directory
        from coalmine.models.loading import is_endpoint

        if self._given.out is None and is_endpoint(model):
            raise InputError("results of an endpoint need a directory of their own; name one with --out")
        self.into(audit_directory(model, folder) if self._given.out is None else self._given.out, *files)

    def model(self, where: str) -> Any:
        """A model; with the first of them, the command gets the sole use of the directory for results."""
        from coalmine.storage.directories import sole_use

        loading = self._given.loading
        options = getattr(loading, "options", loading)
        source = getattr(loading, "source", None)
        made = loaded(where, options, source, answers=self.directory / ANSWERS_FILE)
        if not self._models:
            self.held.enter_context(sole_use(self.directory))
        self._models.append(made)
        return made

    @cached_property
    def engine(self) -> Engine:
        """The engine that was asked for, open until the command ends."""
        running: EngineOptions = self._given.running
        return self.held.enter_context(running.opened())

    @cached_property
    def ledger(self) -> Ledger:
        """What is kept of a run that is stopped, until its record is written."""
        from coalmine.engines.ledger import Ledger

        return Ledger(self.directory)

    def record(self, directory: Path | None = None, **facts: Any) -> None:
        """Write run.json, as the last of the files; `facts` are the seeds, hashes and counts of this command."""
        if "engine" in self.__dict__:
            facts |= {"engine": self._given.running.engine, "threads": self._given.running.threads}
        facts |= identity_of(*self._models) | memory_of(*self._models)
        self._clock.save(directory or self.directory, **facts)
        if "ledger" in self.__dict__:
            self.ledger.forget()


def loaded(
    where: str, options: LoadOptions, source: str | None = None, *, answers: Path | None = None
) -> Any:
    """A model, for a model of pairs with the source that it is given; `answers` is where those of an endpoint are kept."""
    from coalmine.models.loading import load_model
    from coalmine.models.protocols import PairModel

    model = load_model(where, options, answers=answers)
    if source is None:
        return model
    if not isinstance(model, PairModel):
        raise InputError(
            f"--source is for models of pairs, and {model.name!r} reads one text at a time; leave it out"
        )
    return model.given(source)


def command(
    name: str, within: typer.Typer = app
) -> Callable[[Callable[[Any, Session], int | None]], Callable[..., int]]:
    """Register a function as a command: it takes a record, whose fields become arguments and options, and the session.

    What it returns is the exit code, and None is 0.
    """

    def registered(function: Callable[[Any, Session], int | None]) -> Callable[..., int]:
        record = inspect.signature(function, eval_str=True).parameters["given"].annotation
        fields: list[tuple[str, Any]] = [("given", record), ("printing", Printing)]
        everything = msgspec.defstruct(record.__name__, fields, bases=(Arguments,), frozen=True, kw_only=True)

        def run(taken: Any) -> int:
            session = Session(taken.given, taken.printing)
            with session.held:
                return function(taken.given, session) or 0

        run.__name__, run.__doc__ = function.__name__, function.__doc__
        run.__annotations__ = {"taken": everything, "return": int}
        return within.command(name)(takes(run))

    return registered


def group(name: str, says: str, kind: type[TyperGroup] = TyperGroup) -> typer.Typer:
    """A command that has commands, and without one shows its help."""
    made = typer.Typer(cls=kind, help=says, **_LOOK)

    @made.callback(invoke_without_command=True)
    def _(context: typer.Context) -> None:
        show_help(context)

    app.add_typer(made, name=name)
    return made


def show_help(context: typer.Context) -> None:
    """Show the help of a command that was given none of its own commands."""
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")
