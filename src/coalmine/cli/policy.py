"""`coalmine policy init`: a policy to start from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from coalmine.cli.options import Printing, Seed
from coalmine.cli.taking import Arguments, takes
from coalmine.errors import InputError
from coalmine.records.options import Option

app = typer.Typer(
    help="Policies for `coalmine check`.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    """Policies for `coalmine check`."""
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


class Init(Arguments, frozen=True, kw_only=True):
    """What `coalmine policy init` takes."""

    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("policy.toml")
    overwrite: Annotated[bool, Option("Replace a policy that is there already.")] = False
    seed: Seed = 0
    printing: Printing


@app.command("init")
@takes
def init(given: Init) -> int:
    """Write a policy with every rule in it, explained; most of them are commented out. Nothing here is random."""
    path = given.path
    with given.printing.output() as output:
        from coalmine.reports.gate.policy import TEMPLATE
        from coalmine.storage.files import check_place, read_bytes, write_bytes
        from coalmine.visible import visible

        check_place(path)
        if path.exists() and not given.overwrite and read_bytes(path, "the policy") != TEMPLATE.encode():
            raise InputError(f"{path} is there already; choose another place, or replace it with --overwrite")
        write_bytes(path, TEMPLATE.encode())
        shown = visible(str(path))
        output.say(f"Wrote {shown}. Edit its limits, then run: coalmine check RUN --policy {shown}")
        output.document({"policy": str(path)})
    return 0
