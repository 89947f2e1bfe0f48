"""The URL and the key of an endpoint, checked before anything is sent."""

from __future__ import annotations

import ipaddress
import os
import re
import unicodedata
from base64 import b64encode
from urllib.parse import urlsplit

from coalmine.errors import InputError

KEY_VARIABLE = "COALMINE_API_KEY"
# A shorter key may be part of an ordinary word, so finding it in an answer means nothing.
SHORTEST_KEY_TO_LOOK_FOR = 8
SHORTEST_KEY_IN_DISGUISE = 12
LONGEST_SHOWN = 300
_LOWER = bytes(range(256)).lower()
_SEPARATORS = bytes(byte for byte in range(256) if not chr(byte).isascii() or not chr(byte).isalnum())
# No spaces and no control characters.
_OF_URLS = re.compile("[!-~]+")


class Key:
    """A secret that is never shown: not when printed, and not in a traceback that lists values.

    >>> Key("sk-123456789")
    Key(hidden)
    """

    __slots__ = ("_disguised", "_value")

    def __init__(self, value: str | None) -> None:
        self._value = value
        self._disguised = _disguised((value or "").encode())

    def __repr__(self) -> str:
        return "Key(hidden)" if self._value else "Key(none)"

    def __bool__(self) -> bool:
        return bool(self._value)

    def headers(self) -> dict[str, str]:
        """The headers of each request."""
        return {"Authorization": f"Bearer {self._value}"} if self._value else {}

    def hidden_in(self, text: str) -> str:
        """A text with the key, if it occurs there, replaced."""
        return text.replace(self._value, "[key]") if self._value else text

    def inert(self, text: str) -> str:
        """A server's text, made safe to show: one short line, without control characters and without the key."""
        plain = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in self.hidden_in(text))
        line = " ".join(plain.split()).rstrip(".")
        return line if len(line) <= LONGEST_SHOWN else f"{line[:LONGEST_SHOWN]}…"

    def occurs_in(self, content: bytes) -> bool:
        """Whether a server sends the key back, also in other letters: upper case, split, reversed, as hexadecimal, in base64, ..."""
        long_enough = self._value is not None and len(self._value) >= SHORTEST_KEY_TO_LOOK_FOR
        if long_enough and (self._value or "").encode() in content:
            return True
        plain = _plain(content) if self._disguised else b""
        return any(form in plain for form in self._disguised)


def _plain(content: bytes) -> bytes:
    """The letters and digits of a text, in lower case."""
    return re.sub(rb"\\[nrt]", b"", content).translate(_LOWER, _SEPARATORS)


def _disguised(key: bytes) -> tuple[bytes, ...]:
    """The letters and digits of a key in other writings; none of a key that is too short, or that ordinary words may be."""
    plain = _plain(key)
    if len(plain) < SHORTEST_KEY_IN_DISGUISE or plain.isalpha():
        return ()
    quoted = re.sub(rb"[^A-Za-z0-9]", lambda found: b"%02x" % ord(found[0]), key)
    # In base64, the letters at both ends depend on what is around the key.
    base64 = [
        b64encode(bytes(shift) + key)[-(-shift * 4 // 3) : (shift + len(key)) * 4 // 3] for shift in range(3)
    ]
    numbers = [b"".join(form % byte for byte in key) for form in (b"%02x", b"x%x", b"u%04x", b"%d", b"%03o")]
    return tuple(_plain(form) for form in (key, key[::-1], quoted, *base64, *numbers))


def checked_url(url: str) -> str:
    """The base URL of an endpoint, without a slash at the end.

    >>> checked_url("http://127.0.0.1:8000/v1/")
    'http://127.0.0.1:8000/v1'
    """
    unreadable = "the url of the endpoint cannot be read; give one such as http://127.0.0.1:8000/v1"
    if _OF_URLS.fullmatch(url) is None:
        raise InputError(unreadable)
    try:
        parts = urlsplit(url)
        _ = parts.port
        # Fails for a name that cannot be looked up.
        (parts.hostname or "").encode("idna")
    except ValueError:
        raise InputError(unreadable) from None
    if parts.username is not None or parts.password is not None:
        raise InputError(
            "the url of the endpoint holds a user name or password, which would end up in logs and results; take it out, and "
            f"put the key into the environment variable {KEY_VARIABLE}"
        )
    if parts.query or parts.fragment:
        raise InputError(
            f"the url of the endpoint must end with its path, but something follows {parts.path!r}; take it out, and put a key "
            f"into the environment variable {KEY_VARIABLE}"
        )
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InputError(f"{url!r} is not the url of an endpoint; give one such as http://127.0.0.1:8000/v1")
    path = parts.path.rstrip("/")
    for method in ("/chat/completions", "/completions", "/models"):
        if path.endswith(method):
            raise InputError(f"the url must be the base of the endpoint: leave {method!r} out, got {url!r}")
    return f"{parts.scheme}://{parts.netloc.lower()}{path}"


def key_from_environment(variable: str, url: str) -> Key:
    """The key in an environment variable, if it is set; refused if it would be sent unencrypted."""
    value = os.environ.get(variable, "").strip()
    if not value:
        return Key(None)
    if not (value.isascii() and value.isprintable()) or " " in value:
        raise InputError(
            f"the environment variable {variable} holds spaces or characters that no key has; set it to the key alone"
        )
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise InputError(
            f"{variable} is set, and the key in it would go to {parts.hostname} unencrypted; use https, or unset the variable"
        )
    return Key(value)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; a name other than localhost may lead anywhere.

    >>> is_loopback("127.0.0.1"), is_loopback("::1%lo"), is_loopback("example.org")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
