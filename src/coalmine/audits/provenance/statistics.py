"""The statistics of provenance audits: one record each, which says what it needs and how it scores users."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from coalmine.audits.provenance.asking import Numbers
from coalmine.audits.provenance.classifier import AuditClassifier
from coalmine.audits.provenance.options import ProvenanceOptions, StatisticName
from coalmine.audits.provenance.population import ReferencePopulation
from coalmine.audits.provenance.views import View
from coalmine.models.protocols import FloatArray
from coalmine.statistics.provenance.text_scores import rmia


class Available(NamedTuple):
    """What an audit has to score users with.

    Attributes:
        view: what the target shows.
        classifier: that of the fit; None where there is none, or none for such a target, and `no_classifier` says why.
        no_reference: why there is nothing to compare probabilities with; None where there is something.
        not_aligned: why target and reference cannot be compared token by token; None where they can.
        no_shadows: why there are no shadows that cut texts as the target does; None where there are.
        population: the reference users that suspects are compared with.
    """

    view: View
    options: ProvenanceOptions
    classifier: AuditClassifier | None
    no_classifier: str
    no_reference: str | None
    not_aligned: str | None
    no_shadows: str | None
    population: ReferencePopulation


class Statistic(NamedTuple):
    """One way to score users; higher means "was trained on".

    Attributes:
        name: what users call it.
        needs: what it needs, in words, for the documentation.
        missing: why it cannot be computed with what is available; None where it can.
        score: the score of each user; NaN for one of whom nothing could be read.
        decides_alone: whether a score above 0 means "was trained on", without non-members to compare with.
    """

    name: StatisticName
    needs: str
    missing: Callable[[Available], str | None]
    score: Callable[[Numbers, Available], FloatArray]
    decides_alone: bool = False


def _no_probabilities(there: Available) -> str | None:
    return (
        None
        if there.view.probabilities
        else "the target gives no log-probabilities, only the likeliest tokens"
    )


def _by_rank_histogram(numbers: Numbers, there: Available) -> FloatArray:
    scores = np.full(len(numbers.tokens), np.nan)
    read = numbers.tokens > 0
    if there.classifier is not None and read.any():
        scores[read] = there.classifier.score(numbers.features[read])
    return scores


def _by_rmia(numbers: Numbers, there: Available) -> FloatArray:
    population, gamma = there.population, there.options.gamma

    def score(ratios: FloatArray) -> float:
        beside = ratios[population.sets]  # to the same shadows as each of the population
        return float("nan") if np.isnan(beside).any() else rmia(beside, population.ratios, gamma)

    return np.array([score(row) for row in numbers.rmia_bits])


def _no_list(there: Available) -> str | None:
    if there.view.top is not None:
        return None
    return "the target ranks every token, so that all are listed; look at the likeliest few with --top"


def _listed(numbers: Numbers, there: Available) -> FloatArray:
    del there
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(numbers.listed / numbers.tokens)


STATISTICS: tuple[Statistic, ...] = (
    Statistic(
        "rank-histogram",
        "the ranks of tokens, and an audit classifier from shadow models",
        lambda there: None if there.classifier is not None else there.no_classifier,
        _by_rank_histogram,
        decides_alone=True,
    ),
    Statistic(
        "likelihood-ratio",
        "log-probabilities, and a reference model or shadow models",
        lambda there: _no_probabilities(there) or there.no_reference,
        lambda numbers, _: numbers.ratio_bits,
    ),
    Statistic(
        "rmia",
        "log-probabilities, shadow models, and texts of reference users to ask the target about",
        lambda there: (
            _no_probabilities(there)
            or there.no_shadows
            or (
                None
                if len(there.population.ratios)
                else "no reference users were given to compare ratios with"
            )
        ),
        _by_rmia,
    ),
    Statistic(
        "windowed-ratio",
        "log-probabilities, and a reference model or shadow models with the same tokens",
        lambda there: _no_probabilities(there) or there.no_reference or there.not_aligned,
        lambda numbers, _: numbers.windowed,
    ),
    Statistic(
        "min-k++",
        "the distribution over the whole vocabulary at each position",
        lambda there: (
            None
            if there.view.moments
            else "the target does not give the whole distribution over its vocabulary"
        ),
        lambda numbers, _: numbers.min_k,
    ),
    Statistic(
        "listed-share",
        "the ranks of the likeliest few tokens; nothing to compare with",
        _no_list,
        _listed,
    ),
)


def statistic_named(name: StatisticName) -> Statistic:
    """A statistic by its name."""
    return next(one for one in STATISTICS if one.name == name)
