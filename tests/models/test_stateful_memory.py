"""How much memory the states of a network will take, foreseen from two short texts."""

import pytest

from models.random_networks import ARCHITECTURES, random_model


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_state_of_a_text_of_any_length_is_foreseen(architecture):
    model = random_model(architecture)
    base, each = model._bytes_of_state
    for length in (2, 7, 30):
        taken = model.state_bytes(model._read([[0] * length])[1])
        assert base + each * length == pytest.approx(taken, rel=0.01)
