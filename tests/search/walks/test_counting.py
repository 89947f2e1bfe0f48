"""Ranks counted between thresholds, and members walked by their numbers, both against plain lists."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine import Format, ScriptedModel
from coalmine.search.tree.token_tree import TokenTree
from coalmine.search.walks import thresholds
from coalmine.search.walks.enumeration import walked_costs
from coalmine.search.walks.frontier import Frontier
from coalmine.search.walks.thresholds import ThresholdCounter, count_ranks
from oracles import brute_force_bits

bits = st.integers(0, 24).map(lambda quarter: quarter / 4)  # few and exact, so that there are ties


@pytest.fixture(autouse=True, scope="module")
def few_are_held():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(thresholds, "HELD", 3)
        yield


@settings(max_examples=300)
@given(
    st.lists(st.tuples(bits, bits), min_size=1, max_size=4),
    st.lists(st.lists(bits, max_size=12), max_size=4),
    st.data(),
)
def test_counts_near_thresholds_are_those_of_a_list(wanted, batches, data):
    limits, margins = (np.array(column) for column in zip(*wanted, strict=True))
    counter = ThresholdCounter(limits, margins)
    for batch in batches:
        counter.add(np.array(batch))
        if data.draw(st.booleans()):
            later = ThresholdCounter(limits, margins)
            later.restore(counter.state())
            counter = later
    every = np.array([cost for batch in batches for cost in batch])
    assert counter.total == len(every)
    assert counter.largest >= (limits + margins).max()
    assert counter.counts.tolist() == [(every <= limit).sum() for limit in limits]
    within = np.array([data.draw(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0])) for _ in wanted]) * margins
    values = np.round((limits + within) * 8) / 8
    values = np.clip(values, limits - margins, limits + margins)
    assert counter.counts_to(values).tolist() == [(every <= value).sum() for value in values]
    assert counter.counts_to(values, equal=False).tolist() == [(every < value).sum() for value in values]


@given(st.lists(st.tuples(st.floats(0.0, 200.0), st.floats(0.0, 10.0)), min_size=1, max_size=4))
def test_the_largest_cost_that_counts_is_the_last_that_is_rounded_to_a_threshold(wanted):
    limits, margins = (np.array(column) for column in zip(*wanted, strict=True))
    counter = ThresholdCounter(limits, margins)
    counter.add(np.nextafter([counter.largest], 0.0))
    assert counter.counts_to(limits + margins + 1.0).max() == 1
    counter.add(np.nextafter([counter.largest], np.inf))
    assert counter.counts_to(limits + margins + 1.0).max() == 1


@settings(max_examples=300)
@given(st.lists(bits, min_size=2, max_size=20), st.data())
def test_ranks_with_a_resolution_count_what_may_lie_on_the_other_side(costs, data):
    """`least` counts what certainly costs less, and ties; `most` what may cost no more; the canary itself is in each."""
    canaries = data.draw(st.lists(st.integers(0, len(costs) - 1), min_size=1, max_size=3, unique=True))
    resolution = np.array([data.draw(st.sampled_from([0.0, 0.25, 1.0])) for _ in canaries])
    # The search that found the threshold may have been off by half a resolution.
    limits = (
        np.array([costs[one] for one in canaries]) + data.draw(st.sampled_from([-0.5, 0.0, 0.5])) * resolution
    )
    every = np.array(costs)
    counter = ThresholdCounter(limits, 2 * resolution, noting=canaries)
    counter.add(every, np.arange(len(every)))
    found = count_ranks(counter, canaries, resolution)
    for place, canary in enumerate(canaries):
        own, near = every[canary], resolution[place]
        assert found.own[place] == own
        assert found.reached[place]
        assert found.rank[place] == (every <= own).sum()
        assert found.least[place] == (every < own - near).sum() + (every == own).sum()
        assert found.most[place] == (every <= own + near).sum()


def test_a_canary_that_was_not_reached_costs_what_its_threshold_says_and_counts_itself():
    counter = ThresholdCounter(np.array([10.0, 12.0]), np.array([1.0, 1.0]), noting=[7, 8])
    counter.add(np.array([9.0, 11.5]), np.array([1, 2]))
    found = count_ranks(counter, [7, 8], np.array([0.5, 0.5]))
    assert found.reached.tolist() == [False, False]
    assert found.own.tolist() == [10.0, 12.0]
    assert found.rank.tolist() == [2, 4]  # itself and one cheaper; itself, the other canary and two cheaper
    assert found.least.tolist() == [2, 3]  # 11.5 is within half a bit of 12
    assert found.most.tolist() == [2, 4]


def test_only_members_that_are_asked_for_are_noted():
    counter = ThresholdCounter(np.array([10.0]), noting=[3, 5])
    counter.add(np.array([1.0, 2.0, 3.0]), np.array([2, 3, 4]))
    counter.add(np.array([4.0]))  # whose they are is not known
    assert counter.noted == {3: 2.0}
    plain = ThresholdCounter(np.array([10.0]))
    plain.add(np.array([1.0]), np.array([3]))
    assert plain.noted == {}


@pytest.mark.parametrize("batch", [1, 2, 64])
@pytest.mark.parametrize(
    "template", ["a{re:(bc)?}", "a{re:b?}", "{digits:2}", "{re:a?b?c?a}", "a{re:(bc|b|c1){0,2}}"]
)
def test_members_cost_what_scoring_them_gives_in_the_order_they_are_asked_for(template, batch):
    model = ScriptedModel("abc0123456789", memory={"abc": 0.25}, frequencies={"1": 3, "b": 2})
    form = Format(template)
    frontier = Frontier(model, TokenTree(form, model.tokenizer), batch=batch)
    numbers = [*reversed(range(form.size)), 0, form.size - 1]
    expected = [brute_force_bits(model, form.at(number)) for number in numbers]
    assert walked_costs(frontier, numbers).tolist() == pytest.approx(expected, abs=1e-9)
