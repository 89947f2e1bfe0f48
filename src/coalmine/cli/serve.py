"""`coalmine serve`: a local model at an address, for any client that speaks OpenAI's completions."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import Annotated

import typer

from coalmine.cli.model_argument import Device, Precision
from coalmine.cli.options import Json, Quiet, Seed
from coalmine.cli.output import print_json
from coalmine.cli.streams import write_stderr
from coalmine.errors import InputError
from coalmine.visible import visible


def command(
    model: Annotated[
        str,
        typer.Argument(help="The directory of a model that `coalmine train`, transformers or PEFT saved."),
    ],
    host: Annotated[
        str,
        typer.Option(
            "--host", help="The address to listen on; one that other machines can reach needs a key."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port to listen on; 0 takes any free one.")
    ] = 8000,
    name: Annotated[
        str | None,
        typer.Option("--name", help="What clients call the model; default: the name of its directory."),
    ] = None,
    device: Device = "cpu",
    precision: Precision = "float32",
    key_variable: Annotated[
        str | None,
        typer.Option(
            "--key-variable", help="The environment variable that holds the key that clients must send."
        ),
    ] = None,
    batch: Annotated[
        int,
        typer.Option(
            "--batch",
            min=1,
            help="The most requests computed together; with 1, an answer does not depend on what else is asked.",
        ),
    ] = 32,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Serve a local model to any client that speaks OpenAI's completions, until Ctrl-C.

    The log-probabilities of prompts (`echo` with `logprobs`) are those that the audits measure. Prints one line with the address
    when it is ready, and one line per request on standard error, without the request's content.
    """
    from coalmine.models.loading import is_endpoint, load_model
    from coalmine.serving.server import check_address, check_installed, serve

    key = _key_from(key_variable)
    check_installed()  # these two before a large model is loaded
    check_address(host, port, key)
    if is_endpoint(model):
        raise InputError(f"{model} is already served; give the directory of a model on this machine")
    loaded = load_model(model, device=device, precision=precision)

    def log(line: str) -> None:
        write_stderr(f"{visible(line)}\n")

    with (
        serve(
            loaded,
            host=host,
            port=port,
            name=name,
            key=key,
            seed=seed,
            batch=batch,
            log=None if quiet else log,
        ) as server,
        contextlib.suppress(KeyboardInterrupt),
    ):
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # which acts like Ctrl-C
        _print_address(server.url, name or loaded.name, json=json, quiet=quiet)
        while True:
            time.sleep(3600)
    return 0


def _key_from(variable: str | None) -> str | None:
    key = None if variable is None else os.environ.get(variable)
    if variable is not None and not key:
        raise InputError(
            f"the environment variable {variable} is empty or not set; put the server's key there"
        )
    return key


def _print_address(url: str, name: str, *, json: bool, quiet: bool) -> None:
    """Print one line at once, so that the program that started the server can read the address."""
    if json:
        print_json({"url": url, "model": name}, one_line=True)
    elif not quiet:
        sys.stdout.write(visible(f"Serving {name!r} at {url}; stop it with Ctrl-C.") + "\n")
        sys.stdout.flush()
