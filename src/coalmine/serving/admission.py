"""Which requests are let in, by their heads alone: one unambiguous request, of a program, that is meant for this server.

h11 is more lenient than is safe: it joins folded headers, takes a bare line feed for the end of a line and merges repeated lengths. So
the bytes of each head are checked here, before h11 reads them.

A page in a browser can send requests to servers of the same machine. It cannot read the answers, but it could make a model compute. So
a request that a page could send by itself, without asking first, is refused: by its Host (a name that was pointed at this address), by
its Origin and Sec-Fetch-Site (another site), and by its Content-Type (a form, or text). OPTIONS, with which a browser asks first, is
answered with nothing that would allow the request.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator
from typing import NamedTuple

from starlette.datastructures import Headers

from coalmine.serving.requests import RefusedError

MOST_HEADERS = 100
MOST_HEAD_BYTES = 65_536
MOST_BODY_BYTES = 10_000_000
HEALTH = ("/health", "/v1/health")  # need no key

_END = re.compile(rb"\n\r?\n")  # what h11 takes for the end of a head
_REQUEST_LINE = re.compile(rb"(OPTIONS \*|[A-Z]{1,20} /[!-~]*) HTTP/1\.[01]")
_HEADER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*")
_LENGTH = re.compile(r"[0-9]{1,15}")
_ONCE = ("host", "origin", "sec-fetch-site", "content-type", "authorization", "connection", "expect")

_Faults = Iterator[tuple[int, str, str]]  # the status, the code and the sentence of a refusal


class Gate(NamedTuple):
    """Who may ask: `hosts` are the names of the server, None if it may have any; `key` is what clients must send, None for nothing."""

    hosts: frozenset[str] | None
    key: bytes | None

    def admits(self, data: bytes, *, ended: bool) -> bool:
        """Whether `data` begins with a complete head; `ended` says that no more will come.

        The first fault of a head raises RefusedError, so that the body of a stranger is not even read.
        """
        end = _END.search(data)
        head = data[: end.end() if end else None]
        for fault in self._faults(head, whole=end is not None, ended=ended):
            raise RefusedError(*fault)
        return end is not None

    def _faults(self, head: bytes, *, whole: bool, ended: bool) -> _Faults:
        """What makes a head too large or ambiguous: two programs must not read it differently."""
        first, _, rest = head.partition(b"\n")
        if len(first) > MOST_HEAD_BYTES:
            yield 414, "too_large", "the first line of the request is too long; ask with POST"
        if len(rest) > MOST_HEAD_BYTES or head.count(b"\n") > MOST_HEADERS + 2:
            most = f"{MOST_HEADERS} headers and {MOST_HEAD_BYTES:,} bytes"
            yield 431, "too_large", f"a head may have {most}; send less"
        if not whole:
            if ended:
                yield 400, "incomplete", "the request ended before its head was complete; send all of it"
            return
        line, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        if not _REQUEST_LINE.fullmatch(line):
            yield 400, "invalid_request", "the first line must be like GET /health HTTP/1.1"
        method, path, _ = line.decode("ascii").split(" ")
        if method not in {"GET", "POST", "OPTIONS"}:
            yield 501, "invalid_request", "this server does not have this method; use GET or POST"
        if not all(map(_HEADER.fullmatch, fields)):
            yield 400, "invalid_request", "a header is not a name, a colon and a value on one line"
        pairs = (field.split(b":", 1) for field in fields)
        headers = Headers(raw=[(name.lower(), value.strip(b" \t")) for name, value in pairs])
        lengths = headers.getlist("content-length")
        if "transfer-encoding" in headers or (method == "POST" and not lengths):
            yield 411, "length_required", "a request needs a Content-Length; send its body in one piece"
        if lengths and not _LENGTH.fullmatch(",".join(lengths)):
            yield 400, "invalid_request", "the Content-Length of the request is not one whole number"
        for name in _ONCE:
            if (count := len(headers.getlist(name))) > 1:
                yield 400, "invalid_request", f"the header {name} came {count} times; send it once"
        if not headers.get("host"):
            yield 400, "invalid_request", "a request must name the server in its Host header"
        yield from self._faults_of_sender(method, path.partition("?")[0], headers)

    def _faults_of_sender(self, method: str, path: str, headers: Headers) -> _Faults:
        """What a page of another site, or someone without the key, sends."""
        host = headers["host"].lower()
        if self.hosts is not None and host not in self.hosts:
            names = " or ".join(sorted(self.hosts))
            yield 403, "wrong_host", f"the Host header must name this server: {names}"
        schemes = ("http",) if self.hosts is not None else ("http", "https")
        own_origin = headers.get("origin", f"http://{host}").lower() in {f"{one}://{host}" for one in schemes}
        site = headers.get("sec-fetch-site") or "none"  # as a browser says of an address that was typed in
        if not own_origin or site.lower() not in {"same-origin", "none"}:
            yield 403, "foreign_origin", "a page of another site sent this request; ask from a program"
        if method == "OPTIONS":
            said = "this server allows pages of other sites nothing; ask from a program"
            yield 405, "method_not_allowed", said
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if method == "POST" and kind != "application/json":
            yield 415, "wrong_content_type", "send application/json (with curl: --json in place of -d)"
        if int(headers.get("content-length", "0")) > MOST_BODY_BYTES:
            yield 413, "too_large", f"a body may have {MOST_BODY_BYTES:,} bytes; send several requests"
        scheme, _, given = headers.get("authorization", "").partition(" ")
        sent = given.strip().encode("latin-1")  # as which headers are decoded
        right = self.key is None or (hmac.compare_digest(sent, self.key) and scheme.lower() == "bearer")
        if not right and path not in HEALTH:
            yield 401, "invalid_api_key", "the key is missing or wrong; send it as Authorization: Bearer"


def own_hosts(address: str, port: int) -> frozenset[str]:
    """What a Host header may say to a server that only this machine can reach.

    >>> sorted(own_hosts("::1", 8000)), sorted(own_hosts("127.0.0.1", 80))
    (['[::1]:8000', 'localhost:8000'], ['127.0.0.1', '127.0.0.1:80', 'localhost', 'localhost:80'])
    """
    names = {f"[{address}]" if ":" in address else address, "localhost"}
    return frozenset({f"{name}:{port}" for name in names} | (names if port == 80 else set()))
