"""Connections that refuse ambiguous HTTP heads, and that are limited in number, size and time.

uvicorn reads requests with h11, which is more lenient than is safe: it joins folded headers, takes a bare line feed for the end of a
line and merges repeated lengths. An application sees only the result, so the bytes of each head are checked here, before h11 reads them.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import time
from typing import Any

import h11
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from coalmine.serving.requests import RefusedError, error_document

MOST_CONNECTIONS = 512
MOST_HEADERS = 100
MOST_HEAD_BYTES = 65_536
IDLE_SECONDS = 120
REQUEST_SECONDS = 60  # from the first byte of a request to its last
# What follows a refusal is read and dropped for so long: a connection that is closed with bytes unread may lose its last answer.
DISCARD_SECONDS = 2
FAREWELL_SECONDS = 1  # in which the last answers of a server that stops can be read

_END = re.compile(rb"\n\r?\n")  # what h11 takes for the end of a head
_REQUEST_LINE = re.compile(rb"(OPTIONS \*|[A-Z]{1,20} /[!-~]*) HTTP/1\.[01]")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*?)[ \t]*")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_ONCE = (b"host", b"origin", b"sec-fetch-site", b"content-type", b"authorization", b"connection", b"expect")

# uvicorn logs failures with their traceback, which may quote a prompt; the application logs what is harmless.
_SILENT = logging.getLogger("coalmine.serving.connections")
_SILENT.setLevel(logging.CRITICAL + 1)


def check_head(data: bytes) -> bool:
    """Whether `data` begins with a complete head; one that two programs could read differently is refused."""
    end = _END.search(data)
    line_end = data.find(b"\n", 0, MOST_HEAD_BYTES) + 1
    if not line_end and len(data) > MOST_HEAD_BYTES:
        raise RefusedError(414, "too_large", "the first line of the request is too long; ask with POST")
    lines = data[: end.end() if end else None].split(b"\r\n")
    if len(data[line_end : end.end() if end else None]) > MOST_HEAD_BYTES or len(lines) > MOST_HEADERS + 3:
        said = f"a request may have {MOST_HEADERS} headers of {MOST_HEAD_BYTES:,} bytes in all; send fewer"
        raise RefusedError(431, "too_large", said)
    if end is None:
        return False
    if _REQUEST_LINE.fullmatch(lines[0]) is None:
        said = "the first line of the request must be a method, a path and HTTP/1.1, such as GET /health HTTP/1.1"
        raise RefusedError(400, "invalid_request", said)
    if not lines[0].startswith((b"GET ", b"POST ", b"OPTIONS ")):
        said = "this server does not have the method of the request; use GET or POST"
        raise RefusedError(501, "invalid_request", said)
    headers: dict[bytes, list[bytes]] = {}
    for line in lines[1:-2]:
        if (header := _HEADER.fullmatch(line)) is None:
            break
        headers.setdefault(header[1].lower(), []).append(header[2])
    else:
        if lines[-2:] == [b"", b""]:
            _check_framing(headers, needs_length=lines[0].startswith(b"POST "))
            return True
    said = "a header of the request is not a name, a colon and a value on one line"
    raise RefusedError(400, "invalid_request", said)


def _check_framing(headers: dict[bytes, list[bytes]], *, needs_length: bool) -> None:
    """Refuse a head that does not make clear where the request ends, or that repeats a header that decides something."""
    lengths = headers.get(b"content-length", [])
    if b"transfer-encoding" in headers or (needs_length and not lengths):
        said = "a request needs a Content-Length; send its body in one piece"
        raise RefusedError(411, "length_required", said)
    if len(lengths) > 1 or (lengths and _LENGTH.fullmatch(lengths[0]) is None):
        said = "the Content-Length of the request is not one whole number"
        raise RefusedError(400, "invalid_request", said)
    for name in _ONCE:
        if (count := len(headers.get(name, []))) > 1:
            said = f"the header {name.decode()} came {count} times; send it once"
            raise RefusedError(400, "invalid_request", said)
    if not headers.get(b"host", [b""])[0]:
        raise RefusedError(400, "invalid_request", "a request must name the server in its Host header")


class _StrictReader(h11.Connection):
    """h11's reader, which sees only heads that were checked, and knows when the request that it reads began."""

    began: float | None = None
    refusal: RefusedError | None = None

    def next_event(self) -> Any:
        if self.their_state is h11.IDLE:
            data = self.trailing_data[0]
            if data and self.began is None:
                self.began = time.monotonic()
            try:
                if not check_head(data):
                    return h11.NEED_DATA
            except RefusedError as refusal:
                self.refusal = refusal
                raise h11.RemoteProtocolError(refusal.code) from None
        event = super().next_event()
        if isinstance(event, h11.EndOfMessage):
            self.began = None
        return event


