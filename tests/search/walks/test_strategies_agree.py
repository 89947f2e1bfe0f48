"""All strategies over the frontier give one answer, brute force's, on formats and models that Hypothesis makes."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine import Format, ScriptedModel
from coalmine.models import CharacterTokenizer
from coalmine.randomness import arrays
from coalmine.search.tree.token_tree import TokenTree
from coalmine.search.walks.bounded import BoundedSearch
from coalmine.search.walks.enumeration import enumerate_members, enumerate_unit, split_into_units
from coalmine.search.walks.frontier import Frontier
from coalmine.search.walks.guided import draw_members
from coalmine.search.walks.shortest_path import ShortestPaths
from coalmine.statistics import guided_exposures
from models.random_networks import random_model
from oracles import brute_force_bits

CHARACTERS = "0123456789abc "
WORDS = ["a", "ab", "abc", "b", "bc", "c0"]

# A format, and a beginning that narrows it down to what can be enumerated: of a card number, all but the last digits.
cards = st.integers(10**12, 10**13 - 1).map(lambda digits: (Format("{card}"), str(digits)))
others = st.one_of(
    st.sampled_from(
        [
            "n {digits:2}",
            "{hex:1}{choice:a|ab|c}",
            "{re:(a|b|ab|c0){1,3}}",
            "{re:a?b?c?0?1?}c",
            "{digits:1} {digits:1}",
        ]
    ).map(Format),
    st.integers(1, 2).map(lambda number: Format(f"{{word:{number}}}", words=WORDS)),
    st.sets(st.text("abc01", min_size=1, max_size=5), min_size=2, max_size=30).map(
        lambda texts: Format("{choice:" + "|".join(sorted(texts)) + "}")
    ),
).map(lambda form: (form, ""))

scripted = st.builds(
    lambda memory, frequencies: ScriptedModel(
        CHARACTERS + "defn", {text: weight / 64 for text, weight in memory.items()}, frequencies
    ),
    st.dictionaries(st.text("abc0", min_size=1, max_size=6), st.integers(1, 9), max_size=4),
    st.dictionaries(st.sampled_from(CHARACTERS), st.integers(1, 4)),
)
networks = st.builds(
    lambda architecture, seed: random_model(
        architecture, CharacterTokenizer(CHARACTERS + "defn"), dtype=torch.float64, seed=seed
    ),
    st.sampled_from(["lstm", "gru", "cnn", "transformer"]),
    st.integers(0, 1000),
)


@settings(max_examples=60)
@given(
    formed=st.one_of(cards, others),
    model=st.one_of(scripted, networks),
    batch=st.integers(1, 40),
    budget=st.integers(0, 30),
    place=st.floats(0, 1),
)
def test_one_answer(formed, model, batch, budget, place):
    form, known = formed
    tree = TokenTree(form, model.tokenizer, given=known)
    members = np.arange(tree.first_index, tree.first_index + tree.size)
    costs = np.array([brute_force_bits(model, form.at(int(member))) for member in members])
    assert all(form.at(int(member)).startswith(known) for member in members)
    near = model.resolution_bits

    def frontier():
        return Frontier(model, tree, batch=batch)

    leaves = list(enumerate_members(frontier()))
    found = dict(
        zip(
            np.concatenate([x.indices for x in leaves]),
            np.concatenate([x.costs for x in leaves]),
            strict=True,
        )
    )
    assert sorted(found) == members.tolist()
    assert np.abs(np.array([found[member] for member in members]) - costs).max() < near

    whole = frontier()
    units, above = split_into_units(whole, most_members=4)
    counted = len(above.costs) + sum(len(x.costs) for unit in units for x in enumerate_unit(whole, unit))
    assert counted == tree.size

    threshold = np.sort(costs)[int(place * (len(costs) - 1))] + near
    rank = int((costs <= threshold).sum())
    bounded = BoundedSearch(frontier(), np.array([threshold]))
    bounded.start()
    bounded.run(most_expansions=budget)
    (bounds,) = bounded.bounds()
    assert bounds.least <= rank <= bounds.most
    if len(bounded.open):
        assert_guided_agrees(bounded, threshold, rank)
    bounded.run()
    assert bounded.known.tolist() == [rank]

    top = min(5, tree.size)
    expected = np.sort(costs)[:top]
    paths = ShortestPaths(frontier(), top)
    paths.start()
    assert paths.run()
    best = [one.log_perplexity_bits for one in paths.found()]
    assert np.abs(np.array(best) - expected).max() < near


def assert_guided_agrees(bounded, threshold, rank):
    draws = draw_members(bounded.frontier, bounded.open, 300, arrays(0, "agree"), bounded.limit)
    (bounds,) = bounded.bounds()
    (estimate,) = guided_exposures(
        np.array([threshold]),
        draws.costs,
        draws.log2_weights,
        log2_most_weight=draws.most_log2_weight(np.array([threshold])),
        known=[max(1, bounds.least)],
        most_rank=[max(1, bounds.most)],
        size=bounded.frontier.tree.size,
        confidence=1 - 1e-9,  # so sure that no example may ever be outside
    )
    # The canary is always known to count; here no canary is, so a rank of 1 may be counted once too often.
    exposure = np.log2(bounded.frontier.tree.size) - np.log2(rank)
    assert estimate.low - 1e-9 <= exposure <= estimate.high + 1 + 1e-9
