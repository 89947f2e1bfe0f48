"""Where values are in the text of a JSON object, so that one can be changed and every other byte stays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

_DECODER = json.JSONDecoder(strict=False)


def value_span(content: str, path: Sequence[str | int]) -> tuple[int, int]:
    """Where the value at some keys and places begins and ends; a ValueError or IndexError where there is none.

    Where a key is there twice, the last one counts.

    >>> row = '{"id": 7, "turns": ["a", "bc"]}'
    >>> begin, end = value_span(row, ["turns", 1])
    >>> row[begin:end]
    '"bc"'
    """
    begin, end = content.index("{"), len(content)
    for step in path:
        if isinstance(step, str):
            begin, end = _in_object(content, begin, step)
        else:
            begin, end = _in_list(content, begin, step)
    return begin, end


def _in_object(content: str, at: int, key: str) -> tuple[int, int]:
    at, span = _opened(content, at, "{"), None
    while content[at := _after_space(content, at)] != "}":
        name, at = _DECODER.raw_decode(content, at)
        begin = _after_space(content, _after_space(content, at) + 1)  # after the colon
        _, at = _DECODER.raw_decode(content, begin)
        if name == key:
            span = (begin, at)
        at = _after_space(content, at)
        at += content[at] == ","
    if span is None:
        raise ValueError("the object has no such field")
    return span


def _in_list(content: str, at: int, number: int) -> tuple[int, int]:
    at = _opened(content, at, "[")
    for _ in range(number):
        _, at = _DECODER.raw_decode(content, _after_space(content, at))
        at = _after_space(content, at)
        if content[at] != ",":
            raise ValueError("the list is too short")
        at += 1
    at = _after_space(content, at)
    _, end = _DECODER.raw_decode(content, at)
    return at, end


def _opened(content: str, at: int, bracket: str) -> int:
    if content[at] != bracket:
        raise ValueError("the value is of another type")
    return at + 1


def _after_space(content: str, at: int) -> int:
    while content[at] in " \t\r\n":
        at += 1
    return at


def json_type(value: Any) -> str:
    """How messages call the type of a JSON value, without the value.

    >>> json_type([1, 2])
    'a list'
    """
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
