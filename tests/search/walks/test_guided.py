"""Guided draws: each member is drawn with the very probability that its weight says, whatever part was expanded before."""

import numpy as np
import pytest
import torch

from coalmine import Format, ScriptedModel
from coalmine.randomness import arrays
from coalmine.search.tree.token_tree import TokenTree
from coalmine.search.walks.bounded import BoundedSearch
from coalmine.search.walks.enumeration import enumerate_members
from coalmine.search.walks.frontier import Frontier
from coalmine.search.walks.guided import draw_members
from models.random_networks import random_model


def searched(model, form, limit, budget):
    frontier = Frontier(model, TokenTree(form, model.tokenizer), batch=50)
    search = BoundedSearch(frontier, np.array([limit]))
    search.start()
    search.run(most_expansions=budget)
    return search


def costs_of(model, form):
    frontier = Frontier(model, TokenTree(form, model.tokenizer))
    costs = np.empty(form.size)
    for leaves in enumerate_members(frontier):
        costs[leaves.indices] = leaves.costs
    return costs


CASES = [
    (
        ScriptedModel("ab0123456789", memory={"a7": 0.25, "ab": 0.125}, frequencies={"3": 4}),
        Format("a{digits:2}"),
    ),
    (ScriptedModel("abc", memory={"abc": 0.25}, frequencies={"a": 3}), Format("{re:a?b?c?a?b?c}")),
    (ScriptedModel("abc", memory={"abab": 0.25}, frequencies={"a": 3}), Format("{re:(a|b|ab|abc){1,4}}")),
    (random_model("gru", dtype=torch.float64), Format("pin {digits:2}")),
]


@pytest.mark.parametrize(("model", "form"), CASES)
@pytest.mark.parametrize("budget", [0, 3, 9])
def test_draws_come_as_often_as_their_weights_say(model, form, budget):
    search = searched(model, form, np.inf, budget)
    if not len(search.open):
        pytest.skip("the budget was enough to expand everything")
    number = 40_000
    draws = draw_members(search.frontier, search.open, number, arrays(1, "test"), np.inf)
    assert len(draws.indices) == number
    costs = costs_of(model, form)
    assert draws.costs == pytest.approx(costs[draws.indices.astype(int)], abs=1e-9)
    members, first, times = np.unique(draws.indices.astype(int), return_index=True, return_counts=True)
    expected = number * np.exp2(-draws.log2_weights[first])
    # Poisson-like counts: five standard deviations and a little for the rarest.
    assert np.all(np.abs(times - expected) <= 5 * np.sqrt(expected) + 5)
    # The probabilities of all members that can be drawn sum to one.
    below = 2**draws.log2_members
    assert below == pytest.approx(form.size - search.known[0], rel=1e-9)
    if len(members) == round(below):
        assert np.exp2(-draws.log2_weights[first]).sum() == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(("model", "form"), CASES)
@pytest.mark.parametrize("budget", [0, 5])
def test_the_estimate_of_a_rank_is_unbiased_and_weights_are_bounded(model, form, budget):
    costs = np.sort(costs_of(model, form))
    threshold = costs[len(costs) // 3] + 1e-9
    search = searched(model, form, threshold, budget)
    if not len(search.open):
        pytest.skip("the budget was enough to prove the rank")
    draws = draw_members(search.frontier, search.open, 60_000, arrays(2, "test"), threshold)
    counts = draws.costs <= threshold
    values = np.where(counts, np.exp2(draws.log2_weights), 0)
    error = values.std() / np.sqrt(len(values))
    truth = (costs <= threshold).sum()
    assert abs(search.known[0] + values.mean() - truth) <= 4.5 * error + 1e-9
    (most,) = draws.most_log2_weight(np.array([threshold]))
    assert draws.log2_weights[counts].max(initial=-np.inf) <= most + 1e-9


# A member of each that weighs as much as any of its cost could.
HEAVIEST = [
    # A memory in a large space: drawn by the model half of the time, by chance hardly ever. (The other half of what the model
    # writes is not a member.)
    (
        ScriptedModel("0123456789x", memory={"123456": 0.25, "x": 0.5}, frequencies={"x": 2.0**-30}),
        Format("{digits:6}"),
        "123456",
    ),
    # At each of three states a member may end and this one continues.
    (ScriptedModel("abcdefghij", memory={"defaced": 0.5}), Format("{re:[a-j]{4,7}}"), "defaced"),
    # The model never comes there; one draw in ten does, by chance.
    (ScriptedModel("0123456789", frequencies={"9": 2.0**-60}), Format("{digits:2}"), "99"),
]


@pytest.mark.parametrize(("model", "form", "member"), HEAVIEST)
@pytest.mark.parametrize("budget", [0, 2])
def test_the_bound_on_weights_holds_and_is_reached(model, form, member, budget):
    """Intervals are proven from this bound: one that is too low makes them wrong, and one that is too high makes them wide."""
    search = searched(model, form, np.inf, budget)
    draws = draw_members(search.frontier, search.open, 20_000, arrays(6, "test"), np.inf)
    drawn = draws.indices.astype(int) == form.index(member)
    assert drawn.any()
    (most,) = draws.most_log2_weight(draws.costs[drawn][:1])
    assert draws.log2_weights[drawn][0] == pytest.approx(most, abs=0.001)
    assert draws.log2_weights[drawn][0] <= most + 1e-9
    # And it holds for each other member, at its own cost.
    assert np.all(draws.log2_weights <= draws.most_log2_weight(draws.costs) + 1e-9)


def test_same_seed_same_draws():
    model, form = CASES[3]
    one, two = (
        draw_members(s.frontier, s.open, 500, arrays(3, "test"), np.inf)
        for s in (searched(model, form, np.inf, 4), searched(model, form, np.inf, 4))
    )
    assert (one.indices == two.indices).all()
    assert (one.log2_weights == two.log2_weights).all()


@pytest.mark.parametrize(("number", "parts"), [(8_000, 1), (20_000, 3)])
def test_shared_prefixes_are_asked_once_in_each_part(number, parts):
    model = ScriptedModel("0123456789")
    search = searched(model, Format("{digits:3}"), np.inf, 0)
    draw_members(search.frontier, search.open, number, arrays(4, "test"), np.inf)
    assert search.frontier.expansions == parts * (10 + 100)


def test_draws_leave_the_nodes_open():
    model, form = CASES[3]
    search = searched(model, form, np.inf, 4)
    before = len(search.open)
    draw_members(search.frontier, search.open, 500, arrays(3, "test"), np.inf)
    assert len(search.open) == before
    assert search.run()
    assert search.known[0] == form.size
