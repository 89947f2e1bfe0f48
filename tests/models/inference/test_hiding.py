"""Which tokens are hidden for a test of masked models, and what the widest layer of a network takes."""

from types import SimpleNamespace

import pytest

from coalmine.errors import InputError, NotMeasurableError
from coalmine.models.inference.gaps import check_gaps, hidden_places, how_many_hidden, widest_layer
from coalmine.models.resolution import allowed_bits, most_for_precision


@pytest.mark.parametrize(
    ("tokens", "share", "hidden"), [(1, 0.01, 1), (2, 0.15, 1), (7, 0.5, 4), (9, 0.99, 9), (40, 0.15, 6)]
)
def test_the_nearest_whole_number_to_the_share_is_hidden_and_at_least_one(tokens, share, hidden):
    assert how_many_hidden(range(tokens), share) == hidden
    places = hidden_places(range(tokens), share=share, seed=3)
    assert len(set(places)) == hidden
    assert places == sorted(places)
    assert set(places) <= set(range(tokens))


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.1])
def test_a_share_of_none_or_all_is_refused(share):
    with pytest.raises(InputError, match="between 0 and 1"):
        how_many_hidden(range(5), share)


def test_nothing_can_be_hidden_in_nothing():
    with pytest.raises(NotMeasurableError):
        how_many_hidden([], 0.5)


@pytest.mark.parametrize("gaps", [[], [0], [4], [0, 4], [3, 1]])
def test_different_places_of_a_target_are_gaps(gaps):
    check_gaps(gaps, 5)


@pytest.mark.parametrize("gaps", [[5], [-1], [0, 5], [-1, 2], [1, 1]])
def test_other_places_are_not(gaps):
    with pytest.raises(InputError, match=r"in \[0, 5\)"):
        check_gaps(gaps, 5)


def test_the_widest_layer_is_the_inner_one_of_short_texts_and_attention_of_long_ones():
    config = SimpleNamespace(num_attention_heads=4, hidden_size=8)
    assert [widest_layer(config, length) for length in (1, 8, 9)] == [1 * 32, 8 * 32, 9 * 36]
    assert widest_layer(SimpleNamespace(), 3) == 3 * 4


def test_what_rounding_may_do_grows_with_numbers_beyond_32_bits():
    assert allowed_bits(0.5, [0.0, -31.0, 32.0, -64.0]).tolist() == [0.5, 0.5, 0.5, 1.0]
    precisions = ["float64", "float32", "float16", "bfloat16", "int4"]
    assert [most_for_precision({"precision": one}) for one in precisions] == [1e-9, 5e-3, 0.125, 1.0, 1.0]
    assert most_for_precision({"precision": "float64", "computed_in": "float16"}) == 0.125
    assert most_for_precision({}) == 1.0
