"""How much memory the states of a network will take, foreseen from two short texts, and how many rows are read at a time."""

import numpy as np
import pytest
import torch

from coalmine.errors import ModelError, NotMeasurableError
from coalmine.models import TokenSequence
from coalmine.models.inference import incremental
from models.random_networks import ARCHITECTURES, random_model


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_state_of_a_text_of_any_length_is_foreseen(architecture):
    model = random_model(architecture)
    base, each = model._bytes_of_state
    for length in (2, 7, 30):
        taken = model.state_bytes(model.start([[0] * length]).states)
        assert base + each * length == pytest.approx(taken, rel=0.01)


def rows_read(model, monkeypatch):
    """Of how many rows each call of the network is made from now on."""
    seen = []
    network = model._network
    forward, read_hidden = network.forward, network.read_hidden

    def watched(tokens, state):
        seen.append(len(tokens))
        return forward(tokens, state)

    def watched_hidden(tokens, state, keep):
        seen.append(len(tokens))
        return read_hidden(tokens, state, keep)

    monkeypatch.setattr(network, "forward", watched)
    monkeypatch.setattr(network, "read_hidden", watched_hidden)
    return seen


TEXTS = [(1 + place % 3, 2, 3 + place % 5, 4 + place % 7, 5) for place in range(23)]
ASKED = {
    "score": lambda model: [
        one.log2_probabilities for one in model.score([TokenSequence((0,), text) for text in TEXTS])
    ],
    "start": lambda model: model.start([(0, *text) for text in TEXTS]).log2_probabilities,
    "generate": lambda model: model.generate([(0, *text) for text in TEXTS], length=3),
}


@pytest.mark.parametrize("architecture", ["gru", "transformer"])
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("rows", [1, 4, 23])
def test_as_many_rows_are_read_as_their_states_have_room(architecture, asked, rows, monkeypatch):
    model = random_model(architecture, dtype=torch.float64)
    whole = ASKED[asked](model)
    base, each = model._bytes_of_state
    # At the end a row has the context, five tokens and what it writes; its state is there twice.
    bytes_a_row = 2 * (base + each * (6 + (3 if asked == "generate" else 0)))
    seen = rows_read(model, monkeypatch)
    for room, most in ((rows * bytes_a_row, rows), (rows * bytes_a_row - 1, max(1, rows - 1))):
        monkeypatch.setattr(incremental, "STATES_AT_A_TIME", room)
        seen.clear()
        assert np.allclose(ASKED[asked](model), whole)
        assert max(seen) == min(most, len(TEXTS))


@pytest.mark.parametrize("asked", ["score", "start", "generate"])
@pytest.mark.parametrize("rows", [1, 4, 23])
def test_as_many_rows_are_read_as_their_numbers_have_room(asked, rows, monkeypatch):
    model = random_model("gru", dtype=torch.float64)
    whole = ASKED[asked](model)
    # Of `score`, hidden numbers are made for each token that is read, and logits in blocks; of the others logits for the last token.
    read = 6 if asked == "generate" else 5
    numbers = model._network.numbers_read(read, read)
    numbers_a_row = numbers if asked == "score" else max(model._network.vocabulary, numbers)
    seen = rows_read(model, monkeypatch)
    for room, most in ((rows * numbers_a_row, rows), (rows * numbers_a_row - 1, max(1, rows - 1))):
        monkeypatch.setattr(incremental, "LOGITS_AT_A_TIME", room)
        seen.clear()
        assert np.allclose(ASKED[asked](model), whole)
        assert max(seen) == min(most, len(TEXTS))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_walk_starts_after_contexts_of_one_length_and_not_after_nothing(architecture):
    model = random_model(architecture)
    for contexts in ([], [[]], [[], []]):
        with pytest.raises(NotMeasurableError, match="after nothing"):
            model.start(contexts)
    with pytest.raises(ModelError, match=r"got lengths \[1, 2\]"):
        model.start([[0], [0, 1]])
    assert len(model.start([[0, 1], [0, 2]]).log2_probabilities) == 2
    assert len(model.start([[0]]).log2_probabilities) == 1
