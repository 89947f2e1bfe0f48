"""Rates of trials in clusters: what the interval is made of, and its coverage however strongly trials of one cluster agree."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.errors import InputError
from coalmine.randomness import arrays
from coalmine.statistics import clopper_pearson, clustered_interval
from coalmine.statistics.intervals import effective_interval, effective_trials


@given(st.lists(st.integers(0, 8), min_size=1, max_size=40), st.data())
def test_clusters_widen_an_interval_and_never_beyond_one_trial_per_cluster(clusters, data):
    hits = data.draw(st.integers(0, len(clusters)))
    low, high, worth = clustered_interval(hits, clusters)
    exact = clopper_pearson(hits, len(clusters))
    assert 1 <= worth <= len(set(clusters)) * (1 + 1e-12)
    assert worth == pytest.approx(effective_trials(clusters))
    assert low <= exact[0] + 1e-12
    assert high >= exact[1] - 1e-12
    if len(set(clusters)) == len(clusters):
        assert (low, high) == exact


@given(st.integers(1, 50), st.integers(1, 6), st.data())
def test_whole_clusters_that_agree_are_single_trials(clusters, size, data):
    hits = data.draw(st.integers(0, clusters))
    labels = np.repeat(np.arange(clusters), size)
    low, high, worth = clustered_interval(hits * size, labels)
    assert worth == pytest.approx(clusters)
    assert (low, high) == pytest.approx(clopper_pearson(hits, clusters))


@pytest.mark.parametrize("together", [0.0, 0.2, 0.8, 1.0])
@pytest.mark.parametrize("documents", [10, 100])
def test_the_interval_covers_the_truth(documents, together):
    generator = arrays(0, "test", "clustered", documents, str(together))
    sizes = generator.integers(1, 30, documents)
    labels = np.repeat(np.arange(documents), sizes)
    for rate in (0.05, 0.3):
        covered = exact = 0
        for _ in range(200):
            agree, all_of_it = generator.random((2, documents)) < [[together], [rate]]
            hits = int(generator.binomial(sizes, np.where(agree, all_of_it, rate)).sum())
            low, high, _ = clustered_interval(hits, labels)
            covered += low <= rate <= high
            low, high = clopper_pearson(hits, len(labels))
            exact += low <= rate <= high
        assert covered / 200 >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / 200)
        if together >= 0.8:
            assert exact / 200 < 0.75


def test_what_is_no_rate_is_refused():
    for wrong in ((1.5, 3), (0.5, 0.0)):
        with pytest.raises(InputError):
            effective_interval(*wrong)
    with pytest.raises(InputError):
        effective_trials([])
