"""`serve`: a model at an address of this machine, for any client that speaks OpenAI's completions."""

from __future__ import annotations

import importlib
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from coalmine.errors import InputError, MissingExtraError
from coalmine.models.endpoints.address import is_loopback
from coalmine.models.protocols import MaskedModel, Model, PairModel

if TYPE_CHECKING:
    from coalmine.serving.connections import Server


def serve(
    model: Model,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    name: str | None = None,
    key: str | None = None,
    seed: int = 0,
    batch: int = 32,
    log: Callable[[str], None] | None = None,
) -> Server:
    """Serve a model from a thread of this process; the server answers as soon as this returns.

    Port 0 takes any free one; `.url` says which. `key` is what clients must send as their API key; an address that other
    machines can reach is refused without one. `seed` is for requests that name none. Up to `batch` requests that wait
    together are computed together, which moves log-probabilities by rounding; with 1 the same request always gets the same
    bytes. `log` gets one line per request, without a word of its content.

    >>> from urllib.request import urlopen
    >>> from coalmine.models.scripted import ScriptedModel
    >>> with serve(ScriptedModel("ab"), port=0) as server, urlopen(server.url + "/health") as answer:
    ...     answer.read()
    b'{"status":"ok"}'
    """
    if isinstance(model, PairModel | MaskedModel):
        said = "serve a causal model, or model.given(source) of a model of pairs"
        raise InputError(
            f"{model.name!r} does not read texts from left to right, so it has no completions; {said}"
        )
    if batch < 1:
        raise InputError(f"batch must be at least 1, got {batch}")
    check_installed()
    from coalmine.serving.admission import Gate, own_hosts
    from coalmine.serving.application import Application
    from coalmine.serving.connections import Server

    listening = _listen(host, port, key)
    address, own_port = listening.getsockname()[:2]
    # Requests may call the server by its own names; if other machines can reach it, it may have any.
    hosts = own_hosts(address.partition("%")[0], own_port) if is_loopback(address) else None
    gate = Gate(hosts, None if key is None else key.encode())
    log = log or (lambda _: None)
    application = Application(model, gate, name=name or model.name, seed=seed, batch=batch, log=log)
    return Server(application, listening)


def check_installed() -> None:
    """Raise MissingExtraError if the web server is not installed; needs no model."""
    for package in ("starlette", "uvicorn", "h11"):
        try:
            importlib.import_module(package)
        except ModuleNotFoundError:
            raise MissingExtraError("serving a model", package, "serving") from None


def check_address(host: str, port: int, key: str | None) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """The one address that is meant; rejected if other machines can reach it and there is no key. Needs no model."""
    if key is not None and not key.strip():
        raise InputError("the key is empty; choose one that cannot be guessed")
    if not 0 <= port <= 65535:
        raise InputError(f"a port is a number from 0 to 65535, got {port}; choose another with --port")
    try:
        family, *_, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, OverflowError, UnicodeError):
        raise InputError(f"{host!r} port {port} is not an address of this machine; use 127.0.0.1") from None
    address = (str(found[0]), int(found[1]))
    # An empty host is resolved to this machine's own address, while a socket takes it for all addresses.
    if key is None and not (host and is_loopback(address[0])):
        raise InputError(
            f"other machines can reach {host!r}, so a key is needed; name the environment variable that holds one with "
            "--key-variable"
        )
    return family, address


def _listen(host: str, port: int, key: str | None) -> socket.socket:
    family, address = check_address(host, port, key)
    try:
        listening = socket.create_server(address, family=family, dualstack_ipv6=family is socket.AF_INET6)
    except OSError as problem:
        said = f"cannot listen on {host} port {port} ({problem.strerror})"
        raise InputError(f"{said}; choose another port, or 0 for any free one") from None
    # Connections inherit it; without it, the body of an answer would wait for the acknowledgment of its head.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
