"""The walk of a format's tree finds every member once, with the cost that scoring its full string gives."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine import Format, ScriptedModel
from coalmine.errors import ModelError, ModelOutputError
from coalmine.models import WordTokenizer
from coalmine.search.tree.token_tree import TokenTree
from coalmine.search.walks.enumeration import enumerate_members, enumerate_unit, split_into_units
from coalmine.search.walks.frontier import Frontier
from models.random_networks import ARCHITECTURES, random_model
from oracles import brute_force_bits

ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz -"


def walk(model, form, batch=2048):
    frontier = Frontier(model, TokenTree(form, model.tokenizer), batch=batch)
    batches = list(enumerate_members(frontier))
    indices = np.concatenate([leaves.indices for leaves in batches])
    costs = np.concatenate([leaves.costs for leaves in batches])
    return indices, costs, frontier


def assert_same_as_scoring(model, form, batch=2048, tolerance=1e-6):
    indices, costs, _ = walk(model, form, batch)
    assert sorted(indices) == list(range(form.size))
    for index, cost in zip(indices, costs, strict=True):
        assert cost == pytest.approx(brute_force_bits(model, form.at(int(index))), abs=tolerance)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("batch", [1, 7, 2048])
def test_every_member_costs_what_its_full_string_costs(architecture, batch):
    model = random_model(architecture, dtype=torch.float64)
    assert_same_as_scoring(model, Format("pin {digits:2} of {choice:ann|al|bo}"), batch, tolerance=1e-9)


@pytest.mark.parametrize(
    "template",
    [
        "{choice:a|ab|abc}",
        "{re:a?b?c?d}",
        "{choice:x|xx|xxx}{choice:x|xx}",
        "a{re:(bc){0,2}}",
        "{re:[0-3]{1,3}}!",
    ],
)
def test_members_that_begin_others_and_texts_made_twice(template):
    model = ScriptedModel("abcdx0123!", memory={"ab": 0.25}, frequencies={"a": 3, "x": 2})
    assert_same_as_scoring(model, Format(template))


def test_luhn_valid_numbers():
    # The last holes of a card number, with the first ones given: what is left must still be Luhn-valid.
    form = Format("4{re:[0-2]{3}}")
    assert_same_as_scoring(ScriptedModel("0123456789", memory={"4012": 0.5}), form)


@settings(max_examples=40)
@given(
    texts=st.sets(st.text("abc", min_size=1, max_size=5), min_size=2, max_size=20),
    memory=st.dictionaries(st.text("abc", min_size=1, max_size=6), st.integers(1, 9), max_size=4),
    batch=st.integers(1, 5),
)
def test_any_finite_set_of_texts(texts, memory, batch):
    weights = {text: weight / 64 for text, weight in memory.items()}
    assert_same_as_scoring(
        ScriptedModel("abc", memory=weights), Format("{choice:" + "|".join(sorted(texts)) + "}"), batch
    )


def test_words_of_a_word_model():
    words = ["a", "number", "of", "the", "words"]
    model = random_model("lstm", WordTokenizer(words), dtype=torch.float64)
    assert_same_as_scoring(model, Format("the {word:2} of", words=words), tolerance=1e-9)


def test_a_million_digits_cost_as_many_expansions_as_there_are_inner_nodes():
    form = Format("n {digits:4}")
    _, _, frontier = walk(ScriptedModel("n 0123456789"), form)
    assert frontier.expansions == 10 + 100 + 1000


def test_a_small_batch_bounds_the_rows_of_a_step():
    model = ScriptedModel("0123456789")
    widest = 0
    step = model.step

    def watched(states, parents, tokens, *, columns=None):
        nonlocal widest
        widest = max(widest, len(tokens))
        return step(states, parents, tokens, columns=columns)

    model.step = watched
    walk(model, Format("{digits:3}"), batch=16)
    assert widest == 16


def test_indices_beyond_64_bits():
    form = Format("{digits:30}")
    tree = TokenTree(form, ScriptedModel("0123456789").tokenizer)
    assert tree.index_type is object
    assert max(tree.edge_offset) == 9 * 10**29


def test_a_vocabulary_that_cannot_write_the_format_is_refused():
    with pytest.raises(ModelError, match=r"81 paths for the 100 members"):
        TokenTree(Format("{digits:2}"), ScriptedModel("012345678").tokenizer)


def test_a_score_that_is_not_finite_is_an_error():
    model = random_model("lstm")
    with torch.no_grad():
        model._network.output.bias[3] = float("nan")
    with pytest.raises(ModelOutputError, match="not finite"):
        walk(model, Format("{digits:2}"))


@pytest.mark.parametrize(("most", "units"), [(1000, 1), (999, 10), (100, 10), (99, 100), (1, 1000)])
def test_units_hold_no_more_members_than_they_may_and_all_of_them_in_order(most, units):
    model = ScriptedModel("0123456789", frequencies={"3": 5})
    form = Format("{digits:3}")
    frontier = Frontier(model, TokenTree(form, model.tokenizer), batch=7)
    parts, above = split_into_units(frontier, most)
    if most > 1:
        assert len(parts) == units
        assert not len(above.indices)
        found = [np.concatenate([b.indices for b in enumerate_unit(frontier, part)]) for part in parts]
        assert [len(one) for one in found] == [1000 // units] * units
        assert np.sort(np.concatenate(found)).tolist() == list(range(1000))
        assert [one.min() for one in found] == sorted(one.min() for one in found)
    else:
        # A single member is not a unit: it is returned next to them.
        assert not parts
        assert np.sort(above.indices).tolist() == list(range(1000))
