"""JSON and TOML from untrusted files: decoded, or rejected with a reason that does not quote them.

Everything that coalmine reads as JSON or TOML goes through here. A reason never repeats a value, a key or a line, because the file may be
a manifest, a corpus or a result, and error messages end up in logs that others read.
"""

from __future__ import annotations

import contextlib
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


def names_twice(content: bytes) -> bool:
    """Whether an object in valid JSON repeats a name: programs differ in which of the two values they take.

    >>> names_twice(b'{"rank": 1, "rank": 900}'), names_twice(b'[{"rank": 1}, {"rank": 900}]')
    (True, False)
    """
    plain = decode_json(content)
    with contextlib.suppress(OverflowError):  # from integers that can be read but not written
        # A file that we wrote, which is the usual case, is encoded to the same bytes again; this is much faster than what follows.
        if msgspec.json.format(msgspec.json.encode(plain), indent=2) == content.rstrip(b"\n"):
            return False
    found = False

    def look(pairs: list[tuple[str, Any]]) -> None:
        nonlocal found
        found = found or len({name for name, _ in pairs}) < len(pairs)

    try:
        json.loads(content, object_pairs_hook=look)
    except ValueError:
        raise UndecodableError("a number in it has too many digits") from None
    return found


def decode_toml(content: bytes) -> dict[str, Any]:
    """A TOML document.

    >>> decode_toml(b"at_most = 10")
    {'at_most': 10}
    """
    try:
        found = tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError as problem:
        raise UndecodableError(f"it is not UTF-8, at byte {problem.start}") from None
    except RecursionError:
        raise UndecodableError("it is nested too deeply") from None
    except tomllib.TOMLDecodeError as problem:
        raise UndecodableError(_without_names(str(problem))) from None
    except ValueError:
        raise UndecodableError("a number in it has too many digits") from None
    within: list[Any] = [found]
    for _ in range(MOST_LEVELS):
        within = [
            inner
            for outer in within
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not within:
            return found
    raise UndecodableError("it is nested too deeply")


def without_values(said: str) -> str:
    """The reason why msgspec rejects a record, without the value or the name that it quotes.

    >>> without_values("Invalid enum value 'hunter2' - at `$.status`")
    'a value that is not allowed - at `$.status`'
    """
    said = re.sub(
        r"^Invalid enum value .*?(?= - at `\$[^`]*`$|$)", "a value that is not allowed", said, flags=re.DOTALL
    )
    said = re.sub(
        r"^Object contains unknown field .*?(?= - at `\$[^`]*`$|$)",
        "a field that is not known",
        said,
        flags=re.DOTALL,
    )
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
