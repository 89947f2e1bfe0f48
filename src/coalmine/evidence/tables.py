"""Tables for the terminal: plain columns, those of numbers aligned to the right."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


class Right(str):
    """The name of a column that is aligned to the right."""

    __slots__ = ()


def plain_table(*columns: str) -> Table:
    """A table without lines, and without rows yet.

    >>> [column.justify for column in plain_table("canary", Right("exposure")).columns]
    ['left', 'right']
    """
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(str(name), justify="right" if isinstance(name, Right) else "left")
    return table


def rights(*names: str) -> tuple[Right, ...]:
    """Columns that are aligned to the right."""
    return tuple(map(Right, names))
