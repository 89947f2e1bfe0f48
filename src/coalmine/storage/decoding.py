"""JSON and TOML from untrusted files: decoded, or rejected with a reason that does not quote them.

Everything that coalmine reads as JSON or TOML goes through here. A reason never repeats a value, a key or a line, because the file may be
a manifest, a corpus or a result, and error messages end up in logs that others read.
"""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from typing import Any, TypeVar, overload

import msgspec

from coalmine.errors import CoalmineError

# Our own files have at most ten levels. A value that is nested a thousand deep can be decoded, but not compared or written again.
MOST_LEVELS = 100
Kind = TypeVar("Kind")

_QUOTING = {
    "Invalid enum value": "a value that is not allowed",
    "Object contains unknown field": "a field that is not known",
}
_IN_STRINGS = re.compile(rb'"[^"]*"')
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_STEPS = {**dict.fromkeys(b"[{", 1), **dict.fromkeys(b"]}", -1), ord('"'): 0}
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'"[]{}'))


class UndecodableError(ValueError):
    """Why content cannot be decoded, in a few words; readers put it into an error that names the file."""


@overload
def decode_json(content: bytes) -> Any: ...
@overload
def decode_json(content: bytes, kind: type[Kind]) -> Kind: ...
def decode_json(content: bytes, kind: Any = Any) -> Any:
    """A record of `kind`, or plain JSON.

    >>> decode_json(b'{"canaries": 3}', dict[str, int])
    {'canaries': 3}
    >>> decode_json(b'{"canaries": "my pin is 0451"}', dict[str, int])
    Traceback (most recent call last):
    coalmine.storage.decoding.UndecodableError: expected `int`, got `str` - at `$[...]`
    """
    _check_levels(content)
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as problem:
        raise UndecodableError(without_values(str(problem))) from None
    except UnicodeDecodeError:
        raise UndecodableError("it is not UTF-8") from None
    except CoalmineError:  # from a record that checks itself when it is made
        raise UndecodableError("some of its values contradict each other") from None


def decode_python_json(content: bytes, *, surrogates: bool = False) -> Any:
    """Plain JSON as Python's own encoder writes it for many tools: with NaN and Infinity, and perhaps a byte order mark.

    Half a surrogate pair, which can be written as an escape but is not text, is rejected unless `surrogates` are allowed.

    >>> decode_python_json(b'[NaN]')
    [nan]
    """
    _check_levels(content)
    try:
        found = json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as problem:
        raise UndecodableError(f"it is not UTF-8, at byte {problem.start}") from None
    except json.JSONDecodeError as problem:
        said = problem.msg[:1].lower() + problem.msg[1:]
        raise UndecodableError(f"{said} at character {problem.pos + 1}") from None
    except ValueError:
        raise UndecodableError("a number in it has too many digits") from None
    if not surrogates and _SURROGATE.search(content):
        try:
            json.dumps(found, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise UndecodableError("a text in it has half a surrogate pair") from None
    return found


def decode_toml(content: bytes) -> dict[str, Any]:
    """A TOML document.

    >>> decode_toml(b"at_most = 10")
    {'at_most': 10}
    """
    _check_levels(content)
    try:
        found = tomllib.loads(content.decode("utf-8"))
        repr(found)  # which cannot be said of what is nested too deeply to be compared
    except UnicodeDecodeError as problem:
        raise UndecodableError(f"it is not UTF-8, at byte {problem.start}") from None
    except RecursionError:  # also from keys with many dots
        raise UndecodableError("it is nested too deeply") from None
    except tomllib.TOMLDecodeError as problem:
        raise UndecodableError(_without_names(str(problem))) from None
    except ValueError:
        raise UndecodableError("a number in it has too many digits") from None
    return found


def without_values(said: str) -> str:
    """The reason why msgspec rejects a record, without the value or the name that it quotes.

    >>> without_values("Invalid enum value 'hunter2' - at `$.status`")
    'a value that is not allowed - at `$.status`'
    """
    for begins, instead in _QUOTING.items():
        said = re.sub(rf"(?s)^{begins} .*?(?= - at `\$[^`]*`$|$)", instead, said)
    return f"{said[:1].lower()}{said[1:]}"


def shown_schema(found: str) -> str:
    """The schema of a file as a message can show it, if it looks like a schema.

    >>> shown_schema("coalmine.canaries/2"), shown_schema("my pin is 0451")
    ("'coalmine.canaries/2'", 'not one of coalmine')
    """
    return repr(found) if re.fullmatch(r"coalmine\.[a-z-]{1,20}/[0-9]{1,4}", found) else "not one of coalmine"


def _without_names(said: str) -> str:
    """The reason why a TOML document is rejected, without the key that it may name."""
    return re.sub(r"(?s)\b(declare|namespace|inline table key) .*?(?=(?: twice)? \(at )", r"\1 [...]", said)


def _check_levels(content: bytes) -> None:
    """Reject content that is nested so deeply that reading, comparing or writing it would hit Python's recursion limit."""
    if content.count(b"[") + content.count(b"{") <= MOST_LEVELS:
        return
    # First remove escapes within strings, so that the quotes that remain delimit strings; then remove the strings.
    plain = content.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NOT_STRUCTURE)
    levels = itertools.accumulate(map(_STEPS.__getitem__, _IN_STRINGS.sub(b"", plain)))
    if max(levels, default=0) > MOST_LEVELS:
        raise UndecodableError("it is nested too deeply")
