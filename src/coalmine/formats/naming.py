"""Display names of formats: the template, which contains no secret, shortened in the middle if it is long."""

from __future__ import annotations

from collections.abc import Mapping

from coalmine.errors import InputError
from coalmine.visible import visible

NAME_WIDTH = 48
_ELLIPSIS = "…"


def format_name(template: str, width: int = NAME_WIDTH) -> str:
    """The template in at most `width` characters, without anything that a terminal would act on.

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


def unique_names(templates: Mapping[str, str], width: int = NAME_WIDTH) -> dict[str, str]:
    """A unique name per `format_id`.

    >>> list(unique_names({"f0": "a long text {digits:4}", "f1": "a long test {digits:4}"}, width=16).values())
    ['a lon…ts:4} (f0)', 'a lon…ts:4} (f1)']
    """
    names = {format_id: format_name(template, width) for format_id, template in templates.items()}
    shown = list(names.values())
    return {
        format_id: name if shown.count(name) == 1 else _with_id(templates[format_id], format_id, width)
        for format_id, name in names.items()
    }


def _with_id(template: str, format_id: str, width: int) -> str:
    suffix = f" ({format_id})"
    return format_name(template, max(3, width - len(suffix))) + suffix
