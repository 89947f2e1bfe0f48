"""A running server: its connections, which read only requests that were let in, are limited in number and time, and end cleanly."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from typing import Any, Self

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from coalmine.serving.admission import MOST_HEAD_BYTES, Gate
from coalmine.serving.application import Application
from coalmine.serving.requests import RefusedError

MOST_CONNECTIONS = 512
IDLE_SECONDS = 120
REQUEST_SECONDS = 60  # from the first byte of a request to its last
# What follows a refusal is read and dropped for so long: a connection that is closed with bytes unread may lose its last answer.
DISCARD_SECONDS = 2
LEFT_SECONDS = 10  # in which a client that will send no more can be answered; then it is taken to have left
PATIENCE_SECONDS = 10  # for the answers to what came before a server stops
FAREWELL_SECONDS = 1  # in which the last answers of a server that stops can be read

# uvicorn logs failures with their traceback, which may quote a prompt; the application logs what is harmless.
_SILENT = logging.getLogger("coalmine.serving.connections")
_SILENT.setLevel(logging.CRITICAL + 1)


class _StrictReader(h11.Connection):
    """h11's reader, which sees only heads that the gate admits, and nothing after the last request."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(h11.SERVER, 4 * MOST_HEAD_BYTES)
        self._gate = gate

    def next_event(self) -> Any:
        if self.their_state in {h11.MUST_CLOSE, h11.CLOSED, h11.ERROR}:
            return h11.NEED_DATA
        if self.their_state is h11.IDLE:
            data, ended = self.trailing_data
            if data and not self._gate.admits(data, ended=ended):
                return h11.NEED_DATA
        return super().next_event()


class StrictConnection(H11Protocol):
    """uvicorn's connection to one client, with a gate before it and with limits."""

    conn: _StrictReader

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        application: Any = self.config.app
        self.conn, self._log = _StrictReader(application.gate), application.log
        self.logger, self.access_log = _SILENT, False
        self._refused = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request for a limited time; a connection too many is closed at once."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(IDLE_SECONDS, transport.abort)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request, unless this client was refused."""
        if not self._refused:
            super().data_received(data)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection open for a short while, because a client that has sent its last byte may wait for an answer."""
        self.conn.receive_data(b"")
        self.handle_events()
        waits = not self._refused and self.cycle is not None and not self.cycle.response_complete
        if waits:
            self.loop.call_later(LEFT_SECONDS, self.transport.abort)
        return waits

    def handle_events(self) -> None:
        """Read what has come; a request that has begun must be complete in time, or a slow client would keep its place for ever."""
        try:
            super().handle_events()
        except RefusedError as refusal:
            self._refuse(refusal)
        state = self.conn.their_state
        begun = state is h11.SEND_BODY or (state is h11.IDLE and bool(self.conn.trailing_data[0]))
        if self._deadline is not None and not begun:
            self._deadline.cancel()
            self._deadline = None
        elif begun and self._deadline is None:
            said = f"the request did not arrive within {REQUEST_SECONDS:g} seconds; send it in one piece"
            too_slow = RefusedError(408, "too_slow", said)
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self._refuse, too_slow)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - which is the same for everything
        """Refuse what h11 cannot read, although the gate admitted its head."""
        said = "the body is shorter than the Content-Length of the request"
        self._refuse(RefusedError(400, "incomplete", said))

    def _refuse(self, refusal: RefusedError) -> None:
        """Answer past the application, and drop what still comes."""
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            answer = refusal.response
            headers = [*answer.raw_headers, (b"connection", b"close")]
            head = h11.Response(status_code=refusal.status, headers=headers)
            for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
            self._log(f"a request was refused ({refusal.code}): {refusal.status}")
        self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(DISCARD_SECONDS, self.transport.abort)


class Server(uvicorn.Server):
    """A running server; `close` it, or use it in a `with`."""

    def __init__(self, application: Application, listening: socket.socket) -> None:
        config = uvicorn.Config(
            application,
            http=StrictConnection,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            server_header=False,
            timeout_keep_alive=IDLE_SECONDS,
        )
        super().__init__(config)
        address, port = listening.getsockname()[:2]
        #: What clients get as the address, such as http://127.0.0.1:8000/v1; paths such as /completions are added to it.
        self.url = f"http://{f'[{address}]' if ':' in address else address}:{port}/v1"
        self._batcher = application.batcher
        self._thread = threading.Thread(
            target=self.run, args=([listening],), name="coalmine-serve", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Take no more requests, answer those that came, for up to ten seconds, refuse the rest with 503, and free the address."""
        self.should_exit = True
        self._thread.join()
        self._batcher.close(patience=FAREWELL_SECONDS)

    @property
    def is_computing(self) -> bool:
        """Whether the model still computes an answer that nobody waits for any more, after `close`."""
        return self._batcher.is_computing

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End all connections, each after its answer; those who have to wait for longer are told so.

        uvicorn's own time limit is not set, because it writes to the log and answers in plain text.
        """
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await super().shutdown(sockets)
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()
            await asyncio.sleep(FAREWELL_SECONDS)
            for connection in self.server_state.connections:
                connection.transport.abort()
