"""Ablation: how fast a model forgets frequent and rare words of a text when some of its hidden units are silenced.

Figure 7 of Auditing Data Provenance in Text-Generation Models (Song and Shmatikov, 2019, arXiv:1811.00513): accuracy on rare words drops
faster where a model memorized them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from coalmine.audits.provenance.asking import FrequencyRanks
from coalmine.audits.provenance.results import AblationPoint
from coalmine.audits.provenance.users import UserText
from coalmine.audits.provenance.views import look, view_of
from coalmine.errors import NotMeasurableError
from coalmine.models.inference.incremental import StatefulModel
from coalmine.models.inference.pairs import PairNetworkModel
from coalmine.models.protocols import Model
from coalmine.randomness import arrays
from coalmine.visible import visible

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
# The words that count as frequent: a tenth of the vocabulary, as in the paper.
FREQUENT = 0.1


def ablation_curve(
    model: Model,
    texts: Sequence[UserText],
    frequencies: FrequencyRanks,
    shares: Sequence[float] = SHARES,
    *,
    seed: int = 0,
) -> tuple[AblationPoint, ...]:
    """The accuracy on frequent and on other words of some texts, for each share of the last hidden layer that is silenced.

    The units are chosen at random, those of a smaller share among those of a larger. A NotMeasurableError for a model without a last hidden
    layer of its own.
    """
    output = _last_layer(model)
    order = arrays(seed, "provenance", "ablation").permutation(output.in_features)
    return tuple(
        _point(model, order[: round(share * len(order))], share, texts, frequencies) for share in shares
    )


def _point(
    model: Model, units: Any, share: float, texts: Sequence[UserText], frequencies: FrequencyRanks
) -> AblationPoint:
    import torch

    silenced: Any = copy.deepcopy(model)
    with torch.no_grad():
        # What a silent unit would add to the logits is nothing.
        _last_layer(silenced).weight[:, torch.from_numpy(units.copy())] = 0.0
    right, rare = [], []
    for view in look(silenced, view_of(silenced), texts):
        if view is not None and view.tokens is not None:
            right.append(view.ranks == 0)
            rare.append(frequencies.shares[view.tokens] >= FREQUENT)
    hits, is_rare = np.concatenate(right), np.concatenate(rare)
    return AblationPoint(
        ablated=share,
        frequent=float(hits[~is_rare].mean()) if (~is_rare).any() else None,
        rare=float(hits[is_rare].mean()) if is_rare.any() else None,
    )


def _last_layer(model: Model) -> Any:
    """The layer that turns hidden numbers into logits."""
    from torch import nn

    layer = (
        getattr(model.network, "output", None)
        if isinstance(model, StatefulModel | PairNetworkModel)
        else None
    )
    if not isinstance(layer, nn.Linear):
        raise NotMeasurableError(
            f"{visible(model.name)} has no last layer of hidden units that can be silenced; use a model of `coalmine train`"
        )
    return layer
