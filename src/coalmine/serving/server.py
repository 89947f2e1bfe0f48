"""`serve`: a model at an address of this machine, for any client that speaks OpenAI's completions."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import ThreadingHTTPServer
from socketserver import TCPServer
from types import TracebackType
from typing import Any, Self

from coalmine.errors import InputError, TooLongError
from coalmine.models.protocols import MaskedModel, Model, PairModel
from coalmine.serving.admission import own_hosts
from coalmine.serving.batching import Batcher
from coalmine.serving.completions import Answered, check_possible, complete
from coalmine.serving.handler import Handler
from coalmine.serving.requests import Completion, RefusedError
from coalmine.serving.token_text import TokenTexts

BATCH = 32
PATIENCE_SECONDS = 10.0
# Each has a thread.
MOST_CONNECTIONS = 512


class Server:
    """A running server; `close` it, or use it in a `with`."""

    def __init__(self, http: _HTTPServer) -> None:
        self._http = http
        self._thread = threading.Thread(
            target=http.serve_forever, args=(0.05,), name="coalmine-serve", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """What a client is given as the address, such as http://127.0.0.1:8000/v1; paths such as /completions are added to it."""
        host, port = self._http.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}/v1"

    def close(self) -> None:
        """Take no more requests, answer those that came, for up to ten seconds, and free the address."""
        if not self._thread.is_alive():
            return
        self._http.shutdown()
        self._thread.join()
        self._http.finish(PATIENCE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve(
    model: Model,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    name: str | None = None,
    key: str | None = None,
    seed: int = 0,
    batch: int = BATCH,
    log: Callable[[str], None] | None = None,
) -> Server:
    """Serve a model from a thread of this process; the server answers as soon as this returns.

    Port 0 takes any free one; `.url` says which. `key` is what clients must send as their API key; an address that other
    machines can reach is refused without one. `seed` is for requests that name none. Up to `batch` requests that wait
    together are computed together, which moves log-probabilities by rounding; with 1 the same request always gets the same
    bytes. `log` gets a line for each request, without a word of its content.

    >>> from urllib.request import urlopen
    >>> from coalmine.models.scripted import ScriptedModel
    >>> with serve(ScriptedModel("ab"), port=0) as server, urlopen(server.url + "/health") as answer:
    ...     answer.read()
    b'{"status":"ok"}'
    """
    if isinstance(model, PairModel | MaskedModel):
        raise InputError(
            f"{model.name!r} does not read texts from left to right, so it has no completions to serve; serve a causal model, or "
            "model.given(source) of a model of pairs"
        )
    if batch < 1:
        raise InputError(f"batch must be at least 1, got {batch}")
    where = check_address(host, port, key)
    try:
        http = _HTTPServer(*where)
    except OSError as problem:
        raise InputError(
            f"cannot listen at {host} port {port} ({problem.strerror}); choose another port, or 0 for any that is free"
        ) from None
    http.offer(model, name=name or model.name, key=key, seed=seed, batch=batch, log=log)
    return Server(http)


def check_address(host: str, port: int, key: str | None) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """The one address that is meant; refused where other machines can reach it while there is no key. Needs no model."""
    if key is not None and not key.strip():
        raise InputError("the key is empty; choose one that cannot be guessed")
    try:
        family, *_, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, OverflowError, UnicodeError):
        raise InputError(f"{host!r} port {port} is no address of this machine; use 127.0.0.1") from None
    address = (str(found[0]), int(found[1]))
    # An empty host is resolved to this machine's own address, while a socket takes it for all addresses.
    if key is None and not (host and _is_loopback(address)):
        raise InputError(
            f"other machines can reach {host!r}, so a key is needed; name the environment variable that holds one with "
            "--key-variable"
        )
    return family, address


def _is_loopback(address: tuple[str, int]) -> bool:
    return ipaddress.ip_address(address[0].partition("%")[0]).is_loopback


class _HTTPServer(ThreadingHTTPServer):
    """One thread a connection; it knows its connections, so that it can end them."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, family: socket.AddressFamily, address: tuple[str, int]) -> None:
        self.address_family = family
        super().__init__(address, Handler)
        # What requests may call this server; where others can reach it, it may have any name.
        bound = str(self.server_address[0]).partition("%")[0]
        self.hosts = own_hosts(bound, self.server_port) if _is_loopback(address) else None
        self._changed = threading.Condition()
        self._connections: set[socket.socket] = set()
        self._busy = 0

    def offer(
        self,
        model: Model,
        *,
        name: str,
        key: str | None,
        seed: int,
        batch: int,
        log: Callable[[str], None] | None,
    ) -> None:
        """What is served, as the handlers of requests see it."""
        self.model, self.name, self.seed, self.log = model, name, seed, log
        self.key = None if key is None else key.encode()
        self.texts = TokenTexts(model.tokenizer)
        self.since = int(time.time())

        def answer(requests: Sequence[Completion]) -> list[Answered]:
            return complete(model, self.texts, requests)

        self.batcher: Batcher[Completion, Answered] = Batcher(answer, most=batch)

    def answer(self, request: Completion) -> Answered:
        """The choices of one request and how many tokens they have, computed with others that wait."""
        check_possible(self.model, request)
        try:
            return self.batcher.ask(request)
        except (IndexError, TooLongError):
            # Ids were checked, so what a network did not find is a place: it has an embedding for each, and these are too few.
            longest = max(map(len, request.prompts)) + request.max_tokens
            said = f"the model cannot read a text of {longest} tokens; its own context is probably shorter"
            raise RefusedError(400, "context_length_exceeded", said) from None

    def server_bind(self) -> None:
        """Bind without asking a name server what this machine is called."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Around the answering of one request."""
        with self._changed:
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection; one too many is closed at once."""
        with self._changed:
            full = len(self._connections) >= MOST_CONNECTIONS
            if not full:
                self._connections.add(request)
        if full:
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection."""
        with self._changed:
            self._connections.discard(request)
            self._changed.notify_all()
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no event; for anything else its kind is told, because its message may hold a prompt."""
        del request, client_address
        problem = sys.exception()
        if self.log is not None and not isinstance(problem, ConnectionError | TimeoutError):
            self.log(f"a connection failed inside the server: {type(problem).__name__}")

    def finish(self, patience: float) -> None:
        """Answer what came, then end all connections."""
        deadline = time.monotonic() + patience
        self.server_close()
        self.batcher.close(patience=patience)
        with self._changed:
            self._changed.wait_for(lambda: not self._busy, max(0.0, deadline - time.monotonic()))
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._connections, 1.0)
