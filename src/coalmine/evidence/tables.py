"""`Table` and `Column`: a table declared once for terminal, page, Markdown, CSV and figures; `Detail`: a table on the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from coalmine.evidence.charts import Chart, rounded
from coalmine.records.estimate import Estimate, chance_text
from coalmine.visible import visible

if TYPE_CHECKING:
    from rich.table import Table as RichTable

Row = TypeVar("Row")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column: its name, and its value for a row; an `Estimate` is shown with its interval, and is three columns of data.

    `unit` says how numbers are written: "%" for shares, "p" for probabilities of chance, or a word that follows them. `short` is its
    heading in the terminal, which leaves the column out where that is empty. A `secret` column is shown only where texts are revealed.

    >>> Column("letters", len).value("duck")
    4
    """

    name: str
    value: Callable[[Row], Any]
    unit: str = ""
    short: str | None = None
    secret: bool = False


@dataclass(frozen=True)
class Table(Generic[Row]):
    """Columns over rows of one type.

    >>> toys = Table((Column("toy", str.lower), Column("letters", len)))
    >>> toys.data(["Duck", "Ball"])
    (('toy', 'letters'), [('duck', 4), ('ball', 4)])
    """

    columns: tuple[Column[Row], ...]

    def terminal(self, rows: Iterable[Row], *, reveal: bool = False) -> RichTable:
        """The table for a terminal, without columns that are empty in every row; numbers are aligned to the right."""
        from rich.table import Table as RichTable

        columns = [one for one in self.columns if one.short != "" and (reveal or not one.secret)]
        every = [[cell_text(one.value(row), one.unit) for one in columns] for row in rows]
        table = RichTable(box=None, header_style="bold", pad_edge=False)
        kept = [place for place in range(len(columns)) if not every or any(cells[place] for cells in every)]
        for place in kept:
            numbers = bool(every) and all(_is_number(cells[place]) for cells in every)
            table.add_column(
                columns[place].short or columns[place].name,
                justify="right" if numbers else "left",
                overflow="fold",
            )
        for cells in every:
            table.add_row(*(visible(cells[place]) for place in kept))
        return table

    def data(
        self, rows: Iterable[Row], *, reveal: bool = False
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Names and cells for pages, files and figures: an estimate is three columns, its value and its limits."""
        columns = [one for one in self.columns if reveal or not one.secret]
        every = [[one.value(row) for one in columns] for row in rows]
        wide = [any(isinstance(cells[place], Estimate) for cells in every) for place in range(len(columns))]
        names = [
            name
            for one, is_estimate in zip(columns, wide, strict=True)
            for name in ((one.name, f"{one.name}, low", f"{one.name}, high") if is_estimate else (one.name,))
        ]
        found = [
            tuple(
                part
                for cell, is_estimate in zip(cells, wide, strict=True)
                for part in (_limits(cell) if is_estimate else (cell,))
            )
            for cells in every
        ]
        return tuple(names), found

    def detail(self, rows: Sequence[Row], *, reveal: bool = False, **parts: Any) -> Detail:
        """The table for the page of a report; `parts` are the other fields of `Detail`."""
        columns, cells = self.data(rows, reveal=reveal)
        return Detail(columns=columns, rows=cells, **parts)


def cell_text(value: Any, unit: str = "") -> str:
    """A cell as people read it; what is not known is empty.

    >>> cell_text(0.5, "%"), cell_text(1234), cell_text(None), cell_text(1e-20, "p"), cell_text(True)
    ('50.0%', '1,234', '', 'below 1e-12', 'yes')
    """
    if value is None:
        return ""
    if isinstance(value, Estimate):
        return value.text(unit)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return chance_text(value) if unit == "p" else f"{100 * value:.1f}%" if unit == "%" else f"{value:.2f}"
    return str(value)


def _limits(cell: Any) -> tuple[Any, Any, Any]:
    if not isinstance(cell, Estimate):
        return cell, None, None
    # As many digits as a page needs, which keeps the file small.
    return rounded(cell.value), rounded(cell.low), rounded(cell.high)


def _is_number(cell: str) -> bool:
    return (
        not cell or cell[0].isdigit() or cell.startswith(("at least", "about", "below", "not measured", "-"))
    )


def table_of(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> RichTable:
    """A table for a terminal of rows that have their cells already.

    >>> [column.header for column in table_of(("kind", "copies"), [("pin", 3)]).columns]
    ['kind', 'copies']
    """
    columns = (Column[Sequence[Any]](name, itemgetter(place)) for place, name in enumerate(names))
    return Table(tuple(columns)).terminal(rows)


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
    """

    name: str
    column: str
    label: str
    choices: Mapping[Any, str] = field(default_factory=dict)


class AcrossRuns(NamedTuple):
    """What several runs show beside each other: figures, one sentence each about pairs of runs, and notes on how to read them."""

    figures: tuple[Chart, ...]
    statements: tuple[str, ...]
    notes: tuple[str, ...]
