"""The `coalmine` command: its subcommands, its exit codes, and its errors as one line."""

from __future__ import annotations

import contextlib
import importlib
import io
import signal
import sys
import traceback
import warnings
from typing import Annotated, Any, NoReturn

import typer

from coalmine.cli.run_record import UNREAD
from coalmine.cli.runner import app, show_help
from coalmine.cli.streams import OutputError, ReaderGoneError, standard_streams, write_stderr
from coalmine.errors import CoalmineError, UnreadWarning, WriteError
from coalmine.interrupts import LastSignal, treat_sigterm_as_ctrl_c
from coalmine.pages import keep_pages
from coalmine.storage.system_errors import describe_system_error
from coalmine.visible import visible, visible_lines

__all__ = ["app", "main"]

STOPPED = "\ncoalmine: stopped; run the same command again to resume\n"
# sysexits.h has 70 for a bug; with Python's own 1, a bug would look like a broken policy.
BROKEN_POLICY, BAD_INPUT, BUG, INTERRUPTED, TERMINATED = 1, 2, 70, 130, 143

# In the order of `coalmine --help`.
_MODULES = (
    *("plant", "train", "alter", "survive", "expose", "extract", "membership", "index", "dedup", "redact"),
    *("crosscheck", "defend", "scan", "recite", "provenance", "audit", "report", "check", "compare"),
    *("serve", "demo"),
)
for _module in _MODULES:
    importlib.import_module(f"coalmine.cli.{_module}")


def _show_version(wanted: bool) -> None:
    if wanted:
        from coalmine import __version__

        sys.stdout.write(f"coalmine {__version__}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _everywhere(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - acted on by its callback
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    show_help(context)


def main() -> NoReturn:
    """Run the command line; an error that the user can fix is one sentence, and only our own bugs show a traceback."""
    _show_nothing_raw()
    with standard_streams():
        try:
            _run()
        except Exception:  # noqa: BLE001 - any exception that gets here is a bug
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
