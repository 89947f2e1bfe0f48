"""Rows of a batch put together by the unit that they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

# Of units whose places are rows of their own, those with at least this share of the most places are handled together.
ALIKE = 0.85


class _UnitGroup(NamedTuple):
    """Units that are handled together."""

    members: Tensor  # (units,)
    most: int  # how many rows the one with most has
    rows: Tensor | None  # (units * count,) their rows; None if these are all rows of the batch, in its order
    missing: Tensor | None  # which of these are in the place of a row that a unit does not have


class UnitRows:
    """Which rows belong to which unit. Units with equally many rows, or almost, are handled together."""

    def __init__(self, units: Tensor, number: int, alike: float = 1.0) -> None:
        """From the unit of each row, (rows,)."""
        self.units, self.number = units, number
        counts = torch.bincount(units, minlength=number)
        self._alone = len(units) == number and bool((counts == 1).all())  # each row is a unit
        # Units with equally many rows are next to each other, and so are the rows of a unit.
        of_count, members = torch.sort(counts, stable=True)
        if of_count[0] == of_count[-1] and bool((units[1:] >= units[:-1]).all()):
            self._groups = [_UnitGroup(members, int(of_count[0]), None, None)]
            return
        _, order = torch.sort(counts[units] * number + units, stable=True)
        firsts = of_count.cumsum(0) - of_count
        self._groups = []
        ordered, end = of_count.tolist(), number
        while end and ordered[end - 1]:
            begin = next(
                place for place, count in enumerate(ordered) if count >= max(1, alike * ordered[end - 1])
            )
            places = torch.arange(ordered[end - 1], device=units.device)
            rows = (firsts[begin:end, None] + places).clamp(max=len(units) - 1)
            missing = torch.nonzero((places >= of_count[begin:end, None]).flatten()).flatten()
            self._groups.append(
                _UnitGroup(
                    members[begin:end], len(places), order[rows.flatten()], missing if len(missing) else None
                )
            )
            end = begin

    @property
    def counts(self) -> list[int]:
        """The most rows that a unit of each group has."""
        return [group.most for group in self._groups]

    def of_places(self, rows: Tensor) -> UnitRows:
        """Places as rows of their own, from the row that each is in."""
        return UnitRows(self.units[rows], self.number, ALIKE)

    def groups(self, *factors: Tensor) -> Iterator[tuple[Tensor, list[Tensor]]]:
        """Some units (units,), and each factor as (units, places of all rows, ...) from (rows, places, ...), 0 where there are fewer."""
        for members, most, rows, missing in self._groups:
            chosen = [factor if rows is None else factor.index_select(0, rows) for factor in factors]
            if missing is not None:
                chosen = [each.index_fill_(0, missing, 0) for each in chosen]
            yield (
                members,
                [each.reshape(len(members), most * each.shape[1], *each.shape[2:]) for each in chosen],
            )

    def of_rows(self, of_units: Tensor) -> Tensor:
        """A value per row from one per unit."""
        return of_units[self.units]

    def sums(self, of_rows: Tensor) -> Tensor:
        """(rows, size) to (units, size)."""
        if self._alone:
            return of_rows
        return of_rows.new_zeros(self.number, *of_rows.shape[1:]).index_add_(0, self.units, of_rows)
