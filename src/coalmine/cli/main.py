"""The `coalmine` command: the tree of its commands, its exit codes, and its errors as one line."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import signal
import sys
import warnings
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, NoReturn

import typer
from typer.core import TyperGroup

from coalmine.cli.output import UNREAD, OutputError, ReaderGoneError, standard_streams, write_stderr
from coalmine.errors import CoalmineError, UnreadWarning, WriteError
from coalmine.interrupts import LastSignal, treat_sigterm_as_ctrl_c
from coalmine.pages import keep_pages
from coalmine.storage.files import describe_system_error
from coalmine.visible import visible, visible_lines

STOPPED = "\ncoalmine: stopped; run the same command again to resume\n"
# sysexits.h has 70 for a bug; with Python's own 1, a bug would look like a broken policy.
BROKEN_POLICY, BAD_INPUT, BUG, INTERRUPTED, TERMINATED = 1, 2, 70, 130, 143
# How help looks: plain text, as wide as the terminal.
LOOK: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}


class Commands(TyperGroup):
    """Commands under headings, each imported only when it is used; without one, the help is shown.

    `lines` has the line of each command in the help by heading and name, and `modules` where those are that have no module of their own.
    """

    lines: ClassVar[dict[str, dict[str, str]]]
    modules: ClassVar[dict[str, str]]

    def list_commands(self, _: Any) -> list[str]:
        """The names, in the order of the help."""
        return [name for commands in self.lines.values() for name in commands]

    def get_command(self, _: Any, name: str) -> Any:
        """A command or group by its name."""
        if name in _GROUPS and self.lines is Everything.lines:
            return _group(name)
        return _command(name, self.modules.get(name, name)) if name in self.list_commands(None) else None

    def format_commands(self, _: Any, formatter: Any) -> None:
        """Each command with its line, whole, under its heading."""
        for heading, commands in self.lines.items():
            with formatter.section(heading):
                formatter.write_dl(list(commands.items()))


class Everything(Commands):
    """All commands: a further one is a line here, and a function with a record of what it takes."""

    lines: ClassVar = {
        "Start": {
            "demo": "A whole audit in a few minutes, of a model that is trained here",
            "init": "Write a policy and a CI workflow for a project",
            "audit": "Test everything that can be tested of a model, on one page",
        },
        "Canaries": {
            "plant": "Plant random secrets in a corpus, or take another tool's",
            "train": "Train a model from nothing, or fine-tune a checkpoint",
            "expose": "Measure how exposed each canary or secret is",
            "extract": "Search for what comes out, and prove what does not",
            "membership": "Tell members from non-members, and bound epsilon",
        },
        "Training text": {
            "recite": "Measure how much of its training text a model recites",
            "provenance": "Find whose text a model was trained on",
        },
        "Results": {
            "report": "Put the results of one or more models on one page",
            "check": "Check results against a policy, for a pipeline",
            "verify": "Check that files are what was written, and replay proofs",
        },
        "More": {
            "serve": "Serve a model to clients of OpenAI's completions",
            "data": "scan, redact, dedup, index, count and crosscheck a corpus",
            "lab": "alter a model, bench defenses, check what survives SFT",
        },
    }
    modules: ClassVar = {"init": "check", "verify": "check"}


class Data(Commands):
    """Commands that read or rewrite a corpus."""

    lines: ClassVar = {
        "Secrets": {
            "scan": "Find the secrets that are already in a corpus",
            "redact": "Mask, replace or drop the secrets in a corpus",
        },
        "Repetition": {
            "dedup": "Remove repeated text and near duplicates",
            "index": "Make a corpus searchable by its tokens",
            "count": "Count how often texts occur in an index",
        },
        "Divided training": {"crosscheck": "Flag documents on which two models disagree"},
    }
    modules: ClassVar = dict.fromkeys(("redact", "dedup", "index", "count", "crosscheck"), "data")


class Lab(Commands):
    """Experiments on models and their training."""

    lines: ClassVar = {
        "Experiments": {
            "alter": "Quantize a model, or make it forget documents",
            "defend": "Train with and without defenses, and compare them",
            "survive": "Check which canaries reach the loss of a fine-tuning",
        }
    }
    modules: ClassVar = dict.fromkeys(("alter", "defend", "survive"), "lab")


_GROUPS: dict[str, tuple[type[Commands], str]] = {
    "data": (Data, "What is in a corpus: secrets, repetition, and text that only a part of it has."),
    "lab": (Lab, "Experiments with models: altered ones, defenses, and what survives a fine-tuning."),
}


@functools.cache
def _command(name: str, module: str) -> Any:
    from coalmine.cli.runner import made_command

    return made_command(name, getattr(importlib.import_module(f"coalmine.cli.{module}"), name))


@functools.cache
def _group(name: str) -> Any:
    kind, says = _GROUPS[name]
    group = typer.Typer(name=name, cls=kind, help=says, **LOOK)
    group.callback(invoke_without_command=True)(_show_help)
    return typer.main.get_command(group)


def _show_version(wanted: bool) -> None:
    if wanted:
        from coalmine import __version__

        sys.stdout.write(f"coalmine {__version__}\n")
        raise typer.Exit


def _show_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


def _everywhere(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - acted on by its callback
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    _show_help(context)


_all = typer.Typer(
    name="coalmine",
    cls=Everything,
    help="Measures what a language model remembers of its training data.",
    epilog="Start with `coalmine demo`. Exit codes: 0 done, 1 a policy is broken, 2 not measurable, or wrong usage or input, "
    "70 a bug in coalmine.",
    **LOOK,
)
_all.callback(invoke_without_command=True)(_everywhere)
app = typer.main.get_command(_all)


def every_command(group: Any = app, *before: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with the words that call it, in the order of the help."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if isinstance(command, Commands):
            yield from every_command(command, *before, name)
        else:
            yield (*before, name), command


def main() -> NoReturn:
    """Run the command line; an error that the user can fix is one sentence, and only our own bugs show a traceback."""
    _show_nothing_raw()
    with standard_streams():
        try:
            _run()
        except Exception:  # noqa: BLE001 - any exception that gets here is a bug
            import traceback

            if LastSignal.number is not None:  # or what a library in C makes of an interruption
                _stop()
            write_stderr(visible_lines(traceback.format_exc()))
            write_stderr(
                "coalmine: this is a bug in coalmine, and nothing can be concluded; please report the traceback above, without anything it "
                "quotes from your data\n"
            )
            sys.exit(BUG)


def _show_nothing_raw() -> None:
    """Escape what libraries write to the terminal, as our own messages are escaped."""
    import logging

    class VisibleRecord(logging.LogRecord):
        def getMessage(self) -> str:  # noqa: N802 - the library's name
            return visible(super().getMessage())

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if isinstance(message, UnreadWarning):
            if str(message) in UNREAD:  # several steps of one command read the same file
                return
            UNREAD.append(str(message))
        write_stderr(f"coalmine: warning: {visible(str(message))}\n")

    UNREAD.clear()
    logging.setLogRecordFactory(VisibleRecord)
    warnings.showwarning = show
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run() -> NoReturn:
    treat_sigterm_as_ctrl_c()
    keep_pages()
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except CoalmineError as error:
        if LastSignal.number is not None and not isinstance(error, WriteError):
            _stop()
        _fail(error)
    except (KeyboardInterrupt, typer.Abort) as stop:  # the library turns the one into the other
        if isinstance(stop.__cause__, EOFError):  # and this too, which is not Ctrl-C
            raise stop.__cause__ from None
        _stop()
    except ReaderGoneError:
        sys.exit(0)
    except OSError as error:
        sentence = describe_system_error(error)
        if sentence is None:
            raise
        _fail(sentence)
    except Exception as error:
        if not hasattr(error, "format_message"):  # the command-line library has it on errors of usage
            raise
        _fail(_with_help(error))
    if code == INTERRUPTED:  # some versions of the library return this code on Ctrl-C
        _stop()
    sys.exit(code if isinstance(code, int) else 0)


def _stop() -> NoReturn:
    """Exit with the code that shells use for the signal; what was done so far is kept."""
    write_stderr(STOPPED)
    exec("")  # noqa: S102 - after code in a string was interrupted, Python would end with SIGINT, whatever the exit code
    sys.exit(TERMINATED if LastSignal.number == signal.SIGTERM else INTERRUPTED)


def _with_help(error: Any) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "coalmine"
    message = " ".join(error.format_message().split()).rstrip(".")  # the library breaks lines
    return f"{message}; see `{command} --help`"


def _fail(problem: CoalmineError | str) -> NoReturn:
    """One message on standard error; with --json also as the one document on standard output."""
    shown = problem.shown() if isinstance(problem, CoalmineError) else visible(problem)
    write_stderr(f"coalmine: {shown}\n")
    if "--json" in sys.argv[1:]:
        from coalmine.cli.output import print_json

        with contextlib.suppress(OutputError, ReaderGoneError):  # standard error has the message
            print_json({"error": shown})
    sys.exit(BAD_INPUT)
