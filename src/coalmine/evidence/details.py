"""`Detail`: a table on the page of a report; and `AcrossRuns`: what several runs show beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coalmine.evidence.charts import Chart


@dataclass(frozen=True, kw_only=True)
class Detail:
    """A table on the page of a report. Everything in it is shown as text, whatever it contains.

    Attributes:
        section: the heading that it is under; details of one section come together. "Record" puts it into the record of the run.
        columns: the names of the columns.
        rows: the rows, with the texts of secrets only if the report was asked to reveal them.
        caption: what the table shows.
        title: its own heading below that of the section.
        code: a text that follows the title, shown as code.
        note: a sentence above the table.
        search: makes it a table that can be searched, filtered, sorted and saved.

    >>> Detail(section="Toys", columns=("toy", "broken"), rows=[("duck", True)], caption="Toys that broke").caption
    'Toys that broke'
    """

    section: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    caption: str
    title: str = ""
    code: str = ""
    note: str = ""
    search: Search | None = None


@dataclass(frozen=True, kw_only=True)
class Search:
    """How a long table can be searched.

    Attributes:
        name: what its file is called if a reader saves it.
        column: the column whose values a reader can choose from.
        label: what that choice is called.
        choices: the values of that column, with what each is called.
        figure: the figure that has the same columns and rows, so that the page needs them once; empty if none has.
    """

    name: str
    column: str
    label: str
    choices: Mapping[Any, str] = field(default_factory=dict)
    figure: str = ""


class AcrossRuns(NamedTuple):
    """What several runs show beside each other: figures, one sentence each about pairs of runs, and notes on how to read them."""

    figures: tuple[Chart, ...]
    statements: tuple[str, ...]
    notes: tuple[str, ...]
