"""Membership scores of a text or a user, from the log2 probabilities that models give to its tokens; higher means "was trained on".

All take one row of log2 probabilities per model, which are at most 0. A probability of 0 is read as the smallest that a double
holds, 2**-1074, so that every score is finite, and a token that all models call impossible favors none of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from coalmine.errors import InputError, ModelOutputError, NotMeasurableError
from coalmine.statistics.scores import FloatArray, checked_count, number_row

# The windows of the paper of `windowed_ratio`, in tokens.
WINDOW_SIZES = (2, 3, 4, 6, 9, 13, 18, 25, 32, 40)
# log2 of the smallest positive double.
_LEAST_LOG2 = -1074.0
# Rounding can put the log of a probability of nearly 1 a little above 0.
_ROUNDING = 1e-3
# Bits. A distribution that is as certain as single precision can express still deviates by more than this.
_LEAST_DEVIATION = 1e-3


def log_ratio(target_log2: ArrayLike, reference_log2: ArrayLike, *, same_tokens: bool = True) -> float:
    """The mean over tokens of log2 p_target - log2 p_reference, in bits per token of the target.

    The statistic of User Inference Attacks on Large Language Models (Kandpal et al., 2024, arXiv:2310.09266), with all tokens of a
    user in one row. Where the two models cut texts into different tokens (`same_tokens=False`), the difference of the sums is
    divided by the number of the target's tokens.

    >>> log_ratio([-1.0, -2.0], [-4.0, -3.0])
    2.0
    >>> log_ratio([-1.0, -2.0], [-4.0, -2.0, -1.0], same_tokens=False)
    2.0
    """
    target, reference = _log2(target_log2, "the target"), _log2(reference_log2, "the reference")
    if same_tokens:
        return float(np.mean(target - _aligned(target, reference, "the reference")))
    return float((target.sum() - reference.sum()) / len(target))


def windowed_ratio(
    target_log2: ArrayLike, reference_log2: ArrayLike, sizes: Sequence[int] = WINDOW_SIZES
) -> float:
    """The share of windows of a text to which the target gives a higher probability than the reference: 0 to 1, mean over sizes.

    Window-based Membership Inference Attacks Against Fine-tuned Large Language Models (Chen et al., 2026, arXiv:2601.02751), with
    its sizes in tokens. Windows begin at every token; a tie is not higher. Sizes that are longer than the text are left out; if all
    are, the text is one window.

    >>> windowed_ratio([-1.0, -1.0, -5.0], [-2.0, -3.0, -3.0], sizes=[1, 2])  # 2 of 3, and 1 of 2
    0.5833333333333333
    """
    target, reference = _log2(target_log2, "the target"), _log2(reference_log2, "the reference")
    differences = target - _aligned(target, reference, "the reference")
    if not len(sizes):
        raise InputError("windows need at least one size, got none; give sizes in tokens")
    fitting = [size for size in sizes if checked_count(size, "a window's size") <= len(differences)]
    shares = [
        np.mean(np.lib.stride_tricks.sliding_window_view(differences, size).sum(axis=1) > 0)
        for size in fitting or [len(differences)]
    ]
    return float(np.mean(shares))


def min_k_plus_plus(
    log2_probabilities: ArrayLike, means: ArrayLike, deviations: ArrayLike, share: float = 0.2
) -> float:
    """The mean of the lowest `share` of a text's z-scores, at least one: (log2 p - mean) / deviation per token, without a unit.

    `means` and `deviations` are those of log2 p over the vocabulary, weighted by p, in bits at each token. Min-K%++: Improved
    Baseline for Detecting Pre-Training Data from Large Language Models (Zhang et al., 2024, arXiv:2404.02936). A deviation of less
    than 0.001 bits is read as 0.001: a model that certain has its own token at the mean, and any other far below.

    >>> min_k_plus_plus([-1.0, -6.0, -2.0, -3.0, -2.0], [-2.0] * 5, [2.0] * 5)
    -2.0
    >>> min_k_plus_plus([-1.0, -6.0, -2.0, -3.0, -2.0], [-2.0] * 5, [2.0] * 5, share=0.4)
    -1.25
    """
    observed = _log2(log2_probabilities, "the target")
    centers, spreads = number_row(means, "means"), number_row(deviations, "deviations")
    if not len(observed) == len(centers) == len(spreads):
        raise InputError(
            f"every token needs a log2 probability, a mean and a deviation, got {len(observed)}, {len(centers)} and {len(spreads)}"
        )
    if not (np.isfinite(centers).all() and np.isfinite(spreads).all() and (spreads >= 0).all()):
        raise ModelOutputError(
            "means and deviations must be finite numbers of bits, and deviations at least 0, but some are not; check the model"
        )
    if not 0.0 < share <= 1.0:
        raise InputError(f"share must be above 0 and at most 1, got {share}; use for example 0.2")
    z_scores = (observed - centers) / np.maximum(spreads, _LEAST_DEVIATION)
    # A tolerance for rounding, so that 0.1 of 30 is 3 and not 2.
    lowest = max(1, math.floor(share * len(observed) * (1 + 1e-12)))
    return float(np.mean(np.sort(z_scores)[:lowest]))


def rmia_ratio(target_log2: ArrayLike, shadows_log2: Sequence[ArrayLike]) -> float:
    """The mean over tokens of log2 p_target - log2 of the mean probability that shadows give, in bits per token.

    `shadows_log2` has one row per shadow model, of those that were not trained on this user; its columns are the target's tokens.
    See `rmia`.

    >>> rmia_ratio([-1.0, -1.0], [[-2.0, -3.0], [-2.0, -3.0]])
    1.5
    """
    target = _log2(target_log2, "the target")
    if not len(shadows_log2):
        raise NotMeasurableError(
            "rmia needs at least one shadow that was not trained on the user, but there is none; train more shadows"
        )
    # Log2 of the sum of probabilities, token by token.
    total = np.logaddexp2.reduce(
        [_aligned(target, _log2(row, "a shadow"), "a shadow") for row in shadows_log2]
    )
    return float(np.mean(target - (total - math.log2(len(shadows_log2)))))


def rmia(user_ratio: ArrayLike, population_ratios: ArrayLike, gamma: float = 1.0) -> float:
    """The share of the population, 0 to 1, whose `rmia_ratio` is at least log2(gamma) bits per token below the user's.

    Low-Cost High-Power Membership Inference Attacks (Zarifzadeh, Liu and Shokri, 2024, arXiv:2312.03262), offline: what is
    compared is p_target / p_shadows of the user, as a geometric mean over tokens, with that of users drawn from the population. Where
    these are compared with different shadows, the user has a ratio for each of them, to the same shadows: a mean over more models
    is higher where models differ, so that ratios to more and to fewer of them are not alike.

    >>> rmia(1.5, [0.0, 1.0, 2.0, 1.5])
    0.75
    >>> rmia(1.5, [0.0, 1.0, 2.0, 1.5], gamma=2.0)
    0.25
    >>> rmia([1.5, 1.5, 2.5, 1.0], [0.0, 1.0, 2.0, 1.5])
    0.75
    """
    others = number_row(population_ratios, "population ratios")
    own = np.asarray(user_ratio, dtype=np.float64)
    if not len(others):
        raise NotMeasurableError(
            "rmia compares a user with others, but the population is empty; give at least one ratio"
        )
    if own.shape not in {(), others.shape}:
        raise InputError(
            f"a user has one ratio, or one for each of the population, got {own.size} and {len(others)}; give as many"
        )
    if np.isnan(own).any() or np.isnan(others).any():
        raise ModelOutputError(
            "ratios must be numbers, but some are NaN; find out why before drawing conclusions"
        )
    if not 0.0 < gamma < math.inf:
        raise InputError(f"gamma must be a finite ratio above 0, got {gamma}; use for example 1.0")
    return float(np.mean(own - others >= math.log2(gamma)))


def _log2(values: ArrayLike, whose: str) -> FloatArray:
    """A row of log2 probabilities, at least one, in which those of impossible tokens are finite."""
    row = number_row(values, f"log2 probabilities of {whose}")
    if not len(row):
        raise NotMeasurableError(
            f"a score needs at least one token, but {whose} has no log2 probabilities; leave such texts out"
        )
    wrong = np.flatnonzero(~(row <= _ROUNDING))
    if len(wrong):
        raise ModelOutputError(
            f"log2 probabilities are at most 0, but {whose} has {row[wrong[0]]} at position {wrong[0]}; log-perplexities must be "
            "negated"
        )
    return np.maximum(row, _LEAST_LOG2)


def _aligned(target: FloatArray, other: FloatArray, whose: str) -> FloatArray:
    if len(target) != len(other):
        raise InputError(
            f"the target and {whose} must score the same tokens, got {len(target)} and {len(other)}; score both with one tokenizer"
        )
    return other
