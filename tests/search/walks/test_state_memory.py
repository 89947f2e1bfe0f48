"""The states of a walk stay within the memory that it was given, and the numbers are the same."""

import weakref

import numpy as np
import pytest
import torch

from coalmine import Format
from coalmine.corpus import embedded_documents
from coalmine.models import from_transformers, text_sequence
from coalmine.randomness import arrays
from coalmine.search.tree.token_tree import TokenTree
from coalmine.search.walks.bounded import BoundedSearch
from coalmine.search.walks.enumeration import enumerate_members, split_into_units
from coalmine.search.walks.frontier import Frontier
from coalmine.search.walks.guided import draw_members
from coalmine.search.walks.shortest_path import ShortestPaths
from models.tiny_transformers import byte_level, tiny

BUDGET = 24_000_000


class Watch:
    """Counts the bytes of all states that a model has made and that somebody still holds."""

    def __init__(self, model):
        self.model, self.most, self.rows = model, 0, 0
        self._held: dict[int, tuple[weakref.ref, int]] = {}
        for name in ("start", "step"):
            setattr(model, name, self._watched(getattr(model, name), lambda step: step.states))
        model.gather = self._watched(model.gather, lambda states: states)

    def _watched(self, method, states_of):
        def asked(*arguments, **options):
            answer = method(*arguments, **options)
            for part in states_of(answer):
                self._held[id(part)] = weakref.ref(part), part.numel() * part.element_size()
                self.rows = max(self.rows, part.shape[0])
            self._held = {key: held for key, held in self._held.items() if held[0]() is not None}
            self.most = max(self.most, sum(size for _, size in self._held.values()))
            return answer

        return asked


def long_form(tokens=900):
    """A format whose fixed prefix has so many tokens."""
    text = " ".join(embedded_documents(20_000)).replace("{", "").replace("}", "")
    encode = byte_level().backend_tokenizer.encode
    low, high = 0, len(text)
    while low < high:  # the most characters that are no more than these tokens
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(encode(text[:middle]).ids) <= tokens else (low, middle - 1)
    return Format(text[:low].rstrip() + " {digits:2}-{digits:1}")


@pytest.fixture(scope="module")
def model():
    chosen = byte_level()
    return copying(from_transformers(tiny("gpt2", len(chosen), positions=1024, dtype=torch.float32), chosen))


@pytest.fixture(scope="module")
def tree(model):
    tree = TokenTree(long_form(), model.tokenizer)
    assert len(tree.prefix) > 850
    return tree


@pytest.fixture(scope="module")
def costs(model, tree):
    """Of each member, by its number, from a walk that has all the memory it wants."""
    batches = list(enumerate_members(Frontier(model, tree, memory_bytes=10**12)))
    numbers, found = (
        np.concatenate([getattr(one, name) for one in batches]) for name in ("indices", "costs")
    )
    return found[np.argsort(numbers)]


def copying(model):
    """The same model, read as if each row had to have the keys and values of the prefix for itself."""
    model.network.__dict__["sharing"] = None
    return model


def watched(*, shared=False):
    chosen = byte_level()
    model = from_transformers(tiny("gpt2", len(chosen), positions=1024, dtype=torch.float32), chosen)
    return (model, Watch(model)) if shared else (copying(model), Watch(model))


def test_a_walk_without_bounds_takes_more(tree):
    model, watch = watched()
    for _ in enumerate_members(Frontier(model, tree, memory_bytes=10**12)):
        pass
    assert watch.most > 2 * BUDGET
    assert watch.rows > 50


def test_enumeration(tree, costs):
    model, watch = watched()
    frontier = Frontier(model, tree, memory_bytes=BUDGET)
    batches = list(enumerate_members(frontier))
    assert 1 < frontier.batch < 20
    assert watch.rows <= frontier.batch
    assert watch.most <= BUDGET
    numbers, found = (
        np.concatenate([getattr(one, name) for one in batches]) for name in ("indices", "costs")
    )
    assert found[np.argsort(numbers)] == pytest.approx(costs, abs=1e-4)
    units, above = split_into_units(Frontier(model, tree, memory_bytes=BUDGET), most_members=30)
    assert sum(int(tree.members[unit.states[0]]) for unit in units) + len(above.costs) == tree.size
    assert watch.most <= BUDGET


def test_memory_for_less_than_a_row_is_taken_by_one_row_at_a_time(tree, costs):
    model, watch = watched()
    batches = list(enumerate_members(Frontier(model, tree, memory_bytes=1)))
    assert watch.rows == 1
    numbers, found = (
        np.concatenate([getattr(one, name) for one in batches]) for name in ("indices", "costs")
    )
    assert found[np.argsort(numbers)] == pytest.approx(costs, abs=1e-4)