class StrictConnection(H11Protocol):
    """uvicorn's connection to one client, with strict heads and with limits."""

    conn: _StrictReader

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = _StrictReader(h11.SERVER, 4 * MOST_HEAD_BYTES)
        self.logger, self.access_log = _SILENT, False
        self._refused = self._ended = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request for a limited time; a connection too many is closed at once."""
        full = len(self.connections) >= MOST_CONNECTIONS
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(IDLE_SECONDS, transport.abort)
        if full:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        self._unset_keepalive_if_required()
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request, unless this client was refused."""
        if not self._refused:
            super().data_received(data)
            if self._timer is None:
                self._timer = self.loop.call_later(REQUEST_SECONDS, self._check_pace)

    def eof_received(self) -> bool:  # type: ignore[override]
        """A client that has sent its last byte still gets the answers to what it asked; the application sees whether that is whole."""
        self._ended = True
        return self._finish()

    def on_response_complete(self) -> None:
        """Go on with the next request; after the last one of a client that sends no more, close the connection."""
        super().on_response_complete()
        if self._ended and not self.transport.is_closing() and not self._finish():
            self.transport.close()

    def _finish(self) -> bool:
        """Answer what has come, because no more will come; returns whether an answer is still to be computed."""
        if self._refused:
            return False
        more = bool(self.conn.trailing_data[0])
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = self.cycle.keep_alive and more
            self.cycle.more_body = False
            self.cycle.message_event.set()
            return True
        if more and self.conn.their_state is h11.IDLE:
            said = "the request ended before its head was complete; send all of it, up to an empty line"
            self._refuse(RefusedError(400, "incomplete", said))
        return False

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read."""
        self._refuse(self.conn.refusal or RefusedError(400, "invalid_request", msg))

    def _check_pace(self) -> None:
        """Refuse a request that takes too long: a client that sends a byte now and then would keep its place for ever."""
        self._timer = None
        if self.conn.began is None or self._refused:
            return
        left = self.conn.began + REQUEST_SECONDS - time.monotonic()
        if left > 0:
            self._timer = self.loop.call_later(left, self._check_pace)
        else:
            said = f"the request did not arrive within {REQUEST_SECONDS:g} seconds; send it in one piece"
            self._refuse(RefusedError(408, "too_slow", said))

    def _refuse(self, refusal: RefusedError) -> None:
        """Answer past the application, and drop what still comes."""
        content = error_document(refusal)
        headers = [("content-type", "application/json"), ("content-length", str(len(content)))]
        answer = h11.Response(status_code=refusal.status, headers=[*headers, ("connection", "close")])
        for event in (answer, h11.Data(data=content), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self._refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(DISCARD_SECONDS, self.transport.abort)


class PatientServer(Server):
    """uvicorn's server, which at its end waits `patience` seconds for answers, and then says to those who still wait that it stops.

    uvicorn's own time limit is not set, because it writes to the log and answers in plain text.
    """

    def __init__(self, config: Config, *, patience: float) -> None:
        super().__init__(config)
        self._patience = patience

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End all connections, each after its answer."""
        loop = asyncio.get_running_loop()
        timers = [
            loop.call_later(self._patience, self._cancel),
            loop.call_later(self._patience + FAREWELL_SECONDS, self._abort),
        ]
        try:
            await super().shutdown(sockets)
        finally:
            for timer in timers:
                timer.cancel()

    def _cancel(self) -> None:
        for task in self.server_state.tasks:
            task.cancel()

    def _abort(self) -> None:
        """Leave the clients that do not read their answer."""
        for connection in self.server_state.connections:
            connection.transport.abort()
