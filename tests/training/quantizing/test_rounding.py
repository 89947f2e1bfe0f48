"""Rounding: as many values as promised, each the nearest one, and the error that is reported."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from coalmine.training.quantizing import rounding
from coalmine.training.quantizing.rounding import rounded_by_row, rounded_to_values

WEIGHTS = st.floats(-8, 8, width=32)


@given(weights=arrays(np.float32, st.integers(1, 60), elements=WEIGHTS), values=st.integers(2, 20))
def test_each_weight_becomes_the_nearest_of_evenly_spaced_values(weights, values):
    result = rounded_to_values(torch.from_numpy(weights.copy()), values)
    after = result.weights.numpy()
    assert len(np.unique(after)) == result.distinct <= values
    assert np.abs(after.astype(float) - weights.astype(float)).max() == result.largest_error
    if len(np.unique(weights)) <= values:
        assert np.array_equal(after, weights)
    else:
        levels = np.linspace(weights.min(), weights.max(), values, dtype=np.float64)
        nearest = np.abs(weights[:, None].astype(float) - levels).min(axis=1)
        assert np.allclose(np.abs(after.astype(float) - weights), nearest, atol=1e-6)


@given(weights=arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 40)), elements=WEIGHTS))
def test_each_row_becomes_multiples_of_its_own_scale(weights):
    result = rounded_by_row(torch.from_numpy(weights.copy()))
    after = result.weights.numpy()
    assert max(len(np.unique(row)) for row in after) == result.distinct <= 255
    for before, row in zip(weights.astype(float), after.astype(float), strict=True):
        scale = np.abs(before).max() / 127
        assert np.abs(row - before).max() <= scale / 2 + 1e-6
        if scale > 0:
            assert np.allclose(row / scale, np.round(row / scale), atol=1e-3)


def test_a_second_rounding_changes_nothing():
    weights = torch.randn(50, 40, generator=torch.Generator().manual_seed(0))
    once = rounded_to_values(weights, 16)
    assert torch.equal(rounded_to_values(once.weights, 16).weights, once.weights)
    rows = rounded_by_row(weights)
    assert torch.equal(rounded_by_row(rows.weights).weights, rows.weights)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_the_type_stays_and_no_more_values_come_from_it(dtype):
    weights = torch.randn(3000, generator=torch.Generator().manual_seed(1)).to(dtype)
    result = rounded_to_values(weights, 256)
    assert result.weights.dtype == dtype
    assert len(torch.unique(result.weights)) == result.distinct <= 256


def test_large_tensors_are_rounded_in_pieces(monkeypatch):
    weights = torch.randn(7, 30, generator=torch.Generator().manual_seed(2))
    whole = rounded_to_values(weights, 8), rounded_by_row(weights)
    monkeypatch.setattr(rounding, "_TOGETHER", 64)
    for one, other in zip(whole, (rounded_to_values(weights, 8), rounded_by_row(weights)), strict=True):
        assert torch.equal(one.weights, other.weights)
        assert one[1:] == other[1:]
