"""Norms of per-unit gradients from their factors, and the clipped sums, without a gradient of each unit where that costs more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from coalmine.training.private.clipping.loop import add_gradient
from coalmine.training.private.clipping.tape import Lookup, Product, Tape, UnfitError
from coalmine.training.private.clipping.units import UnitRows

# The most numbers of a block of Gram matrices or of whole gradients.
BLOCK = 1 << 24
# The most numbers of whole gradients that are kept until it is known by how much to scale them.
KEPT = 1 << 26
# What writing and reading a number of a whole gradient costs, in multiplications of a matrix product.
WRITING = 24


class Gradient(Protocol):
    """The gradients of all units by one weight, or by several that share a factor."""

    @property
    def weights(self) -> Sequence[nn.Parameter]:
        """The weights."""

    def squares(self) -> Tensor:
        """(units,) their squared norms."""

    def add_scaled(self, scales: Tensor) -> None:
        """Add the sum of all, each multiplied by its scale, (units,), to the gradients of the weights."""


def gradients_on(tape: Tape, rows: UnitRows) -> Iterator[Gradient]:
    """The gradients that a backward pass recorded; every pair of them is of different weights."""
    ways = [weight for weights in tape.products for weight in weights]
    ways += [*tape.lookups, *tape.wholes]
    tied = {weights[0] for weights in tape.products if len(weights) == 1} & set(tape.lookups)
    if len(ways) - len(tied) > len({id(weight) for weight in ways}):
        raise UnfitError("a weight is used in several ways")
    kept = KEPT
    for weights, product in tape.products.items():
        found = ProductGradient(weights, product, rows, kept)
        kept -= found.kept
        if weights[0] in tied:
            yield TiedGradient(found, LookupGradient(weights[0], tape.lookups[weights[0]], rows))
        else:
            yield found
    for weight, lookup in tape.lookups.items():
        if weight not in tied:
            yield LookupGradient(weight, lookup, rows)
    for weight, of_rows in tape.wholes.items():
        yield WholeGradient(weight, of_rows, rows)


class WholeGradient:
    """A gradient that is known for each row."""

    def __init__(self, weight: nn.Parameter, of_rows: Tensor, rows: UnitRows) -> None:
        self.weights, self._of_units = (weight,), rows.sums(of_rows)

    def squares(self) -> Tensor:
        """(units,) their squared norms."""
        return self._of_units.square().flatten(1).sum(1)

    def add_scaled(self, scales: Tensor) -> None:
        """Add the scaled sum to the weight's gradient."""
        add_gradient(self.weights[0], torch.tensordot(scales.to(self._of_units), self._of_units, dims=1))


class LookupGradient:
    """The gradients of an embedding: those of the same id are summed within a unit, and only they overlap."""

    def __init__(self, weight: nn.Parameter, lookup: Lookup, rows: UnitRows) -> None:
        self.weights, self.lookup, self._rows = (weight,), lookup, rows
        size = weight.shape[0]
        keys = (rows.units[:, None] * size + lookup.ids).flatten()
        distinct, place = torch.unique(keys, return_inverse=True)
        self._unit, self._id = distinct // size, distinct % size
        flat = lookup.gradients.reshape(len(keys), -1)
        self._sums = flat.new_zeros(len(distinct), flat.shape[1]).index_add_(0, place, flat)

    def squares(self) -> Tensor:
        """(units,) their squared norms."""
        of_sums = self._sums.square().sum(1)
        return of_sums.new_zeros(self._rows.number).index_add_(0, self._unit, of_sums)

    def add_scaled(self, scales: Tensor) -> None:
        """Add the scaled sum to the weight's gradient."""
        scaled = self._sums * scales.to(self._sums)[self._unit, None]
        [weight] = self.weights
        add_gradient(weight, scaled.new_zeros(weight.shape).index_add_(0, self._id, scaled))


