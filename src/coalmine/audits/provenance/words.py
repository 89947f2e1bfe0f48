"""How a model treats frequent and rare words: their ranks and log-probabilities, for suspects and for non-members.

The paper's figures 5 and 6: models rank rare words far higher where they saw them in training. Intervals are over users.
"""

from __future__ import annotations

import math

from coalmine.audits.provenance.asking import FREQUENCY_GROUPS, LOG_LEAST, Numbers
from coalmine.audits.provenance.results import LogHistogram, WordGroup
from coalmine.models.protocols import FloatArray, IntArray

MeanAndLimits = tuple[float, float, float]


def word_groups(suspects: Numbers, non_members: Numbers | None, confidence: float) -> tuple[WordGroup, ...]:
    """The mean ranks of words by how frequent they are; empty where ranks or tokens are not known."""
    if not suspects.rank_counts.any():
        return ()
    found = []
    for group in range(FREQUENCY_GROUPS):
        sides = [
            None
            if one is None
            else _mean_over_users(one.rank_sums[:, group], one.rank_counts[:, group], confidence)
            for one in (suspects, non_members)
        ]
        if any(side is not None for side in sides):
            place = (group + 0.5) / FREQUENCY_GROUPS
            found.append(WordGroup(frequency_rank=place, suspects=sides[0], non_members=sides[1]))
    return tuple(found)


def log_histogram(suspects: Numbers, non_members: Numbers | None) -> LogHistogram | None:
    """The log2 probabilities of frequent and of rare words, as shares; None where they are not known, or nobody is compared with."""
    if non_members is None or not suspects.log_histogram.any() or not non_members.log_histogram.any():
        return None
    (frequent, rare), (other_frequent, other_rare) = (
        (_shares(one.log_histogram.sum(axis=0)[0]), _shares(one.log_histogram.sum(axis=0)[1]))
        for one in (suspects, non_members)
    )
    return LogHistogram(
        least_bits=LOG_LEAST,
        suspects_frequent=frequent,
        suspects_rare=rare,
        non_members_frequent=other_frequent,
        non_members_rare=other_rare,
    )


def _mean_over_users(sums: FloatArray, counts: IntArray, confidence: float) -> MeanAndLimits | None:
    """The mean of the users' own means, with Student's interval; the mean alone where there is a single user."""
    from scipy.stats import t

    there = counts > 0
    if not there.any():
        return None
    means = sums[there] / counts[there]
    center = float(means.mean())
    if len(means) == 1:
        return center, center, center
    half = (
        float(t.ppf((1 + confidence) / 2, len(means) - 1)) * float(means.std(ddof=1)) / math.sqrt(len(means))
    )
    return center, center - half, center + half


def _shares(counts: IntArray) -> tuple[float, ...]:
    return tuple((counts / max(1, counts.sum())).tolist())
