"""Rows of a batch put together by the unit that they belong to."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


class UnitRows:
    """Which rows belong to which unit. Units with equally many rows are handled together."""

    def __init__(self, units: Tensor, number: int) -> None:
        self.units, self.number = units, number
        counts = torch.bincount(units, minlength=number)
        self._alone = len(units) == number and bool((counts == 1).all())  # each row is a unit
        self._groups: list[tuple[Tensor, Tensor | None]] = []
        for count in sorted(set(counts.tolist()) - {0}):
            members = torch.nonzero(counts == count).flatten()
            rows = torch.nonzero(counts[units] == count).flatten()
            self._groups.append((members, None if len(rows) == len(units) else rows))

    def groups(self, *factors: Tensor) -> Iterator[tuple[Tensor, list[Tensor]]]:
        """Some units (units,), and each factor as (units, places of all rows, ...) from (rows, places, ...)."""
        for members, rows in self._groups:
            chosen = factors if rows is None else [factor.index_select(0, rows) for factor in factors]
            yield members, [each.reshape(len(members), -1, *each.shape[2:]) for each in chosen]

    def of_rows(self, of_units: Tensor) -> Tensor:
        """A value per row from one per unit."""
        return of_units[self.units]

    def sums(self, of_rows: Tensor) -> Tensor:
        """(rows, size) to (units, size)."""
        if self._alone:
            return of_rows
        return of_rows.new_zeros(self.number, *of_rows.shape[1:]).index_add_(0, self.units, of_rows)
