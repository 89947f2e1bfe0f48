"""Clipping with a loop over units against units that are trained on alone."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from coalmine.training.private.clipping.loop import LoopClipping

UNITS = torch.tensor([0, 0, 2, 3])


def batch():
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    return network, torch.randn(4, 3).double(), torch.tensor([0, 1, 1, 0])


@pytest.mark.parametrize("clip", [0.1, 100.0])
def test_the_sum_is_that_of_units_alone(clip):
    network, inputs, targets = batch()
    expected, lengths = [0 for _ in network.parameters()], []
    for unit in range(4):
        network.zero_grad()
        rows = unit == UNITS
        if rows.any():
            F.cross_entropy(network(inputs[rows]), targets[rows], reduction="sum").backward()
        alone = [
            torch.zeros_like(each) if each.grad is None else each.grad.clone()
            for each in network.parameters()
        ]
        lengths.append(float(torch.cat([each.flatten() for each in alone]).norm()))
        scale = min(1, clip / lengths[-1]) if lengths[-1] else 1
        expected = [total + scale * each for total, each in zip(expected, alone, strict=True)]
    network.zero_grad()
    clipping = LoopClipping(network, "for this test")
    norms = clipping.add_clipped(
        lambda: F.cross_entropy(network(inputs), targets, reduction="none"), UNITS, 4, clip
    )
    assert norms.tolist() == pytest.approx(lengths)
    for parameter, wanted in zip(network.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, wanted)


def test_it_adds_to_what_is_there_and_needs_no_rows():
    network, _, _ = batch()
    network[0].weight.grad = torch.ones_like(network[0].weight)
    clipping = LoopClipping(network, "for this test")
    norms = clipping.add_clipped(pytest.fail, torch.tensor([], dtype=torch.long), 2, 1.0)
    assert norms.tolist() == [0, 0]
    assert (network[0].weight.grad == 1).all()
    assert (network[2].bias.grad == 0).all()
