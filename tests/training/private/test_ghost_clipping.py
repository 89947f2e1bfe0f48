"""Ghost clipping of the reference networks against the loop over units."""

import pytest
import torch

from coalmine.models.reference.networks import NetworkConfig, build_network
from coalmine.models.reference.pair_networks import PAIR_NETWORKS, PairNetworkConfig, build_pair_network
from coalmine.training.private.clipping import factors
from coalmine.training.private.clipping.clipping import clipping_for
from training.private.clipped import (
    IGNORED,
    VOCABULARY,
    assert_becomes_loop,
    assert_ghost_is_loop,
    kinds,
    summed,
    token_batch,
)

ARCHITECTURES = ("lstm", "gru", "cnn", "transformer")
# Unit 2 has no rows; the last row, which is a unit of its own, has no loss.
SEVERAL = ([0, 0, 1, 3, 3, 4], 5)
ALONE = ([0, 1, 2, 3, 4, 5], 6)
EQUAL = ([0, 0, 0, 1, 1, 1], 2)


def network_of(architecture, dropout=0.0, kind=torch.float64):
    torch.manual_seed(3)
    config = NetworkConfig(
        architecture=architecture,
        vocabulary=VOCABULARY,
        embedding=6,
        hidden=8,
        layers=2,
        dropout=dropout,
        kernel=3,
        heads=2,
    )
    return build_network(config).to(kind)


def losses_of(network, tokens, expected):
    return lambda: summed(network(tokens, network.initial_state(len(tokens)))[0], expected)


@kinds
@pytest.mark.parametrize("units", [SEVERAL, ALONE, EQUAL], ids=["several", "alone", "equal"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_reference_networks(architecture, units, kind):
    network = network_of(architecture, kind=kind)
    assert_ghost_is_loop(network, losses_of(network, *token_batch(6, 7)), *units)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_dropout_is_that_of_a_plain_pass(architecture):
    network = network_of(architecture, dropout=0.4)
    assert_ghost_is_loop(network, losses_of(network, *token_batch(6, 7)), *SEVERAL)


@pytest.mark.parametrize("kept", [0, 1 << 26], ids=["not kept", "kept"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_gradients_that_are_cheaper_than_gram_matrices(architecture, kept, monkeypatch):
    monkeypatch.setattr(factors, "WRITING", -100)
    monkeypatch.setattr(factors, "KEPT", kept)
    monkeypatch.setattr(factors, "BLOCK", 150)  # several blocks
    network = network_of(architecture)
    assert_ghost_is_loop(network, losses_of(network, *token_batch(6, 7)), *SEVERAL)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_one_unit_and_one_row(architecture):
    network = network_of(architecture)
    tokens, expected = token_batch(3, 5)
    assert_ghost_is_loop(network, losses_of(network, tokens, expected), [0, 0, 0], 1)
    assert_ghost_is_loop(network, losses_of(network, tokens[:1], expected[:1]), [0], 1)


@pytest.mark.parametrize("architecture", ["lstm", "gru"])
def test_a_state_that_is_carried_within_a_pass(architecture):
    network = network_of(architecture)
    tokens, expected = token_batch(6, 7)

    def losses():
        first, state = network(tokens[:, :3], network.initial_state(6))
        second, _ = network(tokens[:, 3:], state)
        return summed(torch.cat([first, second], dim=1), expected)

    assert_ghost_is_loop(network, losses, *SEVERAL)


@kinds
@pytest.mark.parametrize("units", [SEVERAL, ALONE, EQUAL], ids=["several", "alone", "equal"])
@pytest.mark.parametrize("architecture", ["lstm", "gru"])
def test_padding_is_left_out(architecture, units, kind):
    network = network_of(architecture, kind=kind, dropout=0.4)
    tokens, expected = token_batch(6, 9)
    lengths = (expected != IGNORED).sum(1)
    assert_ghost_is_loop(network, losses_of(network, tokens, expected), *units, lengths=lengths)


@pytest.mark.parametrize("kept", [0, 1 << 26], ids=["not kept", "kept"])
def test_whole_gradients_without_padding(kept, monkeypatch):
    monkeypatch.setattr(factors, "WRITING", -100)
    monkeypatch.setattr(factors, "KEPT", kept)
    monkeypatch.setattr(factors, "BLOCK", 150)
    network = network_of("lstm")
    tokens, expected = token_batch(6, 9)
    lengths = (expected != IGNORED).sum(1)
    assert_ghost_is_loop(network, losses_of(network, tokens, expected), *SEVERAL, lengths=lengths)


@pytest.mark.parametrize("architecture", ["lstm", "gru"])
def test_layers_that_are_read_with_padding_and_without(architecture):
    network = network_of(architecture)
    first, second = (token_batch(6, time, seed=time) for time in (9, 5))

    def losses():
        return sum(losses_of(network, *each)() for each in (first, second))

    lengths = (first[1] != IGNORED).sum(1)
    assert_ghost_is_loop(network, losses, *SEVERAL, lengths=lengths)


@pytest.mark.parametrize("architecture", ["lstm", "gru"])
def test_a_last_state_that_depends_on_padding(architecture):
    network = network_of(architecture)
    tokens, expected = token_batch(6, 9)

    def losses():
        logits, state = network(tokens, network.initial_state(6))
        return summed(logits, expected) + state[0].square().sum((0, 2))

    lengths = (expected != IGNORED).sum(1)
    assert_becomes_loop(network, losses, *SEVERAL, "depends on the last state", lengths)


@pytest.mark.parametrize("architecture", PAIR_NETWORKS)
def test_pair_networks(architecture):
    torch.manual_seed(3)
    config = PairNetworkConfig(architecture=architecture, vocabulary=VOCABULARY, embedding=5, hidden=6)
    network = build_pair_network(config).double()
    sources, _ = token_batch(6, 4, seed=1)
    lengths = torch.tensor([4, 2, 3, 1, 4, 3])
    targets, expected = token_batch(6, 7)
    assert_ghost_is_loop(network, lambda: summed(network(sources, lengths, targets), expected), *SEVERAL)


def test_no_rows_and_no_loss():
    network = network_of("lstm")
    clipping = clipping_for(network)
    assert clipping.add_clipped(pytest.fail, torch.tensor([], dtype=torch.long), 2, 1.0).tolist() == [0, 0]
    assert clipping.add_clipped(lambda: torch.zeros(2), torch.tensor([0, 1]), 2, 1.0).tolist() == [0, 0]
    assert all((parameter.grad == 0).all() for parameter in network.parameters())
    assert (clipping.name, clipping.reason, clipping.units_at_once) == ("ghost", "", None)


def test_the_first_pass_and_the_first_over_several_units_are_checked():
    network = network_of("lstm")
    tokens, expected = token_batch(3, 5)
    clipping, calls = clipping_for(network), []

    def losses():
        calls.append(1)
        return losses_of(network, tokens, expected)()

    passes = []
    for units in ([0, 0, 0], [1, 1, 1], [0, 0, 1], [0, 1, 2]):
        calls.clear()
        clipping.add_clipped(losses, torch.tensor(units), 3, 1.0)
        passes.append(len(calls))
    assert passes == [2, 1, 2, 1]
