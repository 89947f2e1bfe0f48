"""`check_survival` of batches: how many copies of each canary reach the loss, in what a model will be trained on."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import Any

from coalmine.corpus.planting.manifest import CanarySet, as_canary_set
from coalmine.corpus.survival.counting import CopyCounter, listed
from coalmine.corpus.survival.results import Survival


def check_survival(
    canaries: CanarySet | str | os.PathLike[str], batches: Iterable[Any], tokenizer: Any
) -> Survival:
    """How many copies of each canary reach the loss, in one pass over what the model will be trained on.

    A copy reaches the loss if all tokens that hold a part of its holes do, that is, of the secret. Labels of the text around
    the holes do not matter: the model still reads a prompt that is left out of the loss.

    A copy is found by its text, however it is tokenized: as a part of the bytes that the tokens of a row spell. So a leading
    space, a newline or a neighbor that merges with its first token hides nothing. If the tokenizer changes the text (such as
    upper case), the changed text is searched for. Problems are warnings and never stop a training.

    Args:
        canaries: the manifest of the planted corpus, or the set of canaries.
        batches: one epoch of examples or batches, each a mapping with `input_ids` and, where there are any, `labels` (aligned
            with `input_ids`, as transformers has them; -100 is left out of the loss), `attention_mask` and `position_ids`; lists or
            tensors. Without labels every token that is attended to is taken to be in the loss. Where positions begin at 0 again, another
            sequence begins.
        tokenizer: the fast tokenizer of the model. For canaries of chat data it has the chat template.

    >>> examples = trainer.get_train_dataloader()  # doctest: +SKIP
    >>> print(check_survival("planted/canaries.json", examples, tokenizer))  # doctest: +SKIP
    336 of 336 copies of 48 planted canaries reach the loss (1,204 rows, 77,056 tokens, 75,852 in the loss).
    """
    counter = CopyCounter(as_canary_set(canaries), tokenizer)
    for batch in batches:
        counter.add_batch(batch)
    found = counter.survival()
    warn_of_never(found)
    return found


def warn_of_never(found: Survival) -> None:
    """Warn of canaries that never reach the loss; a training can go on without them."""
    if found.never:
        warnings.warn(f"canaries never reach the loss: {listed(found.never)}", stacklevel=3)
