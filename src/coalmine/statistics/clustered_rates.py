"""Rates of trials that come in clusters, such as sequences from one document, and how many independent trials they are worth.

Trials of one cluster may succeed or fail together, and how strongly they do cannot be learned from few clusters: documents that
are recited whole may be rare, and none of them in the sample. So the worst is taken, that all trials of a cluster agree. A mean
over clusters of sizes m then has the variance of (sum of m)^2 / (sum of m^2) independent trials (Kish), and an interval for that
many covers the truth however strongly, or weakly, trials of one cluster agree.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.errors import InputError
from coalmine.statistics.intervals import clopper_pearson, effective_interval


def cluster_sizes(clusters: ArrayLike) -> NDArray[np.int64]:
    """How many trials each cluster has, from the cluster of each trial."""
    labels = np.asarray(clusters)
    if labels.ndim != 1 or not len(labels):
        raise InputError(f"clusters must be one label per trial, got an array of shape {labels.shape}")
    return np.unique(labels, return_counts=True)[1]


def effective_trials(clusters: ArrayLike) -> float:
    """How many independent trials these are worth if all trials of one cluster agree.

    >>> effective_trials([1, 2, 3, 4]), effective_trials([1, 1, 2, 2]), effective_trials([1, 1, 1, 2])
    (4.0, 2.0, 1.6)
    """
    sizes = cluster_sizes(clusters).astype(np.float64)
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def clustered_interval(
    successes: int, clusters: ArrayLike, confidence: float = 0.95
) -> tuple[float, float, float]:
    """The interval of a rate, and the number of independent trials that it is made for.

    Where every trial is a cluster of its own, it is the exact interval of Clopper and Pearson.

    >>> low, high, worth = clustered_interval(3, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
    >>> round(low, 3), round(high, 3), worth
    (0.023, 0.791, 5.0)
    """
    sizes = cluster_sizes(clusters)
    trials, worth = int(sizes.sum()), effective_trials(clusters)
    if len(sizes) == trials:
        return (*clopper_pearson(successes, trials, confidence), float(trials))
    return (*effective_interval(successes / trials, worth, confidence), worth)
