"""Records of unlearning: how far the documents were forgotten, and what that cost elsewhere (unlearning.json)."""

from __future__ import annotations

from typing import Literal

import msgspec

from coalmine.models.reference.checkpoint import UNLEARNING_FILE, UNLEARNING_SCHEMA, ChangedModel
from coalmine.records.estimate import Bits, Count, Positive
from coalmine.training.changed_models import document_of_change
from coalmine.training.unlearning.documents import Compared
from coalmine.training.unlearning.options import UnlearnOptions


class LossChange(msgspec.Struct, frozen=True, kw_only=True):
    """The mean loss of some documents before and after, in bits per token; each document counts once."""

    documents: Positive
    before: Bits
    after: Bits


class Unlearning(ChangedModel, frozen=True, kw_only=True):
    """What `unlearn` made of a model; unlearning.json beside the new weights. It holds no text.

    >>> loss = LossChange(documents=3, before=0.5, after=4.5)
    >>> Unlearning(
    ...     options=UnlearnOptions(), model="m", weights_sha256_before="", documents_sha256="", data_sha256=None, files={},
    ...     until_bits_before=4.0, until_bits=4.2, until_from="references", compared=250, held=400, steps=12, ended="reached",
    ...     remembered_before=3, remembered_after=0, forget=loss
    ... ).finished
    True
    """

    schema: str = UNLEARNING_SCHEMA
    options: UnlearnOptions
    # The name of the directory of the model that was changed, and the SHA-256 of its weights.
    model: str
    weights_sha256_before: str
    # Of the file of what was unlearned, and of the text to keep.
    documents_sha256: str
    keep_sha256: str | msgspec.UnsetType = msgspec.UNSET
    # The loss at which a document counts as forgotten, in bits per token, in the model before and in the changed one, and where it comes
    # from; of canaries of several formats, each with a limit of its own, the mean.
    until_bits_before: Bits
    until_bits: Bits
    until_from: Literal["given"] | Compared
    # How many texts that is the median of, and how many other members of the formats were descended on.
    compared: Count
    held: Count
    # How many were taken, and why no more: every document reached the limit, or there were no steps left.
    steps: Count
    ended: Literal["reached", "gave up"]
    # How many documents had a lower loss than the limit before and after.
    remembered_before: Count
    remembered_after: Count
    forget: LossChange
    keep: LossChange | msgspec.UnsetType = msgspec.UNSET

    @property
    def finished(self) -> bool:
        """Whether every document reached the loss at which it counts as forgotten."""
        return self.ended == "reached"


UNLEARNINGS = document_of_change(
    Unlearning,
    UNLEARNING_FILE,
    "unlearning",
)
