"""Every string of a row, whatever field it is in: what is searched for secrets, and the row with some of them changed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

# What a string goes through; it gets the name of its field before it, as in "phone: 7138531234", where that reads as a word.
Change = Callable[[str], str]

# A string, perhaps the name of a field; a number; or what begins or ends an object or a list.
_TOKEN = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|(-?[0-9][0-9.eE+-]*)|([{}\[\],])', re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_. -]{0,39}")
_HALF = re.compile("[\ud800-\udfff]")
# Made once, as `json.loads` does only for its defaults.
_decoded = json.JSONDecoder(strict=False).decode


def changed_text(text: str, change: Change, name: str = "", texts: Collection[str | None] = ()) -> str:
    r"""A string in which something may have changed; one that is JSON itself, such as the arguments of a tool call, stays JSON.

    Strings of the fields in `texts` go through `change` as they are.

    >>> changed_text('{"pin": 4921}', lambda text: text.replace("4921", "[pin]"))
    '{"pin": "[pin]"}'
    """
    is_text = name in texts
    if not is_text and text.lstrip()[:1] in ("{", "[") and _is_json(text):
        return changed_json(text, change)
    before = f"{name}: " if _WORD.fullmatch(name) and not is_text else ""
    whole = before + (text if text.isascii() else _HALF.sub("\ufffd", text))
    changed = change(whole)
    return text if changed == whole else changed.removeprefix(before)


def changed_json(
    content: str, change: Change, kept: Collection[str | None] = (), texts: Collection[str | None] = ()
) -> str:
    r"""A JSON object in which every string and number went through `change`, but those of the fields in `kept`; all else stays as it is.

    Where a name is there twice, both values are changed. A number that changes becomes a string. `texts` is as in `changed_text`.

    >>> changed_json('{"a": "x",  "a": ["x", "y"], "b": "x"}', lambda text: text.replace("x", "..."), kept=["b"])
    '{"a": "...",  "a": ["...", "y"], "b": "x"}'
    """
    name, depth = "", 0

    def changed(token: re.Match[str]) -> str:
        nonlocal name, depth
        string, colon, number, mark = token.groups()
        if mark is not None:
            depth += (mark in "{[") - (mark in "}]")
            name = ""
            return mark
        text = number if string is None else _decoded(string)
        if colon is None:
            new = text if depth == 1 and name in kept else changed_text(text, change, name, texts)
        else:
            name, new = text, changed_text(text, change)
        # Whoever escaped what is not ASCII does so in the new text too.
        written = (string or number) if new == text else json.dumps(new, ensure_ascii=content.isascii())
        return written + (colon or "")

    return _TOKEN.sub(changed, content)


def changed_value(value: Any, change: Change, name: str = "", texts: Collection[str | None] = ()) -> Any:
    """A value of a table as Python has it, in which every string went through `change`."""
    if isinstance(value, str):
        return changed_text(value, change, name, texts)
    if isinstance(value, dict):
        return {key: changed_value(inner, change, str(key), texts) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([changed_value(inner, change, "", texts) for inner in value])
    return value


def strings_of(changed: Callable[[Change], object]) -> list[str]:
    """The strings that one of these functions passes to `change`."""
    strings: list[str] = []

    def note(text: str) -> str:
        strings.append(text)
        return text

    changed(note)
    return strings


def leaves(value: Any, name: str, *, names: bool = False) -> Iterator[tuple[str, str, Any]]:
    """The field, its last name, and the value of each string and number within a value; with `names`, names of fields too.

    >>> list(leaves([{"role": "user", "calls": [{"n": 7}]}], "messages"))
    [('messages[].role', 'role', 'user'), ('messages[].calls[].n', 'n', 7)]
    """
    waiting = [(name, name, value)]
    while waiting:
        field, last, inner = waiting.pop()
        if isinstance(inner, dict):
            if names:
                yield from ((f"{field}.", "", str(key)) for key in inner)
            waiting += reversed([(f"{field}.{key}", str(key), each) for key, each in inner.items()])
        elif isinstance(inner, (list, tuple)):
            waiting += reversed([(f"{field}[]", last, each) for each in inner])
        elif isinstance(inner, (str, int, float)) and not isinstance(inner, bool) and inner != "":
            yield field, last, inner


def repeated(content: bytes) -> list[tuple[str, Any]]:
    """What JSON has under names that follow again in the same object, so that whoever decodes it never sees it.

    >>> repeated(b'{"a": 1, "b": {"c": "x", "c": "y"}, "a": 2}')
    [('c', 'x'), ('a', '1')]
    """
    unseen: list[tuple[str, Any]] = []

    def noted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        last = dict(pairs)
        if len(last) < len(pairs):
            places = {name: place for place, (name, _) in enumerate(pairs)}
            unseen.extend(pair for place, pair in enumerate(pairs) if places[pair[0]] != place)
        return last

    # Numbers stay as they are written.
    json.loads(content, strict=False, object_pairs_hook=noted, parse_int=str, parse_float=str)
    return unseen


def _is_json(text: str) -> bool:
    try:
        _decoded(text)
    except (ValueError, RecursionError):
        return False
    return True
