"""Log-perplexities of given texts, each scored as training saw it: after the model's document context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.engines.apart import ask_apart
from coalmine.errors import CoalmineError, InputError, NoNumberError, NotMeasurableError
from coalmine.models.protocols import (
    LimitedScorer,
    Model,
    RemoteModel,
    Scorer,
    SequenceScore,
    TextScorer,
    text_sequence,
)

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

    Each text is scored as a whole document, after the model's document context. A score that is not finite is a NoNumberError
    that names the text, by `names` if they are given; `score_each` leaves such texts out instead.

    >>> from coalmine import ScriptedModel
    >>> score_texts(ScriptedModel("abcd"), ["ab", "abcd"]).tolist()
    [4.0, 8.0]
    """
    if isinstance(texts, str):
        raise InputError("score_texts takes a list of texts, got one text; put it in a list")
    scorer = _scorer(model)
    scores = np.empty(len(texts), dtype=np.float64)
    for start in range(0, len(texts), TEXTS_AT_A_TIME):
        part = texts[start : start + TEXTS_AT_A_TIME]
        answers = _answers(scorer, part, None if sources is None else sources[start : start + len(part)])
        scores[start : start + len(part)] = [answer.log_perplexity_bits for answer in answers]
    wrong = np.flatnonzero(~np.isfinite(scores))
    if len(wrong):
        name = f"text {wrong[0]}" if names is None else names[wrong[0]]
        raise _no_number(model, name, float(scores[wrong[0]]))
    return scores


class Scored(NamedTuple):
    """Log-perplexities of texts (bits), NaN where there is none; and why not, by the place of the text.

    `least` has what a text without one costs at least, by its place, where that is known.
    """

    bits: NDArray[np.float64]
    problems: dict[int, CoalmineError]
    least: dict[int, float]


def score_each(model: Model, texts: Sequence[str], *, sources: Sequence[str] | None = None) -> Scored:
    """The same as `score_texts`, but a text that the model gives no finite number for, or fails at, does not stop the others.

    >>> from coalmine import ScriptedModel
    >>> found = score_each(ScriptedModel("abcd"), ["ab", "x", "abcd"])
    >>> found.bits.tolist(), list(found.problems)
    ([4.0, nan, 8.0], [1])
    """
    scorer = _scorer(model)
    found = Scored(np.full(len(texts), np.nan), {}, {})

    def ask(places: Sequence[int]) -> list[SequenceScore]:
        own = [texts[place] for place in places]
        return _answers(scorer, own, None if sources is None else [sources[place] for place in places])

    for start in range(0, len(texts), TEXTS_AT_A_TIME):
        places = range(start, min(start + TEXTS_AT_A_TIME, len(texts)))
        # A server that fails does so for other reasons than a text, and is not asked twice about it.
        answers, problems = (ask(places), {}) if isinstance(model, RemoteModel) else ask_apart(ask, places)
        for place, answer in zip(places, answers, strict=True):
            if answer is not None:
                found.bits[place] = answer.log_perplexity_bits
        found.problems.update({start + place: problem for place, problem in problems.items()})
    missing = [
        place for place in np.flatnonzero(~np.isfinite(found.bits)).tolist() if place not in found.problems
    ]
    limited = isinstance(model, LimitedScorer)
    for place in missing:
        value = float(found.bits[place])
        found.problems[place] = _not_listed(model) if limited else _no_number(model, "a text", value)
    found.bits[~np.isfinite(found.bits)] = np.nan
    if isinstance(model, LimitedScorer):
        bounds = model.least_bits([texts[place] for place in missing]).tolist()
        found.least.update(zip(missing, bounds, strict=True))
    return found


def _scorer(model: Model) -> Scorer:
    if not isinstance(model, Scorer):
        raise NotMeasurableError(f"{getattr(model, 'name', model)!r} does not give the probability of a text")
    return model


def _no_number(model: Model, name: str, bits: float) -> NoNumberError:
    return NoNumberError(
        f"the model {model.name!r} gave {bits} as the log-perplexity of {name}; no conclusion is possible: check the weights"
    )


def _not_listed(model: Model) -> NoNumberError:
    return NoNumberError(
        f"the model {model.name!r} lists only its likeliest tokens, and one of the text is not among them, so its log-perplexity is not "
        "known"
    )


def _answers(model: Scorer, texts: Sequence[str], sources: Sequence[str] | None) -> list[SequenceScore]:
    if sources is not None:
        pairs = zip(texts, sources, strict=True)
        return model.score([text_sequence(model, text, source) for text, source in pairs])
    if isinstance(model, TextScorer):
        return model.score_text(texts)
    return model.score([text_sequence(model, text) for text in texts])
