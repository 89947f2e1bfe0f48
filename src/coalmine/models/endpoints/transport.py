"""One HTTP exchange, bounded in time and bytes: no redirects, no cookies, and nothing from the environment."""

from __future__ import annotations

import contextlib
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from coalmine.errors import MissingExtraError
from coalmine.models.endpoints.address import Key
from coalmine.models.endpoints.answers import UnusableAnswerError

if TYPE_CHECKING:
    import httpcore

# No valid answer is longer, however long the text.
MOST_BYTES = 64_000_000
IDLE_CONNECTIONS = 64
PART = 65_536
# zlib's code for a gzip or zlib header, whichever is there.
EITHER_HEADER = 47


class HttpReply(NamedTuple):
    """A complete answer; the names of `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Transport:
    """Connections to one origin, for any number of threads. An exchange takes at most `timeout` seconds, whatever the server does."""

    def __init__(self, url: str, key: Key, *, timeout: float) -> None:
        try:
            import httpcore
        except ImportError:
            raise MissingExtraError("asking an endpoint", "httpcore", "endpoints") from None
        import ssl

        self._key = key
        self._headers = [
            *key.headers().items(),
            # The library would leave out the brackets of an IPv6 address.
            ("Host", urlsplit(url).netloc),
            ("Accept", "application/json"),
            ("Accept-Encoding", "identity"),
            ("Content-Type", "application/json"),
            ("User-Agent", "coalmine"),
        ]
        self._timeout = timeout
        self._deadline = _Deadline()
        self._pool = httpcore.ConnectionPool(
            ssl_context=ssl.create_default_context() if url.startswith("https:") else None,
            max_connections=None,
            max_keepalive_connections=IDLE_CONNECTIONS,
            network_backend=_timely_backend(self._deadline),
        )

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    def exchange(self, url: str, body: bytes | None, *, most_bytes: int = MOST_BYTES) -> HttpReply:
        """POST a body, or GET if there is none; an UnusableAnswerError if no complete answer of at most `most_bytes` comes."""
        import httpcore

        method = "GET" if body is None else "POST"
        self._deadline.ends = time.monotonic() + self._timeout
        try:
            with self._pool.stream(method, url, headers=self._headers, content=body) as response:
                headers = {
                    name.decode("ascii", "replace").lower(): value.decode("latin-1")
                    for name, value in response.headers
                }
                content = bytearray()
                for part in _decoded(response.iter_stream(), headers.get("content-encoding", "")):
                    content += part
                    if len(content) > most_bytes:
                        raise UnusableAnswerError(f"the answer has more than {most_bytes:,} bytes")
                return HttpReply(response.status, headers, bytes(content))
        except httpcore.TimeoutException:
            raise UnusableAnswerError(f"no answer came within {self._timeout:g} s", "network") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol) as problem:
            # An error of the protocol quotes what the server sent.
            quotes = isinstance(problem, httpcore.ProtocolError)
            said = "" if quotes else self._key.inert(str(problem))
            raise UnusableAnswerError(
                f"the connection failed ({said or type(problem).__name__})", "network"
            ) from None


def _decoded(parts: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """A body in small parts. It was requested uncompressed; if a server compresses it anyway, it is decompressed in parts."""
    encoding = encoding.strip().lower()
    if encoding in {"", "identity"}:
        yield from parts
        return
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        raise UnusableAnswerError("the answer is compressed in a way that was not asked for")
    inflater = zlib.decompressobj(EITHER_HEADER)
    try:
        for part in parts:
            left, some = part, part
            while some and not inflater.eof:
                some = inflater.decompress(left, PART)
                left = inflater.unconsumed_tail
                yield some
    except zlib.error:
        raise UnusableAnswerError("the answer is compressed, and cannot be read") from None
    if not inflater.eof:
        raise UnusableAnswerError("the answer is compressed, and ends too early")


class _Deadline(threading.local):
    """When the exchange of this thread must end."""

    ends = float("inf")

    def left(self) -> float:
        return self.ends - time.monotonic()


def _timely_backend(deadline: _Deadline) -> httpcore.NetworkBackend:
    """Sockets that wait until the deadline and no longer.

    The library's own timeouts are for single reads, so a server that sends a byte now and then would be waited for forever.
    """
    import httpcore

    class TimelyStream(httpcore.NetworkStream):
        def __init__(self, inner: httpcore.NetworkStream) -> None:
            self._inner = inner

        def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
            del timeout
            return self._inner.read(max_bytes, _positive(deadline.left(), httpcore.ReadTimeout))

        def write(self, buffer: bytes, timeout: float | None = None) -> None:
            del timeout
            self._inner.write(buffer, _positive(deadline.left(), httpcore.WriteTimeout))

        def close(self) -> None:
            with contextlib.suppress(OSError):
                self._inner.close()

        def start_tls(
            self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
        ) -> httpcore.NetworkStream:
            del timeout
            left = _positive(deadline.left(), httpcore.ConnectTimeout)
            return TimelyStream(self._inner.start_tls(ssl_context, server_hostname, left))

        def get_extra_info(self, info: str) -> Any:
            return self._inner.get_extra_info(info)

    class Backend(httpcore.SyncBackend):
        def connect_tcp(
            self,
            host: str,
            port: int,
            timeout: float | None = None,
            local_address: str | None = None,
            socket_options: Any = None,
        ) -> httpcore.NetworkStream:
            del timeout
            left = _positive(deadline.left(), httpcore.ConnectTimeout)
            return TimelyStream(super().connect_tcp(host, port, left, local_address, socket_options))

    return Backend()


def _positive(seconds: float, problem: type[Exception]) -> float:
    if seconds <= 0:
        raise problem
    return seconds
