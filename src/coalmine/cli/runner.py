"""The runner: what all commands share, from their output to run.json. A command is a record of what it takes, and one function."""

from __future__ import annotations

import contextlib
import inspect
import io
import platform
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import msgspec

from coalmine.cli.output import (
    UNREAD,
    ShownProgress,
    facts,
    make_console,
    noted,
    placed,
    print_json,
    write_stdout,
)
from coalmine.cli.taking import Arguments, Part, taken
from coalmine.errors import InputError
from coalmine.progress import Progress, Silent
from coalmine.records.documents import RUN_RECORDS

if TYPE_CHECKING:
    from coalmine.engines.engine import Engine
    from coalmine.engines.ledger import Ledger

RUN_FILE, ANSWERS_FILE = RUN_RECORDS.file, "answers.sqlite"
_PACKAGES = ("coalmine", "numpy", "scipy", "torch", "safetensors", "pyarrow")


class Printing(Arguments, frozen=True, kw_only=True):
    """What every command prints.

    Attributes:
        json: Print one JSON document on standard output and nothing else there.
        quiet: Show no progress and no table; errors still show.
    """

    json: bool = False
    quiet: bool = False


class Session:
    """One run of a command: what it prints, where its results go, the models and the engine that it asks, and its record.

    Attributes:
        directory: where the results go, once `into` or `beside` was called.
        held: what ends with the command, such as the line of its progress; the command runs in a `with` of it.
    """

    def __init__(self, given: Any, printing: Printing) -> None:
        self.json, self.quiet = printing.json, printing.quiet
        self.held, self._progress = contextlib.ExitStack(), ShownProgress()
        self.directory = Path()
        self._given, self._models = given, list[Any]()
        self._started_at, self._began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()

    def progress(self) -> Progress:
        """Progress on standard error, and nothing if quiet."""
        if self.quiet:
            return Silent()
        self.held.callback(self._progress.close)
        return self._progress

    def say(self, *shown: Any) -> None:
        """Print for people, what there is of it; nothing with --json or --quiet."""
        if not self.json and not self.quiet:
            written = io.StringIO()
            console = make_console(written)
            for one in shown:
                if one is not None:
                    console.print(one)
            write_stdout(written.getvalue())

    def document(self, document: Any) -> None:
        """Print the one JSON document for programs, with --json only."""
        if self.json:
            print_json(document)

    def show(self, result: Any, what: str, path: Path, *tables: Any) -> None:
        """Print tables of a result, what it says, and where it is; with --json, the result."""
        self.say(*tables, *(one[:1].upper() + one[1:] for one in facts(result)))
        self.say(*noted(getattr(result, "warnings", ())), placed(what, path))
        self.document(result)

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
        from coalmine.models.loading import load_model
        from coalmine.models.protocols import PairModel
        from coalmine.storage.directories import sole_use

        made: Any = load_model(where, self._given.loading, answers=self.directory / ANSWERS_FILE)
        source = getattr(self._given, "source", None)
        if source is not None:
            if not isinstance(made, PairModel):
                raise InputError("--source is for models of pairs; leave it out")
            made = made.given(source)
        if not self._models:
            self.held.enter_context(sole_use(self.directory))
        self._models.append(made)
        return made

    @cached_property
    def engine(self) -> Engine:
        """The engine that was asked for, open until the command ends."""
        opened: Engine = self.held.enter_context(self._given.running.opened())
        return opened

    @property
    def work(self) -> dict[str, Any]:
        """Where the work of an audit runs, and who is told of its progress."""
        return {"engine": self.engine, "progress": self.progress()}

    @cached_property
    def ledger(self) -> Ledger:
        """What is kept of a run that is stopped, until its record is written."""
        from coalmine.engines.ledger import Ledger

        return Ledger(self.directory)

    def record(self, directory: Path | None = None, **facts: Any) -> None:
        """Write run.json, as the last of the files; `facts` are the seeds, hashes and counts of this command."""
        from coalmine.models.protocols import RemoteModel

        if "engine" in self.__dict__:
            facts |= {"engine": self._given.running.engine, "threads": self._given.running.threads}
        checks = [one.checks() if isinstance(one, RemoteModel) else None for one in self._models]
        found = {
            "schema": RUN_RECORDS.schema,
            "command": ["coalmine", *_without_seed_of_noise(sys.argv[1:])],
            "started_at": self._started_at,
            "elapsed_seconds": round(time.monotonic() - self._began, 3),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "versions": {name: one.version for name in _PACKAGES for one in distributions(name=name)},
            **({"not_read": list(UNREAD)} if UNREAD else {}),
            **facts,
            **({"identity": checks} if any(checks) else {}),
            **memory_of(*self._models),
        }
        RUN_RECORDS.save(directory or self.directory, found)
        if "ledger" in self.__dict__:
            self.ledger.forget()


def made_command(name: str, function: Callable[[Any, Session], int | None]) -> click.Command:
    """The command of a function: it takes a record, whose fields become arguments and options, and the session.

    What it returns is the exit code, and None is 0.
    """
    record = inspect.signature(function, eval_str=True).parameters["given"].annotation
    fields: list[tuple[str, Any]] = [
        ("given", record),
        ("printing", Annotated[Printing, Part(title="Output")]),
    ]
    everything = msgspec.defstruct(record.__name__, fields, bases=(Arguments,), frozen=True, kw_only=True)
    parameters, filled = taken(everything)

    def run(**values: Any) -> int:
        all_of_it = filled(**values)
        session = Session(all_of_it.given, all_of_it.printing)
        with session.held:
            return function(all_of_it.given, session) or 0

    return _Command(name, callback=run, params=parameters, help=inspect.cleandoc(function.__doc__ or ""))


class _Command(click.Command):
    """A command whose help has its options under the titles of their records."""

    def format_arguments(self, ctx: Any, formatter: Any) -> None:
        """Nothing, where click has a section of its own: arguments are among the options."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments first, then options without a title, then each title."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for one in self.get_params(ctx):
            shown = one.get_help_record(ctx)
            usual = "Options" if isinstance(one, click.Option) else "Arguments"
            if shown is not None:
                groups.setdefault(getattr(one, "title", "") or usual, []).append(shown)
        for title, rows in groups.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def memory_of(*models: Any) -> dict[str, Any]:
    """What was done because memory ran out, for the record; empty if it never did in this process."""
    notes = [note for model in models if (note := getattr(model, "memory_note", None))]
    return {"memory": notes} if notes else {}


def _without_seed_of_noise(arguments: list[str]) -> list[str]:
    """The command line without the number that the noise of a private training is made from.

    >>> _without_seed_of_noise(["train", "--training", "dp_seed=7", "--training=dp-seed=7"])
    ['train', '--training', 'dp_seed=(not recorded)', '--training=dp-seed=(not recorded)']
    """
    return [re.sub(r"((?:^|=)\s*dp[_-]seed\s*=).*", r"\1(not recorded)", one) for one in arguments]
