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
from typing import Any, NoReturn

import click

from coalmine.cli.output import (
    UNREAD,
    OutputError,
    ReaderGoneError,
    open_closed_streams,
    print_json,
    write_stderr,
    write_stdout,
)
from coalmine.errors import CoalmineError, UnreadWarning, WriteError
from coalmine.interrupts import LastSignal, treat_sigterm_as_ctrl_c
from coalmine.pages import keep_pages
from coalmine.visible import visible, visible_lines

STOPPED = "\ncoalmine: stopped; run the same command again to resume\n"
A_BUG = "coalmine: this is a bug in coalmine, and nothing can be concluded; please report the traceback above"
# sysexits.h has 70 for a bug; with Python's own 1, a bug would look like a broken policy.
BROKEN_POLICY, BAD_INPUT, BUG, INTERRUPTED, TERMINATED = 1, 2, 70, 130, 143
# A further command is a line here, under its heading with its module, and there a function with a record of what it takes.
EVERYTHING = {
    "Start": {
        "demo": ("start", "A whole audit in a few minutes, of a model that is trained here"),
        "init": ("results", "Write a policy and a CI workflow for a project"),
        "audit": ("start", "Test everything that can be tested of a model, on one page"),
    },
    "Canaries": {
        "plant": ("canaries", "Plant random secrets in a corpus, or take another tool's"),
        "train": ("models", "Train a model from nothing, or fine-tune a checkpoint"),
        "expose": ("canaries", "Measure how exposed each canary or secret is"),
        "extract": ("canaries", "Search for what comes out, and prove what does not"),
        "membership": ("canaries", "Tell members from non-members, and bound epsilon"),
    },
    "Training text": {
        "recite": ("text", "Measure how much of its training text a model recites"),
        "provenance": ("text", "Find whose text a model was trained on"),
    },
    "Results": {
        "report": ("results", "Put the results of one or more models on one page"),
        "check": ("results", "Check results against a policy, for a pipeline"),
        "verify": ("results", "Check that files are what was written, and replay proofs"),
    },
    "More": {
        "serve": ("models", "Serve a model to clients of OpenAI's completions"),
        "data": ("", "scan, redact, dedup, index, count and crosscheck a corpus"),
        "lab": ("", "alter a model, bench defenses, check what survives SFT"),
    },
}
DATA = {
    "Secrets": {
        "scan": ("data", "Find the secrets that are already in a corpus"),
        "redact": ("data", "Mask, replace or drop the secrets in a corpus"),
    },
    "Repetition": {
        "dedup": ("data", "Remove repeated text and near duplicates"),
        "index": ("data", "Make a corpus searchable by its tokens"),
        "count": ("data", "Count how often texts occur in an index"),
    },
    "Divided training": {"crosscheck": ("data", "Flag documents on which two models disagree")},
}
LAB = {
    "Experiments": {
        "alter": ("models", "Quantize a model, or make it forget documents"),
        "defend": ("lab", "Train with and without defenses, and compare them"),
        "survive": ("lab", "Check which canaries reach the loss of a fine-tuning"),
    }
}


class Commands(click.Group):
    """Commands under headings, each imported only when it is used; without one, the help is shown."""

    def __init__(self, name: str, lines: dict[str, dict[str, tuple[str, str]]], **given: Any) -> None:
        super().__init__(name, invoke_without_command=True, callback=click.pass_context(_show_help), **given)
        self.lines = lines

    def list_commands(self, _: Any) -> list[str]:
        """The names, in the order of the help."""
        return [name for commands in self.lines.values() for name in commands]

    def get_command(self, _: Any, cmd_name: str) -> click.Command | None:
        """A command or group by its name."""
        for commands in self.lines.values():
            if cmd_name in commands:
                module = commands[cmd_name][0]
                return _command(cmd_name, module) if module else GROUPS[cmd_name]
        return None

    def format_commands(self, _: Any, formatter: Any) -> None:
        """Each command with its line, whole, under its heading."""
        for heading, commands in self.lines.items():
            with formatter.section(heading):
                formatter.write_dl([(name, line) for name, (_, line) in commands.items()])


@functools.cache
def _command(name: str, module: str) -> click.Command:
    from coalmine.cli.runner import made_command

    return made_command(name, getattr(importlib.import_module(f"coalmine.cli.{module}"), name))


def _show_help(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        write_stdout(context.get_help() + "\n")


GROUPS = {
    "data": Commands(
        "data", DATA, help="What is in a corpus: secrets, repetition, and text of one part only."
    ),
    "lab": Commands(
        "lab", LAB, help="Experiments: altered models, defenses, and what survives a fine-tuning."
    ),
}
app = Commands(
    "coalmine",
    EVERYTHING,
    help="Measures what a language model remembers of its training data.",
    epilog="Start with `coalmine demo`. Exit codes: 0 done, 1 a policy is broken, 2 not measurable, or wrong usage or input, "
    "70 a bug in coalmine.",
)
click.version_option(package_name="coalmine", message="coalmine %(version)s")(app)


def every_command(group: Commands = app, *before: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with the words that call it, in the order of the help."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if isinstance(command, Commands):
            yield from every_command(command, *before, name)
        else:
            yield (*before, name), command


def main() -> NoReturn:
    """Run the command line; an error that the user can fix is one sentence, and only our own bugs show a traceback."""
    open_closed_streams()
    _show_nothing_raw()
    try:
        _run()
    except Exception:  # noqa: BLE001 - any exception that gets here is a bug
        import traceback

        if LastSignal.number is not None:  # or what a library in C makes of an interruption
            _stop()
        write_stderr(f"{visible_lines(traceback.format_exc())}{A_BUG}\n")
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
    except CoalmineError as error:
        if LastSignal.number is not None and not isinstance(error, WriteError):
            _stop()
        _fail(error)
    except (KeyboardInterrupt, click.Abort):  # the library turns the one into the other
        _stop()
    except ReaderGoneError:
        sys.exit(0)
    except OSError as error:
        from coalmine.storage.files import describe_system_error

        sentence = describe_system_error(error)
        if sentence is None:
            raise
        _fail(sentence)
    except click.ClickException as error:
        message = " ".join(error.format_message().split()).rstrip(".")  # the library breaks lines
        _fail(f"{message}; see --help")
    sys.exit(code if isinstance(code, int) else 0)


def _stop() -> NoReturn:
    """Exit with the code that shells use for the signal; what was done so far is kept."""
    write_stderr(STOPPED)
    exec("")  # noqa: S102 - after code in a string was interrupted, Python would end with SIGINT, whatever the exit code
    sys.exit(TERMINATED if LastSignal.number == signal.SIGTERM else INTERRUPTED)


def _fail(problem: CoalmineError | str) -> NoReturn:
    """One message on standard error; with --json also as the one document on standard output."""
    shown = problem.shown() if isinstance(problem, CoalmineError) else visible(problem)
    write_stderr(f"coalmine: {shown}\n")
    if "--json" in sys.argv[1:]:
        with contextlib.suppress(OutputError, ReaderGoneError):  # standard error has the message
            print_json({"error": shown})
    sys.exit(BAD_INPUT)
