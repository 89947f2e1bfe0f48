"""Untrusted text made safe to show: nothing is left in it that a terminal, a browser or a parser would act on."""

from __future__ import annotations

import re

_NOT_ASCII = re.compile("[^\\x20-\\x7e\\n]")
_LARGEST_UNIT = 0xFFFF


def visible(text: str) -> str:
    r"""The text with each unprintable character escaped.

    >>> visible("\x1b[2Jgone\u202e")
    '\\x1b[2Jgone\\u202e'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def visible_lines(text: str) -> str:
    r"""The same for text of several lines, with its line breaks kept.

    >>> visible_lines("one\ntwo\x07")
    'one\ntwo\\x07'
    """
    return "\n".join(visible(line) for line in text.split("\n"))


def visible_json(text: str, *, ascii_only: bool = False) -> str:
    r"""The same JSON value, written so that a terminal can show it: unprintable characters become JSON escapes.

    >>> visible_json('{"name": "\x9b2J é"}')
    '{"name": "\\u009b2J é"}'
    """

    def escaped(found: re.Match[str]) -> str:
        character = found[0]
        if character.isprintable() and not ascii_only:
            return character
        code = ord(character)
        if code <= _LARGEST_UNIT:
            return f"\\u{code:04x}"
        return f"\\u{0xD7C0 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"

    return _NOT_ASCII.sub(escaped, text)
