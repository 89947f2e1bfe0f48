"""What ghost clipping does not know goes to the loop, with the reason; what it knows besides whole networks is right."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from coalmine.errors import InputError
from coalmine.training.private.clipping.clipping import clipping_for
from training.private.clipped import assert_becomes_loop, assert_ghost_is_loop

UNITS = ([0, 0, 1, 2], 3)
ROWS, TIME, WIDTH = 4, 3, 6


def read(seed=0):
    return torch.randn(ROWS, TIME, WIDTH, generator=torch.Generator().manual_seed(seed)).double()


def losses_of(network, values=None):
    values = read() if values is None else values
    return lambda: (network(values) ** 3).reshape(ROWS, -1).sum(1)


class Net(nn.Module):
    """A linear layer, what the test is about, and a function of all."""

    def __init__(self, forward, **layers):
        super().__init__()
        torch.manual_seed(4)
        self.first = nn.Linear(WIDTH, WIDTH)
        for name, layer in layers.items():
            self.add_module(name, layer)
        self._function = forward
        self.double()

    def forward(self, values):
        return self._function(self, self.first(values))


class BentRMSNorm(nn.Module):
    """Has the name of a norm that ghost clipping knows, and mixes its weights."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH))

    def forward(self, values):
        return values * self.weight.cumsum(0)


class ScaledLinear(nn.Linear):
    def forward(self, values):
        return 2 * super().forward(values)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.GroupNorm(1, WIDTH), "GroupNorm is not a known layer (last)"),
        (ScaledLinear(WIDTH, 2), "ScaledLinear is not a known layer (last)"),
        (nn.Conv1d(WIDTH, WIDTH, 1, groups=2), "Conv1d is not known where it has groups (last)"),
        (nn.Conv1d(WIDTH, 2, 3, padding=1), "Conv1d is not known where it pads what it reads (last)"),
        (nn.LSTM(WIDTH, 2, bidirectional=True), "LSTM is not known where it reads in both directions (last)"),
        (nn.LSTM(WIDTH, 4, proj_size=2), "LSTM is not known where it projects its state (last)"),
        (nn.GRU(WIDTH, 2, bias=False), "GRU is not known where it has no biases (last)"),
        (
            nn.LayerNorm((TIME, WIDTH)),
            "LayerNorm is not known where it normalizes more than one dimension (last)",
        ),
        (
            nn.RMSNorm((TIME, WIDTH)),
            "RMSNorm is not known where it normalizes more than one dimension (last)",
        ),
        (nn.Embedding(5, 2, sparse=True), "Embedding is not known where its gradients are sparse (last)"),
    ],
)
def test_layers_without_a_rule(layer, reason):
    clipping = clipping_for(Net(None, last=layer))
    assert (clipping.name, clipping.reason, clipping.units_at_once) == ("loop", reason, 1)


def test_layers_whose_code_was_replaced():
    network = Net(None, last=nn.Linear(WIDTH, 2))
    network.last.forward = lambda values: values
    assert clipping_for(network).reason == "Linear has a forward function of its own (last)"


def test_recurrent_layers_of_which_some_weights_are_frozen():
    network = Net(None, last=nn.LSTM(WIDTH, 2))
    network.last.bias_hh_l0.requires_grad_(False)
    assert "some of its weights are trained and others are not" in clipping_for(network).reason


@pytest.mark.parametrize(
    ("forward", "layers", "reason"),
    [
        (lambda net, x: x * net.first.bias, {}, "first.bias is used outside of its layer"),
        (
            lambda net, x: x * net.last(x.flatten(0, 1)[1:-1]).sum(),
            {"last": nn.Linear(WIDTH, 2)},
            "of shape (10, 6)",
        ),
        (lambda net, x: net.last(x.flatten(0, 1)), {"last": nn.Linear(WIDTH, 2)}, "of shape (12, 6)"),
        (
            lambda net, x: net.last(x.transpose(0, 1))[0].transpose(0, 1),
            {"last": nn.LSTM(WIDTH, 2, batch_first=True)},
            "LSTM does not",
        ),
        (lambda net, x: net.last(x), {"last": BentRMSNorm()}, "not those of autograd"),
        (lambda net, x: x + net.last(torch.arange(TIME)), {"last": nn.Embedding(5, WIDTH)}, "of shape (3,)"),
        (lambda net, x: x * net.last(x[0].T).sum(), {"last": nn.Conv1d(WIDTH, 2, 1)}, "of shape (6, 3)"),
    ],
    ids=["outside", "chosen places", "flattened", "time first", "own norm", "ids", "one row"],
)
def test_passes_that_rules_do_not_expect(forward, layers, reason):
    network = Net(forward, **layers)
    assert_becomes_loop(network, losses_of(network), *UNITS, reason)


