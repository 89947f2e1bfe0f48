"""What became of the mutants: rows, the table of rates, and their file."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from mutants.explanations import Explanation, explained
from mutants.places import Mutant
from mutants.rooms import room
from mutants.trying import Trial


@dataclass(frozen=True)
class Row:
    """One mutant in the file of results."""

    room: str
    file: str
    line: int
    column: int
    kind: str
    source: str
    new: str
    outcome: str
    test: str
    reason: str

    @classmethod
    def of(cls, mutant: Mutant, trial: Trial, explanations: Sequence[Explanation]) -> Row:
        why = explained(mutant, explanations)
        return cls(
            room=room(mutant.file),
            file=mutant.file,
            line=mutant.line,
            column=mutant.column,
            kind=mutant.kind,
            source=mutant.marked_line,
            new=mutant.new,
            outcome=trial.outcome,
            test=trial.test,
            reason="" if why is None or trial.outcome in {"caught", "timeout"} else why.reason,
        )

    @property
    def is_caught(self) -> bool:
        """Whether the tests noticed; a suite that does not end is noticed too."""
        return self.outcome in {"caught", "timeout"}


def missed_without_reason(rows: Sequence[Row]) -> list[Row]:
    """Survivors that `explained.toml` does not explain."""
    return [row for row in rows if not row.is_caught and not row.reason]


def interval(caught: int, number: int) -> tuple[float, float]:
    """The 95% Clopper-Pearson interval of a rate.

    >>> [round(limit, 4) for limit in interval(190, 200)]
    [0.91, 0.9758]
    """
    from scipy.stats import binomtest

    limits = binomtest(caught, number).proportion_ci(0.95, method="exact")
    return float(limits.low), float(limits.high)


def table(rows: Sequence[Row]) -> str:
    """The rates by room, in Markdown."""
    lines = [
        "| room | mutants | caught by a test | by not ending | survived | rate |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    rooms = sorted({row.room for row in rows})
    for name, part in [
        *((name, [row for row in rows if row.room == name]) for name in rooms),
        ("all", list(rows)),
    ]:
        counts = [sum(row.outcome == outcome for row in part) for outcome in ("caught", "timeout")]
        caught = sum(counts)
        lines.append(
            f"| {name} | {len(part)} | {counts[0]} | {counts[1]} | {len(part) - caught} | {caught / len(part):.1%} |"
        )
    return "\n".join(lines)


def summary(rows: Sequence[Row]) -> str:
    """The table, the survivors, and the rate with its interval."""
    caught = sum(row.is_caught for row in rows)
    low, high = interval(caught, len(rows))
    survivors = [
        f"{row.outcome} {row.file}:{row.line}:{row.column} {row.source} → {row.new} ({row.reason or 'not explained'})"
        for row in rows
        if not row.is_caught
    ]
    rate = f"{caught} of {len(rows)} mutants caught: {caught / len(rows):.1%}, 95% interval {low:.1%} to {high:.1%}"
    return "\n".join([table(rows), "", *survivors, "", rate])


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """One line per mutant."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def read_rows(path: Path) -> list[Row]:
    """The rows of such a file."""
    rows = []
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            line, column = int(row.pop("line")), int(row.pop("column"))
            rows.append(Row(line=line, column=column, **row))
    return rows
