"""What layers record for ghost clipping during a backward pass: the factors of their weights' gradients, row by row."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from coalmine.training.private.clipping.loop import exact


class UnfitError(Exception):
    """Ghost clipping cannot be used for this network or this pass; the message is a reason for the user, and a loop takes over."""


class Product(NamedTuple):
    """The gradient of a row is the sum over places of the outer product of left and right."""

    left: Tensor  # (rows, places, height)
    right: Tensor  # (rows, places, width)
    # Where places were left out, each of the others is a row of its own here, and this is the row that it comes from.
    rows: Tensor | None = None

    def apart(self) -> tuple[Tensor, Tensor, Tensor]:
        """The same with each place as a row of its own: left, right, and the rows that they come from."""
        number, places = self.left.shape[:2]
        rows = torch.arange(number, device=self.left.device) if self.rows is None else self.rows
        left, right = self.left.flatten(0, 1)[:, None], self.right.flatten(0, 1)[:, None]
        return left, right, rows.repeat_interleave(places)


class Lookup(NamedTuple):
    """The gradient of a row is, for each place, a vector at the id that was looked up there."""

    ids: Tensor  # (rows, places)
    gradients: Tensor  # (rows, places, width)


class Tape:
    """The factors of all gradients of one backward pass. A weight that is used several times has the sum of what was recorded."""

    def __init__(self, rows: int, lengths: Tensor | None = None) -> None:
        self.rows = rows
        # (rows,) after how many places the padding of each row begins, if that is known.
        self.lengths = lengths
        # Weights that are multiplied by the same left side are recorded together, as one matrix with their columns side by side.
        self.products: dict[tuple[nn.Parameter, ...], Product] = {}
        self.lookups: dict[nn.Parameter, Lookup] = {}
        self.wholes: dict[nn.Parameter, Tensor] = {}  # (rows, *shape of the parameter)

    def by_row(self, values: Tensor, layer: nn.Module) -> Tensor:
        """(rows, ..., width) to (rows, places, width)."""
        if values.dim() < 2 or values.shape[0] != self.rows:
            raise UnfitError(
                f"a layer {type(layer).__name__} gets values of shape {tuple(values.shape)}, and not one row for each loss"
            )
        return values.reshape(self.rows, -1, values.shape[-1])

    def add_product(
        self, weights: tuple[nn.Parameter, ...], left: Tensor, right: Tensor, rows: Tensor | None = None
    ) -> None:
        """Record a use of matrices whose gradients, side by side, are the sum over places of left times right.

        Args:
            weights: their columns are those of right, in this order; their sizes without the first dimension are flattened.
            left: (rows, places, height)
            right: (rows, places, width)
            rows: (places of all rows,) which row each comes from, if left and right have a row of one place for each of them.
        """
        product = Product(exact(left.detach()), exact(right.detach()), rows)
        before = self.products.get(weights)
        if before is None:
            self.products[weights] = product
        elif before.rows is None and rows is None:
            left, right = (torch.cat(both, dim=1) for both in zip(before[:2], product[:2], strict=True))
            self.products[weights] = Product(left, right)
        else:
            left, right, rows = (
                torch.cat(both) for both in zip(before.apart(), product.apart(), strict=True)
            )
            self.products[weights] = Product(left, right, rows)

    def add_lookup(self, weight: nn.Parameter, ids: Tensor, gradients: Tensor) -> None:
        """Record rows of a matrix that were looked up, (rows, places), and the gradients of what was found, (rows, places, width)."""
        gradients = exact(gradients.detach())
        before = self.lookups.get(weight)
        if before is not None:
            ids, gradients = (
                torch.cat([before.ids, ids], dim=1),
                torch.cat([before.gradients, gradients], dim=1),
            )
        self.lookups[weight] = Lookup(ids, gradients)

    def add_whole(self, weight: nn.Parameter, gradients: Tensor) -> None:
        """Record the gradient of each row, (rows, *shape of the weight): for weights of one dimension, where it is small."""
        gradients = exact(gradients.detach())
        before = self.wholes.get(weight)
        self.wholes[weight] = gradients if before is None else before + gradients
