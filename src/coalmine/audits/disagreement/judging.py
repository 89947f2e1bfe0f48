"""From what two models say about documents to those that are flagged."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.disagreement.halves import Halves
from coalmine.audits.disagreement.options import CrosscheckOptions
from coalmine.audits.disagreement.scoring import Scores
from coalmine.errors import NotMeasurableError
from coalmine.models.protocols import FloatArray, IntArray
from coalmine.statistics.disagreement import beyond_chance, stronger


class JudgedDocuments(NamedTuple):
    """Which documents are flagged, and why.

    Attributes:
        scores: (documents,); in bits, for "mean" in bits per character, and for "share" a share. Positive where the model that was trained
            on a document is ahead of the other, and negative where the other one is; of two models of which that is not known, never
            negative. NaN for a document that was not read.
        threshold: the least score that is beyond chance; None where no score is, or where it is not known what chance does.
        beyond: how many documents have it; None where it is not known what chance does.
        flagged: the places of the documents that are flagged, the strongest first.
    """

    scores: FloatArray
    threshold: float | None
    beyond: int | None
    flagged: IntArray


def judge(found: Scores, halves: Halves | None, options: CrosscheckOptions) -> JudgedDocuments:
    """Flag documents; without halves, the two models are the user's, and nobody knows which was trained on what."""
    if options.statistic in {"share", "span"} and (found.tokens < 0).all():
        raise NotMeasurableError(
            "the two models cut texts into different tokens, so that no span can be compared; choose the statistic mean or total"
        )
    scores = _scores(found, halves, options)
    read = ~np.isnan(scores)
    if not read.any():
        raise NotMeasurableError(
            "neither document could be read by both models, so there is nothing to compare; check the models and the corpus"
        )
    threshold: float | None = None
    beyond: int | None = None
    candidates = read & (scores > 0)
    if halves is not None:
        threshold = beyond_chance(_of_groups(scores, halves), options.fdr)
        candidates &= scores >= (math.inf if threshold is None else threshold)
        beyond = int(candidates.sum())
    most = max(1, math.floor(options.share * int(read.sum())))
    places = np.flatnonzero(candidates)
    flagged = places[np.argsort(-scores[places], kind="stable")][:most]
    return JudgedDocuments(scores, threshold, beyond, flagged)


def _scores(found: Scores, halves: Halves | None, options: CrosscheckOptions) -> FloatArray:
    """The statistic of each document."""
    first = None if halves is None else halves.first
    of_spans = {
        "share": (found.first_share, found.second_share),
        "span": (found.first_ahead, found.second_ahead),
    }
    if options.statistic in of_spans:
        one, other = of_spans[options.statistic]
        if first is None:
            return np.maximum(np.maximum(one, other), 0.0)
        ahead, behind = np.where(first, one, other), np.where(first, other, one)
        return _where_read(stronger(ahead, behind), one)
    total = found.second_bits - found.first_bits
    total = np.abs(total) if first is None else np.where(first, total, -total)
    if options.statistic == "mean":
        total = total / np.maximum(1, found.characters)
    return total


def _where_read(scores: FloatArray, measured: FloatArray) -> FloatArray:
    return np.where(np.isnan(measured), np.nan, scores)


def _of_groups(scores: FloatArray, halves: Halves) -> FloatArray:
    """The score of each group of documents that are kept together: that of the document that disagrees most, either way.

    The documents of a group share one coin, so that they count once.
    """
    read = np.flatnonzero(~np.isnan(scores))
    order = read[np.argsort(np.abs(scores[read]), kind="stable")]
    strongest: FloatArray = np.full(int(halves.groups.max()) + 1, np.nan)
    strongest[halves.groups[order]] = scores[order]  # of several, the last is kept
    return strongest[~np.isnan(strongest)]


def span_of(found: Scores, place: int, score: float, first: NDArray[np.bool_] | None) -> tuple[int, int]:
    """The characters of a document over which a model is spared the largest share of bits; (-1, -1) where they are not known."""
    if first is None:
        of_first = bool(found.first_share[place] >= found.second_share[place])
    else:
        of_first = bool(first[place]) == (score >= 0)
    if of_first:
        return int(found.first_begin[place]), int(found.first_end[place])
    return int(found.second_begin[place]), int(found.second_end[place])
