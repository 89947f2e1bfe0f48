"""Exposure without memory: against every order of canaries and references, one by one."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine.errors import InputError, ModelOutputError, NotMeasurableError
from coalmine.statistics import RandomGuessing, compare_with_guessing, exposures_among, reference_exposures


def splits(values, m):
    """Every way to call m of the values canaries and the rest references."""
    for chosen in itertools.combinations(range(len(values)), m):
        yield [values[i] for i in chosen], [values[i] for i in range(len(values)) if i not in chosen]


@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 1), (4, 3), (6, 4), (9, 2)])
def test_the_chance_of_each_place_is_counted_from_all_orders(n, m):
    counts = [
        [sum(r > c for r in refs) for c in sorted(ins, reverse=True)] for ins, refs in splits(range(n + m), m)
    ]
    for place in range(1, m + 1):
        for better in range(n + 1):
            share = np.mean([row[place - 1] <= better for row in counts])
            assert RandomGuessing(n, m).chance_of(place, better) == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize(
    ("values", "m"),
    [
        ([0, 1, 2, 3, 4, 5, 6], 3),
        ([0, 0, 1, 1, 1, 2, 3, 3], 3),
        ([1, 1, 1, 1, 1], 2),
        ([0, 0, 0, 5, 5, 6], 1),
    ],
)
def test_the_p_value_is_right_for_ties_and_small_samples(values, m):
    """Without memory a p-value of at most u comes with probability at most u, whatever the ties."""
    p_values = np.array([compare_with_guessing(ins, refs).p_value for ins, refs in splits(values, m)])
    for level in np.unique(p_values):
        assert np.mean(p_values <= level + 1e-9) <= level + 1e-9


def test_the_figures_of_the_note():
    guessing = RandomGuessing(references=100_000, canaries=1)
    assert guessing.mean_bits() == pytest.approx(1 / math.log(2), abs=1e-3)
    assert guessing.quantile_bits(0.5) == pytest.approx(1.0, abs=1e-3)
    assert guessing.quantile_bits(0.75) == pytest.approx(2.0, abs=1e-3)
    # The sum over all ranks and the series agree where one takes over from the other.
    assert RandomGuessing(10**6, 1).mean_bits() == pytest.approx(
        RandomGuessing(10**6 + 1, 1).mean_bits(), abs=1e-6
    )


@pytest.mark.parametrize("n", [1, 2, 7, 50])
def test_mean_and_quantiles_are_those_of_every_rank(n):
    bits = [reference_exposures([rank - 0.5], range(1, n + 1))[0].value for rank in range(2, n + 2)]
    every = sorted([math.log2(n), *bits])
    assert RandomGuessing(n, 1).mean_bits() == pytest.approx(np.mean(every))
    for share in (0.1, 0.5, 0.75, 0.9):
        limit = RandomGuessing(n, 1).quantile_bits(share)
        assert np.mean(np.array(every) < limit - 1e-9) <= share + 1e-9


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=8), st.lists(st.integers(0, 5), min_size=1, max_size=8)
)
@settings(max_examples=60)
def test_exposures_are_those_of_the_exposure_module(ins, outs):
    exposures, better = exposures_among(ins, outs)
    for one, bits, count in zip(ins, exposures, better, strict=True):
        estimate = reference_exposures([-float(one)], [-float(other) for other in outs])[0]
        assert count == sum(other >= one for other in outs)
        assert bits == pytest.approx(math.log2(len(outs)) if estimate.value is None else estimate.value)


def test_a_median_that_beats_everything_is_called_so():
    result = compare_with_guessing([9.0] * 5, range(8))
    assert result.median.value == 3.0
    assert "reflects their number" in result.median.warnings[0]
    assert compare_with_guessing(np.ones(10_000) * 9, np.arange(8.0)).p_value >= 1e-12


@pytest.mark.parametrize(
    ("ins", "outs", "error"),
    [
        ([], [1.0], NotMeasurableError),
        ([1.0], [], NotMeasurableError),
        ([math.nan], [1.0], ModelOutputError),
        ([1.0], [math.inf], ModelOutputError),
        ([[1.0]], [1.0], InputError),
        (["a"], [1.0], InputError),
        ([10**400], [1.0], InputError),
    ],
)
def test_bad_scores_are_an_error_and_never_a_number(ins, outs, error):
    with pytest.raises(error):
        compare_with_guessing(ins, outs)
