"""Which requests are let in: those with one well-formed head, that call the server by its own name, and that no foreign page sent.

A page in a browser can send requests to servers of the same machine. It cannot read the answers, but it could make a model compute. So
a request that a page could send by itself, without asking first, is refused: by its Host (a name that was bent to this address), by
its Origin and Sec-Fetch-Site (another site), and by its Content-Type (a form, or text). What asks first, with OPTIONS, is told nothing
that would allow it.
"""

from __future__ import annotations

import re
from io import BufferedIOBase
from typing import NamedTuple

from coalmine.serving.requests import RefusedError

MOST_HEADERS = 100
MOST_HEAD_BYTES = 65_536

_REQUEST_LINE = re.compile(rb"([A-Z]{1,20}) ([!-~]+) HTTP/1\.([01])\r\n")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*?)[ \t]*\r\n")
_LENGTH = re.compile("[0-9]{1,15}")
_LOCALHOST = "localhost"


class Head(NamedTuple):
    """The first line and the headers of a request, in which each name may come more than once."""

    method: str
    target: str
    keeps: bool  # whether the connection may be used for another request
    headers: tuple[tuple[str, str], ...]

    def all(self, name: str) -> list[str]:
        """The values of a header; `name` is in lower case."""
        return [value for one, value in self.headers if one == name]

    def one(self, name: str) -> str | None:
        """The value of a header that may come once."""
        values = self.all(name)
        if len(values) > 1:
            raise RefusedError(
                400, "invalid_request", f"the header {name} came {len(values)} times; send it once"
            )
        return values[0] if values else None


def read_head(first_line: bytes, stream: BufferedIOBase) -> Head:
    """The head of a request, of which the first line was read; anything that two programs could read differently is refused."""
    line = _REQUEST_LINE.fullmatch(first_line)
    if line is None:
        said = "this is not a request of HTTP/1.1; its first line must be a method, a path and HTTP/1.1"
        raise RefusedError(400, "invalid_request", said)
    headers: list[tuple[str, str]] = []
    left = MOST_HEAD_BYTES
    while (raw := stream.readline(left + 1)) != b"\r\n":
        left -= len(raw)
        if left < 0 or len(headers) >= MOST_HEADERS:
            said = (
                f"a request may have {MOST_HEADERS} headers of {MOST_HEAD_BYTES:,} bytes in all; send fewer"
            )
            raise RefusedError(431, "too_large", said)
        header = _HEADER.fullmatch(raw)
        if header is None:
            said = "a header of the request is not a name, a colon and a value on one line"
            raise RefusedError(400, "invalid_request", said)
        headers.append((header[1].decode("ascii").lower(), header[2].decode("latin-1")))
    method, target = line[1].decode("ascii"), line[2].decode("ascii")
    if not target.startswith("/") and (method, target) != ("OPTIONS", "*"):
        said = "the first line of the request must have a path alone, such as /v1/completions, without a host"
        raise RefusedError(400, "invalid_request", said)
    head = Head(method, target, False, tuple(headers))
    closing = (head.one("connection") or "").lower() == "close"
    return head._replace(keeps=line[3] == b"1" and not closing)


def own_hosts(address: str, port: int) -> frozenset[str]:
    """What a Host header may say to a server that only this machine can reach.

    >>> sorted(own_hosts("::1", 8000)), sorted(own_hosts("127.0.0.1", 80))
    (['[::1]:8000', 'localhost:8000'], ['127.0.0.1', '127.0.0.1:80', 'localhost', 'localhost:80'])
    """
    names = {f"[{address}]" if ":" in address else address, _LOCALHOST}
    return frozenset({f"{name}:{port}" for name in names} | (names if port == 80 else set()))


def check_sender(head: Head, hosts: frozenset[str] | None) -> None:
    """Refuse what was not sent to this server on purpose. `hosts` are its names; None where others can reach it by any name."""
    host = head.one("host")
    if not host:
        raise RefusedError(400, "invalid_request", "a request must say in its Host header whom it is for")
    host = host.lower()
    if hosts is not None and host not in hosts:
        said = f"the Host header does not name this server, which is called {' or '.join(sorted(hosts))}"
        raise RefusedError(403, "wrong_host", said)
    origin = head.one("origin")
    own = {f"http://{host}"} if hosts is not None else {f"http://{host}", f"https://{host}"}
    # "none" is what a browser sends for an address that was typed in.
    site = head.one("sec-fetch-site") or "none"
    if (origin is not None and origin.lower() not in own) or site.lower() not in {"same-origin", "none"}:
        said = "a page of another site sent this request, which is not allowed; ask from a program"
        raise RefusedError(403, "foreign_origin", said)


def check_content_type(head: Head) -> None:
    """Refuse the kinds of body that any page may send to any server without asking first."""
    kind = (head.one("content-type") or "").partition(";")[0].strip().lower()
    if kind != "application/json":
        said = "a body must be sent as JSON; add the header Content-Type: application/json (with curl: --json in place of -d)"
        raise RefusedError(415, "wrong_content_type", said)


def length_of_body(head: Head) -> int:
    """How many bytes follow the head; without one clear number it cannot be told where the next request begins."""
    lengths = head.all("content-length")
    if head.all("transfer-encoding") or (head.method == "POST" and not lengths):
        raise RefusedError(411, "length_required", "a request needs a Content-Length; send its body whole")
    if len(lengths) > 1 or (lengths and _LENGTH.fullmatch(lengths[0]) is None):
        said = "the Content-Length of the request is not one whole number"
        raise RefusedError(400, "invalid_request", said)
    return int(lengths[0]) if lengths else 0
