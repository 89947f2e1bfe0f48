"""Log-perplexities of given texts, each scored as training saw it: after the model's document context."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coalmine.errors import InputError, ModelOutputError, NotMeasurableError
from coalmine.models.protocols import Model, Scorer, SequenceScore, TextScorer, text_sequence

# Texts passed to the model at a time; it makes its own batches of these, and shares their common beginnings.
TEXTS_AT_A_TIME = 8192


def score_texts(
    model: Model,
    texts: Sequence[str],
    names: Sequence[str] | None = None,
    *,
    sources: Sequence[str] | None = None,
) -> NDArray[np.float64]:
    """The log-perplexity of each text in bits, in the order given, each given its source where there are `sources`.

    Each text is scored as a whole document, after the model's document context. A score that is not finite is a ModelOutputError
    that names the text, by `names` if they are given.

    >>> from coalmine import ScriptedModel
    >>> score_texts(ScriptedModel("abcd"), ["ab", "abcd"]).tolist()
    [4.0, 8.0]
    """
    if isinstance(texts, str):
        raise InputError("score_texts takes a list of texts, got one text; put it in a list")
    if not isinstance(model, Scorer):
        raise NotMeasurableError(f"{getattr(model, 'name', model)!r} does not give the probability of a text")
    scores = np.empty(len(texts), dtype=np.float64)
    for start in range(0, len(texts), TEXTS_AT_A_TIME):
        part = texts[start : start + TEXTS_AT_A_TIME]
        answers = _answers(model, part, None if sources is None else sources[start : start + len(part)])
        scores[start : start + len(part)] = [answer.log_perplexity_bits for answer in answers]
    wrong = np.flatnonzero(~np.isfinite(scores))
    if len(wrong):
        place = int(wrong[0])
        name = names[place] if names is not None else f"text {place}"
        raise ModelOutputError(
            f"the model {model.name!r} gave {scores[place]} as the log-perplexity of {name}; no conclusion is possible: check the "
            "weights"
        )
    return scores


def _answers(model: Scorer, texts: Sequence[str], sources: Sequence[str] | None) -> list[SequenceScore]:
    if sources is not None:
        pairs = zip(texts, sources, strict=True)
        return model.score([text_sequence(model, text, source) for text, source in pairs])
    if isinstance(model, TextScorer):
        return model.score_text(texts)
    return model.score([text_sequence(model, text) for text in texts])
