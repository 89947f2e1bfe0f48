"""The places of a batch without its padding: rows in the order of their lengths, in steps that grow shorter as rows end."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# Leaving padding out costs copies, which are worth it if at most this share of the places is left.
WORTH_PACKING = 0.95


class Places:
    """The places of a batch, step by step; each step has the rows that have not ended, the longest first.

    >>> places = Places((3, 2), torch.tensor([1, 3]))
    >>> places.taken(torch.arange(6).view(3, 2, 1)).flatten().tolist()
    [1, 0, 3, 5]
    """

    def __init__(self, shape: Sequence[int], lengths: Tensor | None = None) -> None:
        """Those of a batch of shape (time, rows, ...) whose rows have these lengths, (rows,).

        All are taken if the lengths are not known or are those of other layers, and if few of them are padding.
        """
        time, rows = self._shape = shape[0], shape[1]
        # (places,) the row of each, where padding is left out.
        self.rows: Tensor | None = None
        # How many rows each step has.
        self.counts: Sequence[int] = [rows] * time
        if lengths is None or int(lengths.max()) != time or lengths.sum() > WORTH_PACKING * time * rows:
            return
        ordered, self._order = torch.sort(lengths.clamp(min=1), descending=True, stable=True)
        steps = torch.arange(time, device=lengths.device)[:, None]
        goes_on = ordered > steps  # (time, rows)
        counts = goes_on.sum(1)
        self.counts = counts.tolist()
        self.rows = self._order.expand_as(goes_on)[goes_on]
        firsts = counts.cumsum(0) - counts
        self._lasts = firsts[ordered - 1] + torch.arange(rows, device=lengths.device)
        self._places = steps.expand_as(goes_on)[goes_on] * rows + self.rows

    def steps(self, values: Tensor) -> tuple[Tensor, ...]:
        """Each step's part of values of shape (places, ...). Torch makes all parts at once, which is faster than one at a time."""
        return values.split_with_sizes(self.counts)

    def taken(self, values: Tensor) -> Tensor:
        """(time, rows, size) to (places, size), which may share memory."""
        flat = values.flatten(0, 1)
        return flat if self.rows is None else flat.index_select(0, self._places)

    def given_back(self, values: Tensor) -> Tensor:
        """(places, size) to (time, rows, size), with zeros where padding is; may share memory."""
        time, rows = self._shape
        if self.rows is not None:
            values = values.new_zeros(time * rows, values.shape[1]).index_copy_(0, self._places, values)
        return values.view(time, rows, -1)

    def lasts(self, values: Tensor) -> Tensor:
        """(places, size) to (rows, size): a copy of the last place of each row."""
        if self.rows is None:
            return values[-self.counts[0] :].clone()
        return self.by_row(values.index_select(0, self._lasts))

    def by_length(self, values: Tensor) -> Tensor:
        """(rows, size), from the order of the batch to that of the first step."""
        return values if self.rows is None else values.index_select(0, self._order)

    def by_row(self, values: Tensor) -> Tensor:
        """(rows, size), from the order of the first step to that of the batch."""
        return values if self.rows is None else torch.empty_like(values).index_copy_(0, self._order, values)

    def before(self, first: Tensor, values: Tensor) -> Tensor:
        """(places, size) what each place has from the step before it, given (rows, size) from before the first step, by length."""
        parts = zip(self.steps(values), self.counts[1:], strict=False)
        return torch.cat([first, *(part[:rows] for part, rows in parts)])
