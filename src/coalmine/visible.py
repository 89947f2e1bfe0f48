"""Text from a model, a corpus or a file, as it can be shown: nothing in it that a terminal, a browser or a parser would act on."""

from __future__ import annotations


def visible(text: str) -> str:
    r"""The text, with each character that cannot be printed as its escape.

    >>> visible("\x1b[2Jgone\u202e")
    '\\x1b[2Jgone\\u202e'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
