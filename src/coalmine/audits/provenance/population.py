"""Reference users that suspects are compared with by `rmia`, and the shadow models that were not trained on them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.models.protocols import FloatArray, IntArray


class ShadowSets(NamedTuple):
    """The shadows that each reference user is compared with: those that were not trained on that user.

    Attributes:
        sets: the different sets, by the places of the shadows.
        of_users: which of them is that of each user; -1 for one whom all shadows were trained on, and who cannot be compared.

    >>> ShadowSets.of(np.array([[True, False], [False, True], [True, True], [True, False]]))
    ShadowSets(sets=((0,), (1,)), of_users=array([ 1,  0, -1,  1]))
    """

    sets: tuple[tuple[int, ...], ...]
    of_users: IntArray

    @classmethod
    def of(cls, trained_on: NDArray[np.bool_]) -> ShadowSets:
        """From (users, shadows): whether each shadow was trained on each user."""
        left = [tuple(np.flatnonzero(~row).tolist()) for row in trained_on]
        sets = tuple(sorted({one for one in left if one}))
        places = {one: place for place, one in enumerate(sets)}
        return cls(sets, np.array([places.get(one, -1) for one in left], dtype=np.int64))


class ReferencePopulation(NamedTuple):
    """What was found about reference users, who are not in the training data of the target.

    Attributes:
        ratios: log2 likelihood ratios per token, each to the shadows that were not trained on that user.
        sets: which set of shadows that is; a suspect is compared with each user by the ratio to the same shadows.
    """

    ratios: FloatArray
    sets: IntArray

    @classmethod
    def of(cls, rmia_bits: FloatArray, sets: ShadowSets) -> ReferencePopulation:
        """From the ratios of reference users to every set, of shape (users, sets); users without a ratio are left out."""
        there = np.flatnonzero(sets.of_users >= 0)
        own = rmia_bits[there, sets.of_users[there]]
        known = ~np.isnan(own)
        return cls(own[known], sets.of_users[there][known])

    @classmethod
    def of_nobody(cls) -> ReferencePopulation:
        """Where there are no reference users or no shadows."""
        return cls(np.empty(0), np.empty(0, dtype=np.int64))
