"""What tables, figures and findings call each format of a run: its template, and never its id alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from coalmine.formats.naming import NAME_WIDTH, format_name

if TYPE_CHECKING:
    from coalmine.audits.exposure_results import FormatFacts

__all__ = ["NAME_WIDTH", "FormatNames", "format_name", "format_names"]


class FormatNames(dict[str, str]):
    """Names by format_id; the id itself for a format that the results do not describe."""

    def __missing__(self, format_id: str) -> str:
        return format_id


def format_names(formats: Iterable[FormatFacts] | Mapping[str, str], width: int = NAME_WIDTH) -> FormatNames:
    """A name for each `format_id`, from a document's `formats` or from templates by id; no two are alike.

    >>> format_names({"f0": "my pin is {digits:4}"})["f0"]
    'my pin is {digits:4}'
    >>> list(format_names({"f0": "a long text {digits:4}", "f1": "a long test {digits:4}"}, width=16).values())
    ['a lon…ts:4} (f0)', 'a lon…ts:4} (f1)']
    """
    if isinstance(formats, Mapping):
        templates = dict(formats)
    else:
        templates = {facts.format_id: facts.template for facts in formats}
    names = {format_id: format_name(template, width) for format_id, template in templates.items()}
    shown = list(names.values())
    return FormatNames(
        (format_id, name if shown.count(name) == 1 else _with_id(templates[format_id], format_id, width))
        for format_id, name in names.items()
    )


def _with_id(template: str, format_id: str, width: int) -> str:
    told = f" ({format_id})"
    return format_name(template, max(3, width - len(told))) + told
