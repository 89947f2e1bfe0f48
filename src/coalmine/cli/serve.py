"""`coalmine serve`: a local model at an address, for any client that speaks OpenAI's completions or chat completions."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import Annotated

import typer

from coalmine.cli.options import Seed
from coalmine.cli.output import Output, print_json, write_stderr
from coalmine.cli.runner import Session
from coalmine.cli.taking import Arguments, Least, Part
from coalmine.errors import InputError
from coalmine.models.options import LoadOptions
from coalmine.visible import visible


class Serve(Arguments, frozen=True, kw_only=True):
    """What `coalmine serve` takes.

    Attributes:
        host: The address to listen on; one that other machines can reach needs a key.
        name: What clients call the model; default: the name of its directory.
        key_variable: The environment variable that holds the key that clients must send.
        model: The directory of a model that `coalmine train`, transformers or PEFT saved, or a .gguf file.
        batch: The most requests computed together; with 1, an answer does not depend on what else is asked.
    """

    model: Annotated[str, typer.Argument()]
    host: str = "127.0.0.1"
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port to listen on; 0 takes any free one.")
    ] = 8000
    name: str | None = None
    loading: Annotated[LoadOptions, Part(("device",), title="How the model is loaded")]
    key_variable: str | None = None
    batch: Annotated[int, Least(1)] = 32
    seed: Seed = 0


def serve(given: Serve, session: Session) -> None:
    """Serve a local model to any client that speaks OpenAI's completions, until Ctrl-C.

    The log-probabilities of prompts (`echo` with `logprobs`) are those that the audits measure. A model with a chat template answers
    chats too. Prints one line with the address
    when it is ready, and one line per request on standard error, without the request's content.
    """
    from coalmine.models.loading import is_endpoint, load_model
    from coalmine.serving.server import check_address, check_installed, serve

    key = _key_from(given.key_variable)
    check_installed()  # these two before a large model is loaded
    check_address(given.host, given.port, key)
    if is_endpoint(given.model):
        raise InputError(f"{given.model} is already served; give the directory of a model on this machine")
    model = load_model(given.model, given.loading)
    with (
        serve(
            model,
            host=given.host,
            port=given.port,
            name=given.name,
            key=key,
            seed=given.seed,
            batch=given.batch,
            log=None if session.quiet else _log,
        ) as server,
        contextlib.suppress(KeyboardInterrupt),
    ):
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # which acts like Ctrl-C
        _print_address(server.url, given.name or model.name, session)
        while True:
            time.sleep(3600)
    if server.is_computing:
        # An interpreter that ends while a thread is inside torch aborts; nothing is left to be written.
        sys.stdout.flush()
        os._exit(0)


def _key_from(variable: str | None) -> str | None:
    key = None if variable is None else os.environ.get(variable)
    if variable is not None and not key:
        raise InputError(
            f"the environment variable {variable} is empty or not set; put the server's key there"
        )
    return key


def _log(line: str) -> None:
    write_stderr(f"{visible(line)}\n")


def _print_address(url: str, name: str, output: Output) -> None:
    """Print one line at once, so that the program that started the server can read the address."""
    if output.json:
        print_json({"url": url, "model": name}, one_line=True)
    elif not output.quiet:
        sys.stdout.write(visible(f"Serving {name!r} at {url}; stop it with Ctrl-C.") + "\n")
        sys.stdout.flush()
