"""Mutants that no test can catch, or that none needs to, each with its reason: `explained.toml`.

An entry names the line as it is written and the change, and neither by number: once the line is changed, the entry matches
nothing and has to go.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mutants.places import Mutant

FILE = Path(__file__).with_name("explained.toml")
# Equivalent: no input tells them apart. Performance: the same answers, sooner or later. Tightness: a choice that is made before the
# data are looked at, so that any is valid, and a limit is a little wider or narrower. Wording: what people read says the same.
REASONS = ("equivalent", "performance", "tightness", "wording")


@dataclass(frozen=True)
class Explanation:
    """Why a mutant may survive; `line` is the text of its line, with the changed part between « and »."""

    file: str
    line: str
    new: str
    reason: str
    why: str

    def __post_init__(self) -> None:
        if self.reason not in REASONS:
            raise ValueError(
                f"the reason must be one of {', '.join(REASONS)}, got {self.reason!r} for {self.line!r}"
            )


def read_explanations(path: Path = FILE) -> list[Explanation]:
    """All entries of the file."""
    return [Explanation(**entry) for entry in tomllib.loads(path.read_text("utf-8")).get("mutant", [])]


def explained(mutant: Mutant, explanations: Iterable[Explanation]) -> Explanation | None:
    """The entry that explains a mutant."""
    named = (mutant.file, mutant.marked_line, mutant.new)
    return next((one for one in explanations if (one.file, one.line, one.new) == named), None)


def stale(explanations: Iterable[Explanation], mutants: Iterable[Mutant]) -> list[Explanation]:
    """Entries for lines that are no longer there."""
    there = {(mutant.file, mutant.marked_line, mutant.new) for mutant in mutants}
    return [one for one in explanations if (one.file, one.line, one.new) not in there]