class ProductGradient:
    """The gradients of matrices: sums over places of left times right.

    The squared norm of one is the sum over pairs of places of (left . left) (right . right), from
    "Efficient Per-Example Gradient Computations" (Goodfellow, 2015, arXiv:1510.01799) and, for sequences, "Large Language Models Can Be
    Strong Differentially Private Learners" (Li, Tramer, Liang and Hashimoto, 2021, arXiv:2110.05679). Where there are many places,
    the gradients themselves are smaller than these Gram matrices; they are kept if they fit, so that the sum needs no product.
    """

    def __init__(
        self, weights: Sequence[nn.Parameter], product: Product, rows: UnitRows, may_keep: int
    ) -> None:
        self.weights, self.product = weights, product
        self.rows = rows if product.rows is None else rows.of_places(product.rows)
        _, places, height = product.left.shape
        width = product.right.shape[2]
        size = rows.number * height * width
        self._keeps = size <= may_keep
        self._whole = [
            _whole_is_cheaper(count * places, height, width, self._keeps) for count in self.rows.counts
        ]
        self._keeps = self._keeps and all(self._whole)
        # How many numbers are kept.
        self.kept = size if self._keeps else 0
        self._gradients: list[tuple[Tensor, Tensor]] = []

    def squares(self) -> Tensor:
        """(units,) their squared norms."""
        found = self.product.left.new_zeros(self.rows.number)
        groups = self.rows.groups(self.product.left, self.product.right)
        for whole, (members, (left, right)) in zip(self._whole, groups, strict=True):
            places = left.shape[1]
            size = left.shape[2] * right.shape[2] if whole else places * places
            step = max(1, BLOCK // size)
            for begin in range(0, len(members), step):
                block = slice(begin, begin + step)
                found[members[block]] = self._squares(members[block], left[block], right[block], whole)
        return found.clamp(min=0)

    def _squares(self, members: Tensor, left: Tensor, right: Tensor, whole: bool) -> Tensor:
        if not whole:
            return _dots(left @ left.mT, right @ right.mT)
        gradients = left.mT @ right
        if self._keeps:
            self._gradients.append((members, gradients))
        lengths: Tensor = torch.linalg.vector_norm(gradients, dim=(1, 2))
        return lengths.square()

    def add_scaled(self, scales: Tensor) -> None:
        """Add the scaled sum to the gradients of the weights."""
        left, right, _ = self.product
        if self._keeps:
            total = sum(
                torch.tensordot(scales.to(gradients)[members], gradients, dims=1)
                for members, gradients in self._gradients
            )
        else:
            of_rows = self.rows.of_rows(scales.to(left))[:, None, None]
            if right.shape[2] < left.shape[2]:
                right = right * of_rows
            else:
                left = left * of_rows
            total = _summed_product(left, right)
        widths = [weight[0].numel() for weight in self.weights]
        for weight, part in zip(self.weights, total.split(widths, dim=1), strict=True):
            add_gradient(weight, part.reshape(weight.shape))


class TiedGradient:
    """The gradients of a matrix that is looked up in and multiplied by, as of tied input and output embeddings."""

    def __init__(self, multiplied: ProductGradient, looked_up: LookupGradient) -> None:
        self._multiplied, self._looked_up = multiplied, looked_up
        self.weights = looked_up.weights

    def squares(self) -> Tensor:
        """(units,) their squared norms, with the inner product of the two parts."""
        found = self._multiplied.squares() + self._looked_up.squares()
        product, lookup = self._multiplied.product, self._looked_up.lookup
        groups = self._multiplied.rows.groups(product.left, product.right, *lookup)
        for members, (left, right, ids, gradients) in groups:
            at_ids = left.gather(2, ids[:, None].expand(-1, left.shape[1], -1))  # (units, places, looked up)
            alike = right @ gradients.mT
            found[members] += 2 * _dots(at_ids, alike)
        return found.clamp(min=0)

    def add_scaled(self, scales: Tensor) -> None:
        """Add the scaled sum to the weight's gradient."""
        self._multiplied.add_scaled(scales)
        self._looked_up.add_scaled(scales)


def _whole_is_cheaper(places: int, height: int, width: int, kept: bool) -> bool:
    """Whether a gradient costs less than two Gram matrices, counted in multiplications.

    With Gram matrices, the sum is one more product; with gradients that are kept, it is not.

    >>> _whole_is_cheaper(64, 800, 400, kept=True), _whole_is_cheaper(512, 800, 400, kept=True)
    (False, True)
    """
    size = height * width
    grams = places * places * (height + width) + places * size
    return size * (places * (1 if kept else 2) + WRITING) < grams


def _dots(one: Tensor, other: Tensor) -> Tensor:
    """(units,) the inner product of what each unit has in one and in other."""
    found: Tensor = torch.linalg.vecdot(one.flatten(1), other.flatten(1))
    return found


def _summed_product(left: Tensor, right: Tensor) -> Tensor:
    """(rows, places, height) and (rows, places, width) to (height, width), without a copy if left lies in memory place by place."""
    if left.transpose(0, 1).is_contiguous():
        left, right = left.transpose(0, 1), right.transpose(0, 1)
    left, right = left.flatten(0, 1), right.flatten(0, 1)
    # The larger one last, which is faster for some sizes and slower for none.
    return (right.mT @ left).mT if right.shape[1] < left.shape[1] else left.mT @ right
