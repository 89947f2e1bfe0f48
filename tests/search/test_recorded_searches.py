"""The same model and format give the same searches as in earlier versions: what they find, what they prove, and what they cost."""

from pathlib import Path

import numpy as np
import pytest

from coalmine import Format, ScriptedModel
from coalmine.errors import InputError
from coalmine.randomness import arrays
from coalmine.search.tree.token_tree import TokenTree
from coalmine.search.walks.beam import free_beam
from coalmine.search.walks.bounded import BoundedSearch
from coalmine.search.walks.enumeration import (
    enumerate_members,
    enumerate_unit,
    split_into_units,
    walked_costs,
)
from coalmine.search.walks.frontier import Frontier
from coalmine.search.walks.guided import draw_members
from coalmine.search.walks.shortest_path import ShortestPaths
from coalmine.search.walks.thresholds import ThresholdCounter, count_ranks
from recorded import assert_as_recorded
from search.hashed_model import Hashed, subwords

FILE = Path(__file__).with_name("recorded_searches.json")


SCRIPTED = ScriptedModel(
    "pin 0123456789ab",
    memory={"pin 4711": 0.01, "pin 0815": 0.002, "pin 12": 0.05, "a": 0.1},
    frequencies={"1": 5, "7": 3, "a": 4},
)
PAIRS = {
    "characters": (SCRIPTED, Format("pin {digits:3}")),
    "characters, some members begin others": (SCRIPTED, Format("{re:a?(pin )?[0-4]{1,4}}")),
    "two members": (SCRIPTED, Format("pin {choice:12|123}")),
    "subwords": (Hashed(subwords()), Format("pin {digits:3}")),
    "subwords, some members begin others": (Hashed(subwords()), Format("{re:(12|3|4|00){1,4}9{0,3}}")),
}


def frontier_of(name, **options):
    model, form = PAIRS[name]
    return Frontier(model, TokenTree(form, model.tokenizer), **options)


