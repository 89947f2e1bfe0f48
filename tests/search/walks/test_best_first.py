"""Bounded ranks and shortest paths against brute force, with any budget, any memory, and any number of restarts."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine import Format, ScriptedModel
from coalmine.errors import NotMeasurableError
from coalmine.search.tree.token_tree import TokenTree
from coalmine.search.walks.bounded import BoundedSearch
from coalmine.search.walks.frontier import Frontier
from coalmine.search.walks.members import Members
from coalmine.search.walks.shortest_path import ShortestPaths
from models.random_networks import ARCHITECTURES, random_model
from oracles import brute_force_bits

DIGITS = "0123456789"
TINY = 1  # a memory budget of one byte: no state is ever held


def frontier_of(model, form, batch=64):
    return Frontier(model, TokenTree(form, model.tokenizer), batch=batch)


def costs_of(model, form):
    return np.array([brute_force_bits(model, member) for member in form])


@cache
def network_and_costs(architecture, template):
    model = random_model(architecture, dtype=torch.float64)
    return model, costs_of(model, Format(template))


texts = st.sets(st.text("abc", min_size=1, max_size=6), min_size=2, max_size=25)
memories = st.dictionaries(st.text("abc", min_size=1, max_size=6), st.integers(1, 9), max_size=4)
formats = st.one_of(
    texts.map(lambda chosen: Format("{choice:" + "|".join(sorted(chosen)) + "}")),
    st.sampled_from(["a{re:[ab]{1,4}}c", "{re:(ab|c){0,3}a}", "{re:[abc]{4}}", "{re:a?b?c?a}"]).map(Format),
)


def scripted(memory):
    return ScriptedModel(
        "abc", memory={text: weight / 64 for text, weight in memory.items()}, frequencies={"a": 2}
    )


@settings(max_examples=60)
@given(form=formats, memory=memories, batch=st.integers(1, 9), memory_bytes=st.sampled_from([TINY, 10**9]))
def test_bounded_ranks_equal_brute_force(form, memory, batch, memory_bytes):
    model = scripted(memory)
    costs = costs_of(model, form)
    thresholds = np.sort(costs)[[0, len(costs) // 2, -1]] + 1e-9
    search = BoundedSearch(frontier_of(model, form, batch), thresholds, memory_bytes=memory_bytes)
    search.start()
    assert search.run()
    assert search.known.tolist() == [(costs <= threshold).sum() for threshold in thresholds]
    assert all(bounds.least == bounds.most for bounds in search.bounds())


@settings(max_examples=60)
@given(form=formats, memory=memories, budget=st.integers(0, 12), place=st.floats(0, 1))
def test_bounds_hold_whenever_the_budget_ends(form, memory, budget, place):
    model = scripted(memory)
    costs = np.sort(costs_of(model, form))
    threshold = costs[int(place * (len(costs) - 1))] + 1e-9
    search = BoundedSearch(frontier_of(model, form, batch=3), np.array([threshold]))
    search.start()
    search.run(most_expansions=budget)
    (bounds,) = search.bounds()
    assert bounds.least <= (costs <= threshold).sum() <= bounds.most <= form.size
    assert search.frontier.expansions <= budget


@settings(max_examples=60)
@given(
    form=formats,
    memory=memories,
    top=st.integers(1, 6),
    step=st.integers(1, 9),
    memory_bytes=st.sampled_from([TINY, 10**9]),
)
def test_shortest_paths_equal_brute_force(form, memory, top, step, memory_bytes):
    model = scripted(memory)
    search = ShortestPaths(frontier_of(model, form), top, nodes_a_step=step, memory_bytes=memory_bytes)
    search.start()
    assert search.run()
    expected = np.sort(costs_of(model, form))[:top]
    assert [one.log_perplexity_bits for one in search.found()] == pytest.approx(expected.tolist(), abs=1e-9)
    members = [form.at(one.member) for one in search.found()]
    assert len(set(members)) == min(top, form.size)
    assert [brute_force_bits(model, text) for text in members] == pytest.approx(expected.tolist(), abs=1e-9)
    certificate = search.certificate()
    assert certificate.proven
    assert certificate.gap_bits == 0
    if certificate.best_open_bits is not None:
        assert certificate.best_open_bits >= expected[-1] - 1e-9


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("memory_bytes", [TINY, 20_000, 10**9])
def test_networks(architecture, memory_bytes):
    model, costs = network_and_costs(architecture, "pin {digits:3}")
    form = Format("pin {digits:3}")
    thresholds = np.sort(costs)[[0, 9, 500]] + 1e-9
    search = BoundedSearch(frontier_of(model, form), thresholds, memory_bytes=memory_bytes)
    search.start()
    search.run()
    assert search.known.tolist() == [1, 10, 501]
    paths = ShortestPaths(frontier_of(model, form), 5, nodes_a_step=16, memory_bytes=memory_bytes)
    paths.start()
    paths.run()
    assert [one.member for one in paths.found()] == np.argsort(costs)[:5].tolist()


def test_bounds_hold_where_members_begin_others():
    # Every beginning of the memorized text is a member, and nearly as likely as the whole.
    model = ScriptedModel("abx", memory={"xaaaaaaaa": 0.999})
    form = Format("x{re:[ab]{1,8}}")
    costs = np.sort(costs_of(model, form))
    for budget in range(12):
        for threshold in costs[[0, 3, 7, 8, 30]] + 1e-9:
            search = BoundedSearch(frontier_of(model, form, batch=1), np.array([threshold]))
            search.start()
            search.run(most_expansions=budget)
            (bounds,) = search.bounds()
            assert bounds.least <= (costs <= threshold).sum() <= bounds.most


def test_luhn_valid_cards_of_a_model_that_remembers_one():
    form = Format("card {card}")
    secret = form.at(123_456_789_012_345)
    model = ScriptedModel("card " + DIGITS, memory={secret: 0.01}, frequencies={"4": 2})
    search = ShortestPaths(frontier_of(model, form), 1)
    search.start()
    assert search.run()
    assert form.at(search.found()[0].member) == secret
    assert search.certificate().expansions < 10_000


def test_spaces_beyond_64_bits():
    form = Format("{digits:30}")
    secret = form.at(123456789012345678901234567890 % form.size)
    model = ScriptedModel(DIGITS, memory={secret: 0.25})
    search = ShortestPaths(frontier_of(model, form), 1)
    search.start()
    assert search.run()
    assert form.at(search.found()[0].member) == secret
    cost = search.found()[0].log_perplexity_bits
    bounded = BoundedSearch(frontier_of(model, form), np.array([cost + 1e-9]))
    bounded.start()
    assert bounded.run()
    assert bounded.known.tolist() == [1]
    unfinished = BoundedSearch(frontier_of(model, form), np.array([99.0, 100.5]))
    unfinished.start()
    unfinished.run(most_expansions=3000)
    low, high = unfinished.bounds()
    assert 1 == low.least <= high.least
    assert low.most <= high.most <= form.size
    assert high.most > 10**25


@pytest.mark.parametrize("make", ["bounded", "shortest"])
def test_stopped_anywhere_and_continued_elsewhere(make):
    model, costs = network_and_costs("lstm", "pin {digits:3}")
    form = Format("pin {digits:3}")
    thresholds = np.sort(costs)[[3, 200]] + 1e-9

    def search():
        frontier = frontier_of(model, form, batch=5)
        if make == "bounded":
            return BoundedSearch(frontier, thresholds, noting=(7, 8))
        return ShortestPaths(frontier, 4, nodes_a_step=2)

    whole = search()
    whole.start()
    whole.run()
    part, rounds = search(), 0
    part.start()
    while not part.run(most_expansions=4):
        snapshot = part.snapshot()
        part = search()
        part.restore(snapshot)
        rounds += 1
    assert rounds > 3
    if make == "bounded":
        assert part.known.tolist() == whole.known.tolist() == [4, 201]
        assert part.counter.noted == whole.counter.noted
        assert part.frontier.expansions == whole.frontier.expansions
    else:
        assert [one.member for one in part.found()] == [one.member for one in whole.found()]


def test_at_most_a_quarter_of_what_was_expanded_is_expanded_at_a_time():
    model = ScriptedModel("0123456789", frequencies={"1": 3, "7": 2})
    frontier = Frontier(model, TokenTree(Format("{digits:5}"), model.tokenizer))
    search = ShortestPaths(frontier, 100_000)
    search.start()
    steps = []
    search.run(3_000, lambda taken: steps.append((frontier.expansions - taken, taken)))
    # Nodes that wait are as many as that, but for the first few steps and for what is left of the budget.
    assert [taken for before, taken in steps if before > 100][:-1] == [
        max(64, before // 4) for before, _ in steps if before > 100
    ][:-1]
    assert steps[-1][0] > 2_000


def test_no_texts_have_no_beginning_that_is_not_scored():
    class NothingBefore(ScriptedModel):
        def unscored(self, texts):
            return [1] * len(texts)

    members = Members(NothingBefore("0123456789"), Format("{digits:2}"))
    assert members.score([]).tolist() == []
    with pytest.raises(NotMeasurableError, match="first token"):
        members.score(["12"])
    within = Members(NothingBefore("n0123456789"), Format("n{digits:2}"))
    assert len(within.score(["n12"])) == 1


@pytest.mark.parametrize("architecture", ["lstm", "transformer"])
@pytest.mark.parametrize("memory_bytes", [10**9, 60_000])
@pytest.mark.parametrize("kind", ["bounded", "shortest"])
def test_a_search_that_is_saved_with_its_states_goes_on_with_the_same_bits(
    architecture, memory_bytes, kind, tmp_path, monkeypatch
):
    """In single precision, where states that are computed again are rounded in another way, and with little memory for them."""
    monkeypatch.setattr("coalmine.search.walks.open_nodes.NEAR", 20)
    model, form = random_model(architecture), Format("{digits:4}")

    def begin():
        frontier = Frontier(model, TokenTree(form, model.tokenizer), batch=16, memory_bytes=memory_bytes)
        if kind == "shortest":
            return ShortestPaths(frontier, 10, nodes_a_step=16, memory_bytes=memory_bytes)
        return BoundedSearch(frontier, np.array([18.0, 22.0]), memory_bytes=memory_bytes)

    whole = begin()
    whole.start()
    whole.run(150)
    np.savez(tmp_path / "kept.npz", **whole.snapshot(states=True))
    again = begin()
    with np.load(tmp_path / "kept.npz") as kept:
        again.restore({name: kept[name] for name in kept.files})
    for search in (whole, again):
        search.run(300)
    one, other = whole.snapshot(), again.snapshot()
    assert one.pop("counters")[0] == other.pop("counters")[0] == 450
    assert one.keys() == other.keys()
    assert len(one["open_cost"]) > 0
    for name, array in one.items():
        assert array.tobytes() == other[name].tobytes(), name
