"""Nodes that wait, against a sorted list: with so few kept near that most are far, and with states that are held, dropped and read again."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine import Format, ScriptedModel
from coalmine.search.tree.token_tree import TokenTree
from coalmine.search.walks import open_nodes
from coalmine.search.walks.frontier import Frontier
from coalmine.search.walks.open_nodes import OpenNodes

costs = st.lists(st.integers(0, 40), max_size=30)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("add"), costs),
        st.tuples(st.just("take"), st.integers(1, 12), st.integers(0, 45)),
        st.tuples(st.just("discard"), st.integers(0, 45)),
    ),
    max_size=25,
)


@pytest.fixture(autouse=True, scope="module")
def few_are_near():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(open_nodes, "NEAR", 3)
        yield


def frontier(**options):
    model = ScriptedModel("0123456789", frequencies={"3": 5, "7": 2})
    return Frontier(model, TokenTree(Format("{digits:3}"), model.tokenizer), **options)


def nodes(numbers):
    row = np.array(numbers, dtype=np.float64)
    zeros = np.zeros(len(row), dtype=np.int64)
    return {
        "open_cost": row,
        "open_index": zeros,
        "open_state": zeros,
        "open_depth": zeros,
        "open_column": zeros,
    }


@settings(max_examples=300)
@given(operations)
def test_nodes_come_out_as_from_a_sorted_list(steps):
    waiting, oracle = OpenNodes(frontier()), []
    for kind, *arguments in steps:
        if kind == "add":
            waiting.add_arrays(nodes(arguments[0]))
            oracle = sorted([*oracle, *arguments[0]])
        elif kind == "take":
            most, limit = arguments
            taken = sorted(waiting.take(most, limit)["cost"].tolist())
            assert taken == oracle[: len(taken)]
            assert len(taken) <= most
            assert all(cost <= limit for cost in taken)
            assert bool(taken) == (bool(oracle) and oracle[0] <= limit)
            oracle = oracle[len(taken) :]
        else:
            (limit,) = arguments
            beyond = [cost for cost in oracle if cost > limit]
            assert waiting.discard_above(limit) == min(beyond, default=np.inf)
            oracle = [cost for cost in oracle if cost <= limit]
        assert len(waiting) == len(oracle)
        assert waiting.cheapest() == min(oracle, default=np.inf)
        assert sorted(waiting.all()["cost"].tolist()) == oracle


def opened(memory_bytes, batch=4):
    """The nodes below the ten children of the root, whose states are held as far as the memory goes."""
    walked = frontier(batch=batch)
    waiting = OpenNodes(walked, memory_bytes=memory_bytes)
    root = walked.root()
    waiting.add(root, walked.open(walked.children(root)))
    for block in list(waiting.expand(waiting.take(10))):
        waiting.add(block, walked.open(walked.children(block)))
    return walked, waiting


@pytest.mark.parametrize("memory_bytes", [1, 1_000, 3_000, 10**9])
def test_nodes_are_expanded_the_same_whether_their_states_were_held_or_not(memory_bytes):
    walked, waiting = opened(memory_bytes)
    known = dict(zip(waiting.all()["index"].tolist(), waiting.all()["cost"].tolist(), strict=True))
    found = {}
    while len(waiting):
        taken = waiting.take(7)
        for block in waiting.expand(taken):
            leaves = walked.leaves(walked.children(block))
            found |= dict(zip(leaves.indices.tolist(), leaves.costs.tolist(), strict=True))
    model, form = walked.model, walked.tree.format
    assert sorted(found) == list(range(1000))
    for index, cost in found.items():
        assert cost == pytest.approx(model.log_perplexity_bits(form.at(index)), abs=1e-9)
        assert cost >= min(known.values())
    # Whatever was held is held no longer.
    assert (waiting._states, waiting._waiting, waiting._bytes) == ({}, {}, {})


def test_states_that_have_longest_to_wait_are_dropped_first_and_no_more_than_must():
    _, waiting = opened(10**9)
    held = sum(waiting._bytes.values())
    each = max(waiting._bytes.values())
    waiting._drop_states(held - 1)
    assert held - each <= sum(waiting._bytes.values()) <= held - 1
    rows = waiting.all()
    dropped, kept = rows[rows["block"] < 0], rows[rows["block"] >= 0]
    assert set(kept["block"].tolist()) == set(waiting._states)
    # The block that was dropped has no node that is cheaper than the cheapest of any block that was kept.
    cheapest = [kept["cost"][kept["block"] == number].min() for number in waiting._states]
    assert dropped["cost"].min() >= max(cheapest) - 1e-12
    waiting._drop_states(0)
    assert not waiting._states
    assert (waiting.all()["block"] == -1).all()


def test_what_is_saved_comes_back():
    walked, waiting = opened(10**9)
    again = OpenNodes(walked)
    again.add_arrays(waiting.to_arrays())
    for name in ("cost", "index", "state", "depth", "column"):
        assert sorted(again.all()[name].tolist()) == sorted(waiting.all()[name].tolist())
    assert (again.all()["block"] == -1).all()
