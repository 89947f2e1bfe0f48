"""The table and sentences about verified files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coalmine.evidence.tables import plain_table
from coalmine.reports.verifying.verifying import SOUND, RunVerification
from coalmine.visible import visible

if TYPE_CHECKING:
    from rich.table import Table

# Of more files than this, the table has only those with a problem; --json has all of them.
MOST_ROWS = 60


def verification_table(found: RunVerification) -> Table:
    """One row per file; of many files, only those with a problem."""
    table = plain_table()
    table.add_column("file", overflow="fold")
    table.add_column("what")
    table.add_column("state", no_wrap=True)
    rows = found.files
    if len(rows) > MOST_ROWS:
        rows = tuple(row for row in rows if row.state not in SOUND)
    for row in rows:
        table.add_row(visible(row.path), visible(row.what), row.state)
    return table


def verification_in_words(found: RunVerification) -> list[str]:
    """What is wrong with each file that is not what was written, and whether all are."""
    wrong = [row for row in found.files if row.state not in SOUND]
    lines = [f"{visible(row.path)}: {visible(row.why)}" for row in wrong]
    others = f" {found.ignored:,} other files were not looked at." if found.ignored else ""
    if wrong:
        lines.append(f"{len(wrong):,} of {len(found.files):,} files are NOT what was written.{others}")
    else:
        lines.append(f"All {len(found.files):,} files are what was written.{others}")
    return lines
