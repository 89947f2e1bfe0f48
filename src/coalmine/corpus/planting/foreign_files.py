"""Tables that other tools wrote, in CSV and JSON: their rows, which column holds what, and which rows were trained on."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec

from coalmine.errors import InputError
from coalmine.storage.decoding import UndecodableError, decode_python_json, without_values
from coalmine.storage.files import read_text

# More copies than any corpus holds.
MOST_COPIES = 10**12
Probability = Annotated[float, msgspec.Meta(ge=0, le=1)]
Shape = TypeVar("Shape")
Side = Literal["in", "out", "reference"]
SIDE_COLUMNS = (
    "in_out",
    "in",
    "member",
    "is_member",
    "membership",
    "included",
    "planted",
    "trained_on",
    "label",
)
COPIES_COLUMNS = ("copies", "repetitions", "repetition", "repeats", "num_repetitions")
_SIDES: Mapping[str, Side] = {
    **dict.fromkeys(("in", "member", "1", "true", "yes", "planted", "included"), "in"),
    **dict.fromkeys(
        ("out", "nonmember", "non_member", "0", "false", "no", "withheld", "excluded", "held_out"), "out"
    ),
    **dict.fromkeys(("reference", "control"), "reference"),
}


class Row(NamedTuple):
    """One row, and what messages call it."""

    where: str
    cells: Mapping[str, Any]


class ForeignTable(NamedTuple):
    """Rows that all have the same columns, named in lower case with underscores."""

    path: Path
    rows: Sequence[Row]

    def column(self, names: Sequence[str], what: str) -> str | None:
        """The one column with such a name, or None; an InputError where there are several."""
        columns = self.rows[0].cells if self.rows else {}
        found = [name for name in names if name in columns]
        if len(found) > 1:
            raise InputError(
                f"{self.path} has several columns that may hold {what} ({', '.join(found)}); leave one of them"
            )
        return found[0] if found else None

    def needed(self, names: Sequence[str], what: str) -> str:
        """The column with such a name; an InputError where there is none."""
        found = self.column(names, what)
        if found is None:
            # If the names are missing, the first row is in their place, so nothing of it is quoted.
            raise InputError(
                f"none of the {len(self.rows[0].cells)} columns of {self.path} has a name for {what}; name one "
                f"{' or '.join(names[:4])}, in the first line"
            )
        return found


def read_foreign(path: Path, what: str) -> Any:
    """The content of a file: a `ForeignTable` for CSV, JSON Lines and a JSON list of objects, and otherwise the JSON value."""
    text = read_text(path, what)
    if path.suffix == ".jsonl":
        numbered = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        rows = [
            (f"line {number}", _json(path, f"line {number} of ", line.encode())) for number, line in numbered
        ]
        return _table(path, rows)
    if path.suffix == ".json" or text.lstrip()[:1] in {"{", "["}:
        value = _json(path, "", text.encode())
        if isinstance(value, list):
            return _table(path, [(f"entry {number}", entry) for number, entry in enumerate(value)])
        return value
    return csv_table(path, text)


def side_of(row: Row, column: str, path: Path) -> Side:
    """Whether a row was trained on."""
    value = row.cells[column]
    key = str(value).strip().lower().replace("-", "_").replace(" ", "_")
    if key in {"1.0", "0.0"}:
        key = key[0]
    if key not in _SIDES:
        raise InputError(
            f"{row.where} of {path} has something other than in or out in the column {column} (also member and nonmember, 1 and 0, true "
            "and false); correct it"
        )
    return _SIDES[key]


def copies_of(row: Row, column: str | None, path: Path) -> int:
    """How often a row was trained on, or was meant to be; 1 where the file does not say so."""
    if column is None:
        return 1
    number = _as_number(row.cells[column])
    if not (1 <= number <= MOST_COPIES and number == math.floor(number)):
        raise InputError(
            f"{row.where} of {path} has something other than a whole number of copies of at least 1 in the column {column}, which is "
            "needed for canaries that were left out too; correct it"
        )
    return int(number)


def number_of(row: Row, column: str, path: Path) -> float:
    """A number that is finite."""
    number = _as_number(row.cells[column])
    if not math.isfinite(number):
        raise InputError(
            f"{row.where} of {path} has something other than a finite number in the column {column}; leave out what could not be scored"
        )
    return number


def is_number(value: Any) -> bool:
    """Whether a cell holds a number, and not a name or a text."""
    return not math.isnan(_as_number(value))


def _as_number(value: Any) -> float:
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def shaped(path: Path, document: Any, shape: type[Shape], what: str) -> Shape:
    """The parts of a JSON document that are read, or an InputError that says which of them is missing or of the wrong type."""
    try:
        return msgspec.convert(document, shape)
    except msgspec.ValidationError as problem:
        raise InputError(f"{path} is not {what} ({without_values(str(problem))}); export it again") from None


def number_of_copies(path: Path, key: str) -> int:
    """How often what is listed under a key was trained on."""
    if not (key.isascii() and key.isdecimal() and len(key) <= len(str(MOST_COPIES))):
        raise InputError(
            f"{path} lists something under a key that is not a number of copies; export it again"
        )
    return int(key)


def _json(path: Path, where: str, content: bytes) -> Any:
    try:
        return decode_python_json(content)
    except UndecodableError as problem:
        raise InputError(f"{where}{path} is not JSON ({problem}); export it again") from None


def csv_table(path: Path, text: str, names: Sequence[str] = ()) -> ForeignTable:
    """The rows of a CSV; `names` are those of its columns where its first line does not name them."""
    return _table(path, list(_csv_rows(path, text, names)))


def _csv_rows(path: Path, text: str, names: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    try:
        lines = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error as problem:
        raise InputError(f"{path} is not CSV ({problem}); export it again") from None
    if not lines:
        raise InputError(f"{path} is empty; export it again, with a line of column names first")
    header, rows = (names, lines) if names else (lines[0], lines[1:])
    for number, cells in enumerate(rows, 1 if names else 2):
        # A comma for the decimal point would otherwise cut a number in two, and half of it would count.
        if len(cells) != len(header):
            raise InputError(
                f"row {number} of {path} has {len(cells)} columns instead of {len(header)}; put texts with commas in quotes"
            )
        yield f"row {number}", dict(zip(header, cells, strict=True))


def _table(path: Path, rows: Sequence[tuple[str, Any]]) -> ForeignTable:
    table: list[Row] = []
    for where, cells in rows:
        if not isinstance(cells, dict):
            raise InputError(
                f"{where} of {path} is not an object with named values, but {type(cells).__name__}; give rows"
            )
        named = {str(name).strip().lower().replace("-", "_").replace(" ", "_"): cells[name] for name in cells}
        if table and named.keys() != table[0].cells.keys():
            raise InputError(
                f"{where} of {path} has different columns from the first row; give all rows the same ones"
            )
        table.append(Row(where, named))
    if not table:
        raise InputError(f"{path} has no rows; export it again")
    return ForeignTable(path, table)
