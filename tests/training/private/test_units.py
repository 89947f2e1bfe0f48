"""Units, draws and noise of private training, against brute force and what chance promises."""

from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from coalmine.models import CharacterTokenizer
from coalmine.training.data import Sources, TrainingData
from coalmine.training.lessons import lessons_of
from coalmine.training.options import options_of
from coalmine.training.private.clipping.clipping import clipping_for
from coalmine.training.private.large_units import add_clipped_in_parts
from coalmine.training.private.noise import PrivateRandomness
from coalmine.training.private.units import UnitReader, units_of

TEXTS = ["abca", "b", "cabcabcabcabc", "", "abcabcabcabcabcabcabc", "ccc", "babababa"]
USERS = ["ann", "bob", "ann", "cid", "bob", "ann", "dot"]
WINDOW, CLIP = 5, 0.4
SMALL = {"hidden": 8, "embedding": 4, "window": WINDOW, "heads": 2, "layers": 2}


def data_of(*, pairs=False):
    tokenizer = CharacterTokenizer("abc")
    training = [tokenizer.encode_document(text) for text in TEXTS]
    sources = Sources([np.append(one[::-1], tokenizer.separator) for one in training], []) if pairs else None
    return TrainingData(tokenizer, training, [], "", sources, users=USERS)


def network_and_reader(preset, unit):
    torch.manual_seed(3)
    options = options_of(preset, SMALL)
    data = data_of(pairs=options.reads_pairs)
    network = lessons_of(data, options).network.double()
    units = units_of(len(data.training), data.users, unit)
    return network, data, units, UnitReader(network, data, units, options)


def brute_force(network, data, units, drawn):
    """The sum of clipped gradients and the loss: each document alone, its windows one after the other with the state carried over."""
    separator = data.tokenizer.separator
    sums = [torch.zeros_like(parameter) for parameter in network.parameters()]
    nats = 0.0
    for unit in drawn:
        loss, tokens = torch.zeros((), dtype=torch.float64), 0
        for place in units[unit]:
            stream = torch.tensor([separator, *data.training[place].tolist(), separator])
            tokens += len(stream) - 1
            if data.sources is not None:
                source = torch.from_numpy(data.sources.training[place].astype(np.int64))[None]
                logits = network(source, torch.tensor([source.shape[1]]), stream[None, :-1])
                loss = loss + F.cross_entropy(logits[0], stream[1:], reduction="sum")
                continue
            state = network.initial_state(1)
            for start in range(0, len(stream) - 1, WINDOW):
                if not network.carries_state:
                    state = network.initial_state(1)
                read, expected = (
                    stream[start : start + WINDOW + 1][:-1],
                    stream[start + 1 : start + WINDOW + 1],
                )
                logits, state = network(read[None], state)
                state = tuple(part.detach() for part in state)
                loss = loss + F.cross_entropy(logits[0], expected, reduction="sum")
        nats += float(loss.detach())
        gradients = torch.autograd.grad(loss / tokens, list(network.parameters()), materialize_grads=True)
        size = torch.stack([gradient.norm() for gradient in gradients]).norm()
        for total, gradient in zip(sums, gradients, strict=True):
            total.add_(gradient * min(1.0, CLIP / float(size)))
    return sums, nats


def summed(network, reader, drawn, most_rows):
    network.zero_grad()
    clipping = clipping_for(network)
    nats, largest = 0.0, 0
    for rows in reader.passes(np.array(drawn), most_rows, clipping.units_at_once):
        if len(rows.units) <= most_rows:
            losses = partial(reader.losses, rows)
            clipping.add_clipped(losses, rows.units, rows.number, CLIP, rows.lengths)
            assert clipping.name == "ghost"
            largest = max(largest, len(rows.units))
        else:
            firsts = range(0, len(rows.units), most_rows)
            parts = (reader.losses(reader.part(rows, first, first + most_rows)) for first in firsts)
            add_clipped_in_parts(network, parts, CLIP)
        nats += float((reader.losses(rows).detach() / rows.weights).sum())
    assert largest <= most_rows
    return [parameter.grad for parameter in network.parameters()], nats


@pytest.mark.parametrize("unit", ["document", "user"])
@pytest.mark.parametrize("preset", ["char-lstm", "gru", "cnn", "transformer", "translation"])
def test_sums_are_those_of_each_unit_alone_however_few_rows_a_pass_has(preset, unit):
    network, data, units, reader = network_and_reader(preset, unit)
    drawn = [place for place in range(len(units)) if place != 1]
    expected, nats = brute_force(network, data, units, drawn)
    assert reader.tokens(np.array(drawn)) == sum(
        len(data.training[place]) + 1 for unit in drawn for place in units[unit]
    )
    for most_rows in (1, 3, 100):
        found, seen = summed(network, reader, drawn, most_rows)
        assert seen == pytest.approx(nats)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_users_have_all_of_their_documents():
    units = units_of(7, data_of().users, "user")
    assert [one.tolist() for one in units] == [[0, 2, 5], [1, 4], [3], [6]]
    assert [one.tolist() for one in units_of(7, None, "document")] == [[place] for place in range(7)]


def test_each_unit_is_drawn_by_a_coin_of_its_own():
    steps, units, rate = 4000, 30, 0.1
    chance = PrivateRandomness(12345)
    drawn = np.zeros((steps, units))
    for step in range(steps):
        drawn[step, chance.drawn(step, units=units, rate=rate)] = 1
    deviation = np.sqrt(rate * (1 - rate) / steps)
    assert np.abs(drawn.mean(0) - rate).max() < 4 * deviation
    # The number in a step is binomial, so that there are empty steps.
    sizes = drawn.sum(1)
    assert sizes.var() == pytest.approx(units * rate * (1 - rate), rel=0.1)
    assert (sizes == 0).mean() == pytest.approx((1 - rate) ** units, abs=0.01)
    # Neither units nor steps depend on each other.
    between = np.corrcoef(drawn.T) - np.eye(units)
    assert np.abs(between).max() < 5 / np.sqrt(steps)
    assert abs(np.corrcoef(sizes[:-1], sizes[1:])[0, 1]) < 4 / np.sqrt(steps)
    assert np.array_equal(chance.drawn(7, units=units, rate=rate), np.flatnonzero(drawn[7]))
    assert chance.drawn(3, units=units, rate=1.0).tolist() == list(range(units))


def test_noise_is_gaussian_of_its_own_for_each_step_and_key():
    def noise(key, step, deviation=2.0):
        network = torch.nn.Linear(200, 100)
        network.bias.requires_grad_(False)
        PrivateRandomness(key).add_noise(network, step, deviation)
        assert network.bias.grad is None
        return network.weight.grad.flatten()

    first = noise(1, 0)
    assert float(first.mean()) == pytest.approx(0, abs=0.06)
    assert float(first.std()) == pytest.approx(2, rel=0.02)
    assert float((first.abs() < 2).float().mean()) == pytest.approx(0.6827, abs=0.015)
    assert torch.equal(first, noise(1, 0))
    for other in (noise(1, 1), noise(2, 0)):
        assert abs(float(torch.corrcoef(torch.stack([first, other]))[0, 1])) < 0.03


def test_noise_is_added_to_what_is_there():
    network = torch.nn.Linear(3, 2)
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    PrivateRandomness(1).add_noise(network, 0, 0.0)
    assert all(bool((parameter.grad == 1).all()) for parameter in network.parameters())
    PrivateRandomness(1).add_noise(network, 0, 1e-6)
    assert all(bool((parameter.grad.round() == 1).all()) for parameter in network.parameters())
