"""The name of a format for people: its template, which holds no secret, shortened in the middle where it is long."""

from __future__ import annotations

from coalmine.errors import InputError
from coalmine.visible import visible

NAME_WIDTH = 48
_ELLIPSIS = "…"


def format_name(template: str, width: int = NAME_WIDTH) -> str:
    """The template in at most `width` characters, with nothing in it that a terminal would act on.

    >>> format_name("my pin is {digits:4}")
    'my pin is {digits:4}'
    >>> format_name("the number of my credit card is {digits:16}", width=24)
    'the number o…{digits:16}'
    """
    if width < 3:
        raise InputError(f"a format's name needs a width of at least 3 characters, got {width}")
    shown = visible(template)
    if len(shown) <= width:
        return shown
    end = (width - 1) // 2
    return f"{shown[: width - 1 - end]}{_ELLIPSIS}{shown[-end:]}"