def test_a_prefix_that_is_there_once_leaves_room_for_all_rows(tree, costs):
    model, watch = watched(shared=True)
    one = model.state_bytes(model.start([[*model.context, *tree.prefix]]).states)
    frontier = Frontier(model, tree, memory_bytes=4 * one)
    batches = list(enumerate_members(frontier))
    assert frontier.shared_bytes == one
    # With copies, there would be room for less than one row.
    assert frontier.batch > 20
    assert one < watch.most <= 4 * one
    numbers, found = (
        np.concatenate([getattr(one, name) for one in batches]) for name in ("indices", "costs")
    )
    assert found[np.argsort(numbers)] == pytest.approx(costs, abs=1e-4)
    # Where nearly nothing is left for tails, states are dropped, and read again after the same prefix.
    for memory_bytes in (4 * one, one + 40 * frontier.row_bytes):
        search = BoundedSearch(
            Frontier(model, tree), np.array([float(np.median(costs)) + 1e-3]), memory_bytes=memory_bytes
        )
        search.start()
        assert search.run()
        assert search.known.tolist() == [int((costs <= np.median(costs) + 1e-3).sum())]
    assert watch.most <= 4 * one


def test_a_search_with_a_shared_prefix_is_kept_and_resumed_with_the_same_bytes(tree):
    model, _ = watched(shared=True)
    whole = ShortestPaths(Frontier(model, tree), 5)
    whole.start()
    assert whole.run()
    stopped = ShortestPaths(Frontier(model, tree), 5)
    stopped.start()
    assert not stopped.run(2)
    kept = stopped.snapshot(states=True)
    one = model.state_bytes(model.start([[*model.context, *tree.prefix]]).states)
    # Several blocks of states, and the prefix once.
    assert len(set(kept["state_numbers"].tolist())) > 1
    assert one < kept["state_bytes"].nbytes < 2 * one
    again, watch = watched(shared=True)
    resumed = ShortestPaths(Frontier(again, tree), 5)
    resumed.restore(kept)
    assert resumed.run()
    assert [found.log_perplexity_bits for found in resumed.found()] == [
        found.log_perplexity_bits for found in whole.found()
    ]
    assert watch.most < 2 * one


def test_searches(tree, costs):
    model, watch = watched()
    paths = ShortestPaths(Frontier(model, tree), 5, memory_bytes=BUDGET)
    paths.start()
    assert paths.run()
    assert [one.log_perplexity_bits for one in paths.found()] == pytest.approx(np.sort(costs)[:5], abs=1e-4)
    del paths
    middle = float(np.median(costs)) + 1e-3
    search = BoundedSearch(Frontier(model, tree), np.array([middle]), memory_bytes=BUDGET)
    search.start()
    assert search.run()
    assert search.known.tolist() == [int((costs <= middle).sum())]
    assert watch.most <= BUDGET


def test_draws_behind_waiting_nodes(tree, costs):
    model, watch = watched()
    limit = float(costs.max()) + 1
    search = BoundedSearch(Frontier(model, tree), np.array([limit]), memory_bytes=BUDGET)
    search.start()
    search.run(10)
    draws = draw_members(search.frontier, search.open, 400, arrays(0, "draws"), limit)
    assert len(draws.indices) == 400
    assert draws.costs == pytest.approx(costs[draws.indices], abs=1e-4)
    assert watch.most <= BUDGET


def test_scoring_many_texts_behind_a_long_prefix(model, tree, costs, monkeypatch):
    texts = [tree.text_at(number) for number in range(0, tree.size, 97)]
    sequences = [text_sequence(model, text) for text in texts]
    widest = 0
    network = model._network
    read_hidden = network.read_hidden

    def watched_read(tokens, state, keep):
        nonlocal widest
        widest = max(widest, model.state_bytes(state))
        return read_hidden(tokens, state, keep)

    monkeypatch.setattr("coalmine.models.inference.incremental.STATES_AT_A_TIME", 4_000_000)
    monkeypatch.setattr(network, "read_hidden", watched_read)
    scores = [score.log_perplexity_bits for score in model.score(sequences)]
    assert scores == pytest.approx(costs[: tree.size : 97], abs=1e-4)
    assert 0 < widest <= 2_000_000
    # Contexts with little in common are read in several batches too.
    contexts = [[*model.context, place, *range(5, 305)] for place in range(8)]
    widest = 0
    together = model.start(contexts)
    assert widest <= 2_000_000
    alone = np.concatenate([model.start([context]).log2_probabilities for context in contexts])
    assert together.log2_probabilities == pytest.approx(alone, abs=1e-4)
