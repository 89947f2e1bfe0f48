"""The `coalmine` command: one verb a question."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import traceback
import warnings
from typing import Annotated, Any, NoReturn

import typer

from coalmine.cli import (
    check,
    compare,
    count,
    dedup,
    demo,
    expose,
    extract,
    importing,
    index,
    membership,
    plant,
    policy,
    recite,
    report,
    serve,
    train,
    verify,
)
from coalmine.cli.streams import OutputError, ReaderGoneError, standard_streams, tell
from coalmine.errors import CoalmineError
from coalmine.interrupts import SignalNoted, end_as_by_ctrl_c
from coalmine.storage.refusals import refused_by_system
from coalmine.visible import visible, visible_lines

# A bug has the code that sysexits.h has for one: Python's own, 1, would tell a pipeline that a policy is broken.
STOPPED = "\ncoalmine: stopped; run the same command again to resume a training, a search, an index or a recitation\n"
BROKEN_POLICY, BAD_INPUT, BUG, INTERRUPTED, TERMINATED = 1, 2, 70, 130, 143

app = typer.Typer(
    name="coalmine",
    help="Tells you what a language model remembers of its training data.",
    epilog="Start with `coalmine demo`. Exit codes: 0 done, 1 a policy is broken, 2 not measurable, or wrong usage or input, "
    "70 a bug in coalmine.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("plant")(plant.command)
app.command("import")(importing.command)
app.command("train")(train.command)
app.command("expose")(expose.command)
app.command("extract")(extract.command)
app.command("membership")(membership.command)
app.command("index")(index.command)
app.command("count")(count.command)
app.command("dedup")(dedup.command)
app.command("recite")(recite.command)
app.command("report")(report.command)
app.command("check")(check.command)
app.add_typer(policy.app, name="policy")
app.command("compare")(compare.command)
app.command("verify")(verify.command)
app.command("serve")(serve.command)
app.command("demo")(demo.command)


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
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


def main() -> NoReturn:
    """Run the command line; what the user can mend is told in a sentence, and a stack trace is for our bugs only."""
    _show_nothing_raw()
    with standard_streams():
        try:
            _run()
        except Exception:  # noqa: BLE001 - whatever comes so far is a bug, and is told whole
            tell(visible_lines(traceback.format_exc()))
            tell(
                "coalmine: this is a bug in coalmine, and nothing can be concluded; please report the traceback above, without what it may "
                "quote of your data\n"
            )
            sys.exit(BUG)


def _show_nothing_raw() -> None:
    """What others write to the terminal from this process is escaped as our own messages are."""
    import logging

    class VisibleRecord(logging.LogRecord):
        def getMessage(self) -> str:  # noqa: N802 - the library's name
            return visible(super().getMessage())

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        tell(f"coalmine: warning: {visible(str(message))}\n")

    logging.setLogRecordFactory(VisibleRecord)
    warnings.showwarning = show
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run() -> NoReturn:
    end_as_by_ctrl_c()
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except CoalmineError as error:
        _fail(error)
    except (KeyboardInterrupt, typer.Abort) as stop:  # the library turns the one into the other
        if isinstance(stop.__cause__, EOFError):  # and also this, which nobody pressed
            raise stop.__cause__ from None
        _stop()
    except ReaderGoneError:
        sys.exit(0)
    except OSError as error:
        sentence = refused_by_system(error)
        if sentence is None:
            raise
        _fail(sentence)
    except Exception as error:
        if not hasattr(error, "format_message"):  # what the command-line library raises for wrong usage
            raise
        _fail(_with_help(error))
    if code == INTERRUPTED:  # some versions of the library turn Ctrl-C into this code by themselves
        _stop()
    sys.exit(code if isinstance(code, int) else 0)


def _stop() -> NoReturn:
    """What was done so far is kept; the code is that of shells for the signal."""
    tell(STOPPED)
    sys.exit(TERMINATED if SignalNoted.last == signal.SIGTERM else INTERRUPTED)


def _with_help(error: Any) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "coalmine"
    message = " ".join(error.format_message().split()).rstrip(".")  # the library breaks lines
    return f"{message}; see `{command} --help`"


def _fail(problem: CoalmineError | str) -> NoReturn:
    """One message on standard error; with --json also as the one document on standard output."""
    shown = problem.shown() if isinstance(problem, CoalmineError) else visible(problem)
    tell(f"coalmine: {shown}\n")
    if "--json" in sys.argv[1:]:
        from coalmine.cli.output import print_json

        with contextlib.suppress(OutputError, ReaderGoneError):  # it is told already
            print_json({"error": shown})
    sys.exit(BAD_INPUT)
