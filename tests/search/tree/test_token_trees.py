"""Members by their numbers in a tree of tokens: numbers, texts, tokens and places in the format agree, also after a beginning."""

import itertools
import math

import numpy as np
import pytest

from coalmine import Format
from coalmine.errors import CoalmineError
from coalmine.models import CharacterTokenizer
from coalmine.search.tree import canonical, token_tree
from coalmine.search.tree.token_tree import TokenTree
from search.hashed_model import subwords

TOKENIZERS = {"characters": lambda: CharacterTokenizer("pin 0123456789ab"), "subwords": subwords}
SMALL = [
    ("pin {digits:3}", ("", "pin", "pin 1", "pin 12")),
    ("{re:(12|3|4|00){1,4}}", ("", "12", "0")),
    ("{re:a?b?a?b?(pin)?[0-3]{0,2}}{choice:a|b}", ("", "a", "ab")),
]
CASES = [(template, given) for template, beginnings in SMALL for given in beginnings]


@pytest.fixture(params=["listed", "followed"])
def tree_of(request, monkeypatch):
    """Trees whose paths are written out member by member, and those of spaces that are too large for that."""
    if request.param == "followed":
        monkeypatch.setattr(token_tree, "LISTED_UP_TO", 0)
        monkeypatch.setattr(token_tree, "LISTED_IF_NEEDED_UP_TO", 0)
    return TokenTree


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize(("template", "given"), CASES)
def test_every_member_has_its_number_tokens_and_place(tree_of, kind, template, given):
    form, tokenizer = Format(template), TOKENIZERS[kind]()
    tree = tree_of(form, tokenizer, given=given)
    members = [text for text in form if text.startswith(given)]
    assert tree.size == len(members)
    numbers = list(range(tree.first_index, tree.first_index + tree.size))
    assert tree.first_index == form.index(members[0])
    texts = [tree.text_at(number) for number in numbers]
    assert sorted(texts) == sorted(members)
    assert [tree.index_of(text) for text in texts] == numbers
    places = tree.places(np.array(numbers, dtype=tree.index_type))
    assert places.tolist() == [form.index(text) for text in texts]
    paths = []
    for number, text in zip(numbers, texts, strict=True):
        tokens = tokenizer.encode(text)
        paths.append(tokens[len(tree.prefix) :])
        assert [*tree.prefix, *tree.tokens_to(number, len(paths[-1]))] == tokens
    # Behind each node members are consecutive: the paths are in an order in which none that begins alike is apart.
    for depth in range(1, 4):
        beginnings = [tuple(path[:depth]) for path in paths if len(path) >= depth]
        changes = sum(one != other for one, other in itertools.pairwise(beginnings))
        assert changes == max(0, len(set(beginnings)) - 1)


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize(("template", "given"), CASES)
def test_nodes_stops_and_depths_are_those_of_the_paths(tree_of, kind, template, given):
    tokenizer, form = TOKENIZERS[kind](), Format(template)
    tree = tree_of(form, tokenizer, given=given)
    rows = [tokenizer.encode(text)[len(tree.prefix) :] for text in form if text.startswith(given)]
    inner = {tuple(row[:depth]) for row in rows for depth in range(len(row))}
    assert tree.inner_nodes == len(inner)
    assert tree.depth == max(map(len, rows))
    members = set(map(tuple, rows))
    stops = [sum(tuple(row[:depth]) in members for depth in range(len(row))) for row in rows]
    assert tree.most_stops == max(stops)
    assert tree.members[0] == tree.size
    assert tree.log2_members[0] == pytest.approx(math.log2(tree.size))
    assert all(
        len(set(column)) == 1
        for column in zip(
            *[tokenizer.encode(text)[: len(tree.prefix)] for text in form if text.startswith(given)],
            strict=True,
        )
    )
    firsts = {row[0] for row in rows if row}
    assert len(firsts) > 1 or () in members


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("template", ["pin {digits:12}", "pin {digits:30}", "{re:(12|3|4|00){1,90}}"])
@pytest.mark.parametrize("beginning", [False, True])
def test_spaces_that_are_too_large_to_list(kind, template, beginning):
    form, tokenizer = Format(template), TOKENIZERS[kind]()
    given = "pin 120" if "pin" in template else "12"
    tree = TokenTree(form, tokenizer, given=given if beginning else "")
    step = tree.size // 7
    numbers = [tree.first_index + place for place in (0, 1, step, 3 * step + 5, tree.size - 1)]
    texts = [tree.text_at(number) for number in numbers]
    assert [tree.index_of(text) for text in texts] == numbers
    assert tree.places(np.array(numbers, dtype=tree.index_type)).tolist() == [
        form.index(text) for text in texts
    ]
    for number, text in zip(numbers, texts, strict=True):
        tokens = tokenizer.encode(text)
        assert [*tree.prefix, *tree.tokens_to(number, len(tokens) - len(tree.prefix))] == tokens


def test_beginnings_of_no_member_and_of_a_single_whole_one_are_refused():
    form = Format("pin {digits:2}")
    for given, words in (("pan", "no member"), ("pin 12", "already a whole member")):
        with pytest.raises(CoalmineError, match=words):
            TokenTree(form, TOKENIZERS["characters"](), given=given)
    assert TokenTree(Format("{re:1[23]?}"), TOKENIZERS["characters"](), given="1").size == 3


def test_a_format_with_too_many_pairs_of_tokens_is_listed_or_refused_instead_of_asked_about_for_minutes(
    monkeypatch,
):
    form = Format("pin {digits:3}")
    monkeypatch.setattr(canonical, "MOST_PAIRS", 3)
    monkeypatch.setattr(token_tree, "LISTED_UP_TO", 0)
    assert TokenTree(form, subwords()).size == 1000
    monkeypatch.setattr(token_tree, "LISTED_IF_NEEDED_UP_TO", 0)
    with pytest.raises(
        CoalmineError, match=r"its tokens make more than 3 pairs.*splitting, sampled and references"
    ):
        TokenTree(form, subwords())
