"""What tables, figures and findings call things: formats by their templates, counts in words, and secrets not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from coalmine.formats.naming import NAME_WIDTH, format_name, unique_names

__all__ = ["NAME_WIDTH", "FormatNames", "format_name", "format_names"]


class DescribedFormat(Protocol):
    """What a result says about a format."""

    @property
    def format_id(self) -> str:
        """Its id in the manifest."""

    @property
    def template(self) -> str:
        """Its template."""


class FormatNames(dict[str, str]):
    """Names by format_id; the id itself for a format that the results do not describe."""

    def __missing__(self, format_id: str) -> str:
        return format_id


def format_names(
    formats: Iterable[DescribedFormat] | Mapping[str, str], width: int = NAME_WIDTH
) -> FormatNames:
    """A name for each `format_id`, from a document's `formats` or from templates by id; no two are alike.

    >>> format_names({"f0": "my pin is {digits:4}"})["f0"]
    'my pin is {digits:4}'
    """
    if isinstance(formats, Mapping):
        return FormatNames(unique_names(formats, width))
    return FormatNames(unique_names({facts.format_id: facts.template for facts in formats}, width))


def times_in_words(repetitions: int) -> str:
    """How often, as a table says it.

    >>> [times_in_words(repetitions) for repetitions in (0, 1, 4)]
    ['never', 'once', '4 times']
    """
    return {0: "never", 1: "once"}.get(repetitions, f"{repetitions} times")


def hidden(text: str) -> str:
    """Text of which only the length shows.

    >>> hidden("secret")
    '••••••'
    """
    return "•" * len(text)