def test_rows_taken_for_something_else_are_noticed():
    # As many places as rows: the shapes fit.
    network = Net(lambda net, x: net.last(x.transpose(0, 1)).transpose(0, 1), last=nn.Linear(WIDTH, 2))
    values = torch.randn(ROWS, ROWS, WIDTH).double()
    assert_becomes_loop(network, lambda: (network(values) ** 3).sum((1, 2)), *UNITS, "not those of autograd")


def test_a_weight_that_is_used_in_several_ways():
    network = Net(lambda net, x: net.wide(net.last(x)[0]), last=nn.LSTM(WIDTH, 2), wide=nn.Linear(2, 8))
    network.wide.weight = network.last.weight_hh_l0
    network.last.batch_first = True
    assert_becomes_loop(network, losses_of(network), *UNITS, "a weight is used in several ways")


@pytest.mark.parametrize(
    ("forward", "layers"),
    [
        (lambda net, x: net.last(F.relu(net.last(x))), {"last": nn.Linear(WIDTH, WIDTH)}),
        (lambda net, x: net.last(x), {"last": nn.RMSNorm(WIDTH)}),
        (lambda net, x: net.last(x), {"last": nn.LayerNorm(WIDTH, bias=False)}),
        (lambda net, x: net.last(x.mean(1)), {"last": nn.Linear(WIDTH, 3, bias=False)}),
        (lambda net, x: net.last(x.unflatten(2, (2, 3))), {"last": nn.LayerNorm(3)}),
        (lambda net, x: net.last(input=x.transpose(0, 1))[0].transpose(0, 1), {"last": nn.LSTM(WIDTH, 2)}),
        (lambda net, x: net.last(x)[1][0], {"last": nn.GRU(WIDTH, 2, batch_first=True)}),
        (lambda net, x: net.last(x)[1][1][0], {"last": nn.LSTM(WIDTH, 2, batch_first=True)}),
        (lambda net, x: net.last(x.mT), {"last": nn.Conv1d(WIDTH, 2, 2, stride=2)}),
        (
            lambda net, x: x * net.last((x[..., 0] > 0).long()),
            {"last": nn.Embedding(3, WIDTH, padding_idx=1)},
        ),
        (lambda net, x: x * net.last(torch.arange(TIME)[None]), {"last": nn.Embedding(3, WIDTH)}),
    ],
    ids=[
        "reused",
        "rms norm",
        "no bias",
        "one place",
        "four dimensions",
        "time first",
        "last of gru",
        "last cell",
        "stride",
        "padding",
        "shared ids",
    ],
)
def test_uses_of_layers(forward, layers):
    network = Net(forward, **layers)
    assert_ghost_is_loop(network, losses_of(network), *UNITS)


def test_frozen_layers_are_left_alone():
    network = Net(
        lambda net, x: net.last(net.known(x)), known=nn.GroupNorm(1, TIME), last=nn.Linear(WIDTH, 2)
    )
    for weight in (*network.first.parameters(), *network.known.parameters(), network.last.bias):
        weight.requires_grad_(False)
    assert_ghost_is_loop(network, losses_of(network), *UNITS)
    assert network.last.bias.grad is None


def test_a_network_that_cannot_learn_is_refused():
    with pytest.raises(InputError, match="no trainable parameters: unfreeze"):
        clipping_for(nn.Linear(2, 2).requires_grad_(False))


def test_norms_of_halves_are_those_of_single_precision():
    network = Net(lambda net, x: net.last(x), last=nn.Linear(WIDTH, 2)).bfloat16()
    values, units = read().bfloat16(), torch.tensor(UNITS[0])
    losses = lambda: (network(values) ** 2).sum((1, 2))  # noqa: E731
    ghost = clipping_for(network)
    norms = ghost.add_clipped(losses, units, 3, 0.1)
    assert ghost.name == "ghost"
    assert norms.dtype == torch.float32
    exact = network.double()
    values = values.double()
    wanted = clipping_for(exact).add_clipped(lambda: (exact(values) ** 2).sum((1, 2)), units, 3, 0.1)
    torch.testing.assert_close(norms.double(), wanted, rtol=0.05, atol=0)


def test_gradients_that_are_not_finite_show_in_the_norms():
    network = Net(lambda net, x: net.last(x), last=nn.Linear(WIDTH, 2))
    values = read()
    values[0, 0, 0] = float("inf")
    norms = clipping_for(network).add_clipped(losses_of(network, values), torch.tensor(UNITS[0]), 3, 1.0)
    assert norms.isfinite().tolist() == [False, True, True]
