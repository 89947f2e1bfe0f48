"""Clipped sums of a network by ghost clipping and by the loop, on the same batch with the same dropout."""

import pytest
import torch
from torch.nn import functional as F

from coalmine.training.private.clipping.clipping import clipping_for
from coalmine.training.private.clipping.loop import LoopClipping

IGNORED = -100
VOCABULARY = 11


def token_batch(rows, time, vocabulary=VOCABULARY, seed=0):
    """Tokens, and the expected ones: rows of unequal length whose padding is ignored, and one row without any loss."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, vocabulary, (rows, time), generator=generator)
    expected = torch.randint(0, vocabulary, (rows, time), generator=generator)
    for row in range(rows):
        expected[row, time - 2 * (row % 3) :] = IGNORED
    expected[-1] = IGNORED
    return tokens, expected


def summed(logits, expected):
    """The loss of each row."""
    return F.cross_entropy(logits.transpose(1, 2), expected, ignore_index=IGNORED, reduction="none").sum(1)


def clipped_by(clipping, network, losses, units, number, clip, lengths=None):
    """The norms, and the gradients by name, which begin at 1 to show that they are added to."""
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
    torch.manual_seed(5)
    norms = clipping.add_clipped(losses, units, number, clip, lengths)
    gradients = {name: each.grad for name, each in network.named_parameters() if each.requires_grad}
    drawn = torch.rand(1)
    return norms, gradients, drawn


def assert_ghost_is_loop(network, losses, units, number, clips=(0.3, 1e6), clipping=None, lengths=None):
    """Norms and sums are equal, to 1e-9 in float64 and 1e-4 in float32, where clipping is active for some units and where it is not."""
    units = torch.tensor(units)
    tolerance = 1e-9 if next(network.parameters()).dtype == torch.float64 else 1e-4
    ghost = clipping or clipping_for(network)
    for clip in clips:
        found, sums, drawn = clipped_by(ghost, network, losses, units, number, clip, lengths)
        loop = LoopClipping(network, "for this test")
        wanted, expected, drawn_by_loop = clipped_by(loop, network, losses, units, number, clip)
        assert ghost.name == "ghost", ghost.reason
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance * float(wanted.max()))
        assert drawn == drawn_by_loop
        for name, gradient in expected.items():
            size = float((gradient - 1).norm())
            apart = float((sums[name] - gradient).norm())
            assert apart <= tolerance * max(size, 1), (name, apart, size)
    return found


def assert_becomes_loop(network, losses, units, number, reason, lengths=None):
    """A loop takes over at the first pass, with the loop's numbers."""
    ghost = clipping_for(network)
    units = torch.tensor(units)
    found, sums, _ = clipped_by(ghost, network, losses, units, number, 1.0, lengths)
    wanted, expected, _ = clipped_by(
        LoopClipping(network, "for this test"), network, losses, units, number, 1.0
    )
    assert ghost.name == "loop"
    assert reason in ghost.reason
    assert ghost.units_at_once == 1
    torch.testing.assert_close(found, wanted)
    for name, gradient in expected.items():
        torch.testing.assert_close(sums[name], gradient)


kinds = pytest.mark.parametrize("kind", [torch.float64, torch.float32])