def tree_of(name):
    tree = frontier_of(name).tree
    numbers = sorted({0, tree.size // 3, tree.size - 1})
    texts = [tree.text_at(number) for number in numbers]
    return {
        "size": (
            tree.size,
            tree.inner_nodes,
            tree.depth,
            tree.first_index,
            len(tree.is_leaf),
            len(tree.edge_next),
        ),
        "prefix": tree.prefix,
        "members": texts,
        "numbers": [tree.index_of(text) for text in texts],
        "places": tree.places(np.array(numbers, dtype=tree.index_type)),
        "tokens": [tree.tokens_to(number, 1) for number in numbers if tree.depth],
    }


def every_cost(name, **options):
    frontier = frontier_of(name, **options)
    costs = np.full(frontier.tree.size, np.nan)
    for leaves in enumerate_members(frontier):
        costs[leaves.indices.astype(int)] = leaves.costs
    assert not np.isnan(costs).any()
    return frontier, costs


def enumerated(name):
    frontier, costs = every_cost(name)
    small, again = every_cost(name, batch=7, memory_bytes=9_000)
    assert np.allclose(costs, again)
    units, above = split_into_units(frontier_of(name), 40)
    whole = frontier_of(name)
    below = [sum(len(leaves.costs) for leaves in enumerate_unit(whole, unit)) for unit in units]
    assert sum(below) + len(above.costs) == frontier.tree.size
    walked = frontier_of(name, batch=5)
    chosen = list(range(0, frontier.tree.size, 1 + frontier.tree.size // 9))
    assert np.allclose(walked_costs(walked, chosen), costs[chosen])
    return {
        "costs": costs[:: 1 + len(costs) // 8],
        "spent": [(one.expansions, one.reads, one.batch) for one in (frontier, small, walked)],
        "rows": (frontier.row_bytes, frontier.step_bytes),
        "units": [
            [len(unit.costs) for unit in units],
            below[:12],
            len(above.costs),
            whole.expansions,
            whole.reads,
        ],
    }


def shortest(name):
    found = []
    for top, budget, options in (
        (1, None, {}),
        (5, None, {"nodes_a_step": 3}),
        (9, 12, {}),
        (4, None, {"memory_bytes": 6_000}),
    ):
        frontier = frontier_of(name, batch=16)
        search = ShortestPaths(frontier, top, **options)
        search.start()
        settled = search.run(budget)
        found.append((settled, search.found(), search.certificate(), frontier.reads))
    return found


def bounded(name):
    _, costs = every_cost(name)
    thresholds = np.sort(costs)[[0, len(costs) // 50, len(costs) // 4]]
    found = []
    for budget in (0, 5, 30, None):
        frontier = frontier_of(name, batch=16)
        search = BoundedSearch(frontier, thresholds)
        search.start()
        settled = search.run(budget)
        found.append(
            (
                settled,
                search.known,
                search.bounds(),
                [str(most) for most in search.most_below(thresholds + 1.0)],
                frontier.expansions,
                frontier.reads,
            )
        )
    return found


def drawn(name):
    _, costs = every_cost(name)
    frontier = frontier_of(name, batch=16)
    search = BoundedSearch(frontier, np.array([np.inf]))
    search.start()
    search.run(4)
    if not len(search.open):
        return None
    found = draw_members(frontier, search.open, 60, arrays(1, "test"), np.inf)
    limits = np.array([costs.min(), np.median(costs), np.inf])
    return {
        "members": found.indices.astype(int)[:20],
        "costs": found.costs[:20],
        "weights": found.log2_weights[:20],
        "most": found.most_log2_weight(limits),
        "spent": (frontier.expansions, frontier.reads),
    }


def ranked(name):
    _, costs = every_cost(name)
    canaries = list(range(0, len(costs), 1 + len(costs) // 5))
    counter = ThresholdCounter(costs[canaries], margins=np.full(len(canaries), 1.0), noting=canaries[:-1])
    half = len(costs) // 2
    for part in (slice(0, half), slice(half, None)):
        counter.add(costs[part], np.arange(len(costs))[part])
    other = ThresholdCounter(costs[canaries], margins=np.full(len(canaries), 1.0), noting=canaries[:-1])
    other.restore(counter.state())
    # Counted by hand: how many members cost no more, and how many less, than half a bit more than the canary.
    more = costs[canaries] + 0.5
    assert counter.counts_to(more).tolist() == [(costs <= one + 1e-12).sum() for one in more]
    assert (other.total, other.counts.tolist(), other.noted) == (
        counter.total,
        counter.counts.tolist(),
        counter.noted,
    )
    return [counter.largest, count_ranks(counter, canaries, np.full(len(canaries), 0.3)), counter.noted]


SEARCHES = {"tree": tree_of, "enumeration": enumerated, "shortest paths": shortest, "bounds": bounded, "draws": drawn, "ranks": ranked}  # fmt: skip


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", PAIRS)
def test_searches_are_as_they_were(name, search):
    assert_as_recorded(FILE, f"{search} of {name}", SEARCHES[search](name))


@pytest.mark.parametrize("width", [1, 3])
def test_free_beams_are_as_they_were(width):
    model = PAIRS["subwords"][0]
    prompts = [[0, *model.tokenizer.encode(text)] for text in ("pin 12", "pin", "90")]
    assert_as_recorded(FILE, f"beams {width} wide", free_beam(model, prompts, length=4, width=width))


class OnlySteps:
    """A model that is walked and does not score texts."""

    def __init__(self, model):
        self.name, self.context, self.tokenizer = model.name, model.context, model.tokenizer
        self.resolution_bits, self.mixes_depths = model.resolution_bits, model.mixes_depths
        self.describe, self.start, self.step = model.describe, model.start, model.step
        self.gather, self.state_bytes = model.gather, model.state_bytes


@pytest.mark.parametrize("name", ["characters", "subwords", "two members"])
def test_what_all_members_begin_with_costs_the_same_where_it_is_walked(name):
    model, form = PAIRS[name]
    _, costs = every_cost(name)
    walked = Frontier(OnlySteps(model), TokenTree(form, model.tokenizer))
    assert walked.tree.prefix
    for leaves in enumerate_members(walked):
        assert leaves.costs == pytest.approx(costs[leaves.indices.astype(int)], abs=1e-9)


@pytest.mark.parametrize(("rows", "calls"), [(1, 5), (2, 4), (3, 3), (4, 3), (100, 3)])
def test_beams_are_the_same_however_many_prompts_are_followed_at_a_time(monkeypatch, rows, calls):
    model = PAIRS["subwords"][0]
    texts = ("pin 12", "pin", "90", "91", "95")  # of three lengths: three of two tokens, and two others
    prompts = [[0, *model.tokenizer.encode(text)] for text in texts]
    assert sorted(map(len, prompts)) == [2, 3, 3, 3, 4]
    whole = free_beam(model, prompts, length=3, width=2)
    started, start = [], model.start
    monkeypatch.setattr(
        model,
        "start",
        lambda contexts, **options: started.append(len(contexts)) or start(contexts, **options),
    )
    monkeypatch.setattr("coalmine.search.walks.beam.NUMBERS_AT_A_TIME", rows * 2 * model.tokenizer.size)
    found = free_beam(model, prompts, length=3, width=2)
    assert [one.tokens.tolist() for one in found] == [one.tokens.tolist() for one in whole]
    assert (len(started), max(started)) == (calls, min(rows, 3))


@pytest.mark.parametrize("options", [{"width": 0, "length": 1}, {"width": 1, "length": 0}])
def test_beams_of_nothing_are_refused(options):
    with pytest.raises(InputError, match="at least 1"):
        free_beam(PAIRS["subwords"][0], [[0]], **options)
