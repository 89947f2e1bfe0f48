"""The resolution of a model: how far apart log-perplexities must be for their order to be known, measured by scoring in several ways."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.errors import ModelOutputError
from coalmine.models.protocols import TextScorer
from coalmine.models.resolution import UP_TO_BITS, allowed_bits
from coalmine.records.estimate import Bits, Count, Share
from coalmine.search.walks.enumeration import walked_costs
from coalmine.search.walks.members import Members
from coalmine.search.walks.thresholds import STEP_BITS

# Texts that are scored both in a batch and alone.
ASKED_ALONE = 4
# The order of two costs is known where they differ by this many times the largest difference seen: both costs have an error, the
# worst of a few texts is not the worst of all, and ways of scoring that agree share the loss of the precision itself.
MARGIN = 4.0
# The least resolution, as a share of what the precision allows, where the ways of scoring agree by chance.
LEAST_SHARE = 1 / 640
# Below this many bits the rounding of a log-perplexity no longer shrinks with it.
LEAST_SCALE_BITS = 8.0


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """The order of log-perplexities of about c bits is known where they differ by more than `relative` * c, and than `least_bits`."""

    relative: Share
    least_bits: Bits
    # The largest difference between two ways of scoring one text, and how many texts were scored; None for a server, whose
    # resolution was measured when it was connected.
    measured_bits: float | None
    texts: Count

    def at(self, bits: ArrayLike) -> NDArray[np.float64]:
        """The resolution (bits) at these costs (bits)."""
        return np.asarray(np.maximum(self.least_bits, self.relative * np.asarray(bits, dtype=np.float64)))


def measure_resolution(
    members: Members, texts: Sequence[str], names: Sequence[str], scored: NDArray[np.float64]
) -> Resolution:
    """Compare texts that were scored in a batch with the same texts scored alone and, where that is possible, token by token.

    `scored` has their log-perplexities in bits. Raises ModelOutputError where two answers differ by more than rounding explains.
    """
    model = members.model
    declared = model.resolution_bits
    if isinstance(model, TextScorer):
        return Resolution(
            relative=0.0, least_bits=max(declared, STEP_BITS), measured_bits=None, texts=len(texts)
        )
    some = range(0, len(texts), max(1, -(-len(texts) // ASKED_ALONE)))
    spread = np.zeros(len(texts))
    for place in some:
        alone = members.score([texts[place]], [names[place]])
        spread[place] = abs(float(alone[0] - scored[place]))
    if members.obstacle is None:
        frontier = members.frontier("a walk", "score the texts instead")
        numbers = [frontier.tree.index_of(text) for text in texts]
        together = walked_costs(frontier, numbers)
        spread = np.maximum(spread, np.abs(together - scored))
        for place in some:
            walked = float(walked_costs(frontier, [numbers[place]])[0])
            spread[place] = max(spread[place], abs(walked - together[place]), abs(walked - scored[place]))
    check_same(members, names, spread, scored)
    relative = MARGIN * float((spread / np.maximum(scored, LEAST_SCALE_BITS)).max(initial=0.0))
    most = declared / UP_TO_BITS
    relative = min(max(relative, most * LEAST_SHARE), most)
    return Resolution(
        relative=relative,
        least_bits=max(relative * LEAST_SCALE_BITS, STEP_BITS),
        measured_bits=float(spread.max(initial=0.0)),
        texts=len(texts),
    )


def check_same(
    members: Members,
    names: Sequence[str],
    differences: NDArray[np.float64],
    bits: NDArray[np.float64],
    allowed: NDArray[np.float64] | None = None,
) -> None:
    """Raise ModelOutputError if two answers about a text of this many bits differ by more than rounding explains."""
    most = (allowed_bits(members.model.resolution_bits, bits) if allowed is None else allowed) + STEP_BITS
    wrong = np.flatnonzero(differences > most)
    if len(wrong):
        place = int(wrong[0])
        raise ModelOutputError(
            f"the model {members.model.name!r} scores {names[place]} differently when asked a second time, by "
            f"{differences[place]:.2g} bits where its resolution allows {most[place]:.2g}; "
            "its adapter does not conform: run coalmine.models.conformance.check_model on it"
        )
