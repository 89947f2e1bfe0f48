"""Malicious answers: they try to fill the memory of a client, to keep it waiting, or to confuse it."""

import contextlib
import itertools
import zlib

BLOCK = 1 << 20
GIGABYTES = 4 << 30
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def bomb(form):
    """The bytes of a compressed body that inflates to four gigabytes, in parts; `form` is gzip or deflate."""
    packer = zlib.compressobj(9, wbits=31 if form == "gzip" else 15)
    yield packer.compress(b'{"choices":[{"text":"') + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b"x" * BLOCK) + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush nothing refers to what came before, so one block can be sent again and again.
    yield from itertools.repeat(block, GIGABYTES // BLOCK)


def chunked(parts):
    """Parts of a body as chunks."""
    return (b"%x\r\n%b\r\n" % (len(part), part) for part in parts)


def _encoded(name, parts):
    return itertools.chain(
        [HEAD + b"Content-Encoding: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % name], chunked(parts)
    )


def _twice(content):
    whole = HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(content), content)
    return [whole + whole]


# What is sent, in parts, for the honest answer `content`; the client disconnects before an endless one ends.
HOSTILE = {
    "gzip_bomb": lambda _: _encoded(b"gzip", bomb("gzip")),
    "deflate_bomb": lambda _: _encoded(b"deflate", bomb("deflate")),
    "gzip_in_gzip": lambda _: _encoded(b"gzip, gzip", bomb("gzip")),
    "brotli": lambda _: _encoded(b"br", itertools.repeat(b"\x5b\xff\xff\xaf\x02\xc0" * 1000, 1000)),
    "endless_chunks": lambda _: itertools.chain(
        [HEAD + b"Transfer-Encoding: chunked\r\n\r\n"], chunked(itertools.repeat(b" " * 8192))
    ),
    "endless_body": lambda _: itertools.chain(
        [HEAD + b"Content-Length: 999999999999999\r\n\r\n"], itertools.repeat(b" " * 8192)
    ),
    "endless_head": lambda _: itertools.chain(
        [HEAD], (b"X-%d: %b\r\n" % (i, b"y" * 500) for i in itertools.count())
    ),
    "long_header": lambda _: itertools.chain([HEAD + b"X: "], itertools.repeat(b"y" * 8192)),
    "endless_chunk_line": lambda _: itertools.chain(
        [HEAD + b"Transfer-Encoding: chunked\r\n\r\n5;"], itertools.repeat(b"y" * 8192)
    ),
    "length_too_short": lambda content: [
        HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(content) // 2, content)
    ],
    "two_lengths": lambda content: [
        HEAD + b"Content-Length: %d\r\nContent-Length: 5\r\n\r\n%b" % (len(content), content)
    ],
    "negative_length": lambda content: [HEAD + b"Content-Length: -1\r\n\r\n" + content],
    "other_protocol": lambda _: [b"SSH-2.0-OpenSSH_9.2\r\n"],
}
# These end only when the client's patience does.
SLOW = {
    "endless_100": lambda _: itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "slow_head": lambda _: itertools.chain([b"HTTP/1.1 200 OK\r\nX: "], itertools.repeat(b"y")),
}
# Unusual, and right.
UNUSUAL = {
    "gzip": lambda content: _encoded(b"gzip", [zlib.compress(content, wbits=31), b""]),
    "cookie": lambda content: [
        HEAD + b"Set-Cookie: session=coalmine\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content)
    ],
    "answered_twice": _twice,
}


def send_hostile(handler, kind, content):
    """Write such an answer to the connection of a handler, until it is over or the client is gone."""
    handler.close_connection = kind not in {"gzip", "cookie", "answered_twice", "length_too_short"}
    proxy = handler.server.proxy
    with contextlib.suppress(OSError):
        for part in {**HOSTILE, **SLOW, **UNUSUAL}[kind](content):
            handler.wfile.write(part)
            if kind in SLOW:
                handler.wfile.flush()
                if proxy.closing.wait(0.02):
                    return
        handler.wfile.flush()


def redirect_target(kind, proxy):
    """Where a redirect of this kind leads: to another port, to a name that is not this machine's, or down from encryption."""
    return {
        "redirect_301": f"{proxy.elsewhere}/v1/completions",
        "redirect_302": f"{proxy.elsewhere}/v1/completions?key=x",
        "redirect_303": "/v1/elsewhere",
        "redirect_307": f"{proxy.elsewhere}/v1/completions",
        "redirect_308": f"//user:word@localhost:{proxy.elsewhere.rpartition(':')[2]}/v1/completions",
    }[kind]
