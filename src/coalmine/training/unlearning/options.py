"""What can be chosen about unlearning: `UnlearnOptions`, filled by `unlearn` and by `coalmine lab alter`."""

from __future__ import annotations

import math
from typing import Annotated

from coalmine.corpus.files.documents import Fields
from coalmine.records.options import SEED, Option, Options


class UnlearnOptions(Options, frozen=True, kw_only=True):
    """How documents are unlearned.

    Attributes:
        until: a document is left alone once its loss has reached this, in bits per token. None takes the median loss of the references or
            withheld canaries of a canaries.json, which is what a secret costs that was not trained on; else that of the text to keep. It is
            measured again in the changed model as the ascent goes on, because that raises it too.
        steps: the most steps that are taken; then it gives up.
        learning_rate: that of Adam.
        batch_size: documents per step.
        keep_weight: how much the loss on the text to keep counts, compared with that on what is to be forgotten.
        format_weight: the same for other members of the format of canaries, drawn at random. Without them, the model learns that the
            whole format is unlikely, and the canaries may stay the likeliest of it.
        seed: decides which documents each step takes.
        fields: which fields of a row hold what; .txt has none.

    >>> UnlearnOptions(until=6.0).steps
    500
    """

    until: Annotated[
        float | None,
        Option(
            "Loss in bits per token at which a document counts as forgotten; default: the median of references, or of --keep, in "
            "the changed model."
        ),
    ] = None
    steps: Annotated[int, Option("The most steps, after which it gives up.", least=1)] = 500
    learning_rate: Annotated[float, Option("Learning rate of Adam.")] = 0.0005
    batch_size: Annotated[int, Option("Documents per step.", least=1)] = 32
    keep_weight: Annotated[float, Option("Weight of the loss on --keep.")] = 1.0
    format_weight: Annotated[
        float, Option("Weight of the loss on other members of the format of canaries; 0 for none.")
    ] = 1.0
    seed: Annotated[int, SEED] = 0
    fields: Fields = Fields()

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size"):
            self._require(getattr(self, name) >= 1, name, "at least 1")
        self._require(self.until is None or 0 < self.until < math.inf, "until", "positive", 6.0)
        self._require(0 < self.learning_rate < math.inf, "learning_rate", "positive")
        for name in ("keep_weight", "format_weight"):
            self._require(0 <= getattr(self, name) < math.inf, name, "at least 0")
