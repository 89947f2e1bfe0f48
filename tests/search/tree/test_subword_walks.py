"""Walks in subword tokens: every member's path is what the tokenizer makes of its full string, or the walk is refused."""

from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from coalmine import CanarySet, Format, expose, extract
from coalmine.errors import InputError, ModelError
from coalmine.models import SubwordTokenizer, check_model, from_transformers, text_sequence
from coalmine.search.tree import token_tree
from coalmine.search.tree.byte_automaton import ByteAutomaton
from coalmine.search.tree.piecewise import follow_pieces, wrong_path
from coalmine.search.tree.token_states import count_members, without_dead_ends
from coalmine.search.tree.token_tree import TokenTree
from models.tiny_transformers import byte_fallback, byte_level, tiny, unigram, with_added, word_pieces
from oracles import brute_force_bits, brute_force_ranks
from search import random_tokenizers

SETTINGS = settings(max_examples=40, suppress_health_check=list(HealthCheck))


@contextmanager
def listed_up_to(size, if_needed):
    """Other limits for what is written out member by member."""
    before = token_tree.LISTED_UP_TO, token_tree.LISTED_IF_NEEDED_UP_TO
    token_tree.LISTED_UP_TO, token_tree.LISTED_IF_NEEDED_UP_TO = size, if_needed
    try:
        yield
    finally:
        token_tree.LISTED_UP_TO, token_tree.LISTED_IF_NEEDED_UP_TO = before


def nothing_listed():
    """As for spaces that are too large to write out."""
    return listed_up_to(0, 0)


def subwords(chosen) -> SubwordTokenizer:
    separator = chosen.bos_token_id if chosen.bos_token_id is not None else chosen.eos_token_id
    return SubwordTokenizer(chosen.backend_tokenizer, size=len(chosen), separator=separator)


def audited(chosen, **options):
    return from_transformers(tiny("gpt2", len(chosen), **options), chosen)


def assert_every_path_is_canonical(tree, tokenizer, indices):
    for index in indices:
        text = tree.text_at(index)
        tokens = tokenizer.encode(text)
        assert [*tree.prefix, *tree.tokens_to(index, len(tokens) - len(tree.prefix))] == tokens
        assert tree.index_of(text) == index
    places = tree.places(np.array(indices, dtype=tree.index_type))
    assert [tree.format.at(int(place)) for place in places] == [tree.text_at(index) for index in indices]


def assert_agrees(form, tokenizer):
    tree = TokenTree(form, tokenizer)
    assert tree.size == form.size
    assert sorted(tree.text_at(index) for index in range(form.size)) == sorted(form)
    assert_every_path_is_canonical(tree, tokenizer, list(range(form.size)))


def agrees_or_refuses(form, tokenizer) -> bool:
    try:
        assert_agrees(form, tokenizer)
    except ModelError:
        return False
    return True


fixed = st.text(random_tokenizers.LETTERS + " ", min_size=1, max_size=4)
holes = st.sampled_from(
    ["[ab1]{1,3}", "[aé☕]{1,3}", "[a1 ]{1,4}", "(ab|a|b1){1,3}", "[é☕]{1,2}", "[1]{1,6}"]
)
unmarked = fixed.filter(lambda text: not text.startswith(" "))


def formats(openings):
    texts = st.sets(openings.filter(lambda text: text.strip() == text), min_size=2, max_size=9)
    return st.one_of(
        texts.map(lambda chosen: Format("{choice:" + "|".join(sorted(chosen)) + "}")),
        st.tuples(openings, holes, fixed).map(lambda parts: Format(f"{parts[0]}{{re:{parts[1]}}}{parts[2]}")),
    )


KINDS = {
    "byte fallback": random_tokenizers.byte_fallback,
    "byte level": random_tokenizers.byte_level,
    "unigram": random_tokenizers.unigram,
    "word pieces": random_tokenizers.word_pieces,
}


@pytest.mark.parametrize("kind", KINDS)
@SETTINGS
@given(data=st.data())
def test_a_small_space_agrees_with_tokenizing_each_member_or_is_refused(kind, data):
    tokenizer = data.draw(KINDS[kind](random_tokenizers.added_tokens))
    form = data.draw(formats(fixed))
    try:
        truth = [tuple(tokenizer.encode(member)) for member in form]
    except ModelError:
        truth = []  # it cannot write a member
    assert agrees_or_refuses(form, tokenizer) == (len(set(truth)) == form.size)


@pytest.mark.parametrize("kind", KINDS)
@SETTINGS
@given(data=st.data())
def test_what_is_not_listed_agrees_or_is_refused(kind, data):
    tokenizer = data.draw(KINDS[kind](random_tokenizers.added_tokens))
    with nothing_listed():
        agreed = agrees_or_refuses(data.draw(formats(fixed)), tokenizer)
    assert not agreed or tokenizer.decided_by_pairs


def paths_of(form, tokenizer):
    states = follow_pieces(form, ByteAutomaton(form.automaton), tokenizer).states
    states = without_dead_ends(states, count_members(states))
    found, pending = [], [(0, ())]
    while pending:
        state, path = pending.pop()
        found += [path] if states[state].is_leaf else []
        pending += [(following, (*path, token)) for token, following, _ in states[state].edges]
    return sorted(found)


@SETTINGS
@given(data=st.data(), added=st.booleans())
def test_pairs_decide_byte_fallback_and_added_tokens(data, added):
    more = random_tokenizers.added_tokens if added else random_tokenizers.NONE
    tokenizer = data.draw(random_tokenizers.byte_fallback(more))
    form = data.draw(formats(unmarked))
    if tokenizer.marks_after_added and any(
        f"{text} " in member for text in tokenizer.added_tokens.values() for member in form
    ):
        return  # some of these tokenizers do not distinguish a space after an added token from none
    assert paths_of(form, tokenizer) == sorted(tuple(tokenizer.encode(member)) for member in form)


@SETTINGS
@given(data=st.data())
def test_pairs_decide_parts_of_characters(data):
    tokenizer = data.draw(random_tokenizers.byte_level(random_tokenizers.added_tokens, splits=("none",)))
    form = data.draw(formats(fixed))
    assert paths_of(form, tokenizer) == sorted(tuple(tokenizer.encode(member)) for member in form)


def test_as_many_paths_as_members_is_not_enough():
    # A merge over a place at which words are split: pairs of tokens take it, inside a character, and the tokenizer never does. Each
    # member has one path, so that the count is right, and the paths are not.
    names = ["<unk>", "<s>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "1â"]
    vocabulary = {name: token for token, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("1", "â")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokens = random_tokenizers.wrapped(tokenizer)
    form = Format("{re:[12]☕[ab]}")
    states = follow_pieces(form, ByteAutomaton(form.automaton), tokens).states
    counts = count_members(states)
    assert counts[0] == form.size
    assert paths_of(form, tokens) != sorted(tuple(tokens.encode(member)) for member in form)
    assert wrong_path(form, tokens, without_dead_ends(states, counts), counts, 0) in {"1☕a", "1☕b"}
    with nothing_listed(), pytest.raises(ModelError, match="other tokenizations than the tokenizer's own"):
        TokenTree(form, tokens)
    assert_agrees(form, tokens)


LARGE = {
    "byte fallback": (byte_fallback, "café {re:[éàü☕ñ]{4}} {digits:9}"),
    "byte fallback, no letters": (byte_fallback, "{re:[☕ü]{3}}{ssn}{re:[é☕ab]{3}}"),
    "byte level": (byte_level, "the random number is {digits:9}"),
    "cyrillic": (byte_level, "мой пароль {re:[б-я]{8}}"),  # noqa: RUF001  # letters of another alphabet
    "uuid": (byte_level, "id {uuid}"),
    "chat": (lambda: with_added(byte_level(), ["<|user|>"], ["<pin>"]), "<|user|>my <pin>is {digits:9}<|user|>"),
    "chat, marked": (lambda: with_added(byte_fallback(), ["<|user|>"]), "<|user|>my pin is {digits:9} é"),
    "by accident": (lambda: with_added(byte_level(), ["ana"], ["nan", "anab"]), "{re:[anb]{14}} {digits:3}"),
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_large_spaces_agree(name):
    make, template = LARGE[name]
    tokenizer, form = subwords(make()), Format(template)
    assert form.size > token_tree.LISTED_IF_NEEDED_UP_TO
    tree = TokenTree(form, tokenizer)
    assert tree.size == form.size
    indices = form.sample_indices(300, seed=3)
    assert_every_path_is_canonical(tree, tokenizer, indices)
    for text in form.sample(300, seed=4):
        assert tree.text_at(tree.index_of(text)) == text


def test_what_pairs_do_not_decide_is_listed_or_refused():
    tokenizer = subwords(unigram())
    assert_agrees(Format("the value is {digits:3}"), tokenizer)
    assert_agrees(Format("caf{choice:é|e|è|☕} {re:[10]{6}}"), tokenizer)
    with pytest.raises(ModelError, match=r"neighboring tokens do not decide.*at most 1,000,000 members"):
        TokenTree(Format("the value is {digits:9}"), tokenizer)


def test_a_space_between_the_two_limits_is_listed_only_where_it_must_be():
    form = Format("the value is {digits:3}")
    with listed_up_to(0, 1000):
        assert_agrees(form, subwords(unigram()))
        assert_agrees(form, subwords(byte_level()))
    with listed_up_to(0, 999), pytest.raises(ModelError, match="too many to list"):
        TokenTree(form, subwords(unigram()))


def test_members_that_the_tokenizer_writes_alike_are_refused():
    tokenizer = subwords(word_pieces())
    assert_agrees(Format("the number is {digits:2}"), tokenizer)
    with pytest.raises(ModelError, match=r"encodes two members of .* as the same tokens"):
        TokenTree(Format("my {choice:PIN|pin} is {digits:1}"), tokenizer)
    with pytest.raises(ModelError, match="no token for a part"):
        TokenTree(Format("{choice:☕|a} is {digits:1}"), tokenizer)


def test_what_is_given_is_text_and_need_not_be_whole_tokens():
    tokenizer = subwords(byte_level())
    form = Format("is {digits:3}")
    for limit in (1000, 0):
        with listed_up_to(limit, limit):
            for known in ("is 1", "is 12", "i", "is 999"[:5]):
                tree = TokenTree(form, tokenizer, given=known)
                expected = [member for member in form if member.startswith(known)]
                numbers = range(tree.first_index, tree.first_index + tree.size)
                assert sorted(tree.text_at(number) for number in numbers) == expected
                assert_every_path_is_canonical(tree, tokenizer, list(numbers))
    with pytest.raises(InputError, match="no member"):
        TokenTree(form, tokenizer, given="of")
    with pytest.raises(InputError, match="whole member"):
        TokenTree(form, tokenizer, given="is 123")


def test_extraction_finds_members_whose_tokens_span_what_was_given():
    model = audited(byte_level())
    form = Format("is {digits:3}")
    costs = {member: brute_force_bits(model, member) for member in form if member.startswith("is 1")}
    expected = sorted(costs, key=costs.__getitem__)[:5]
    assert [one.text for one in extract(model, form, given="is 1", top=5).found] == expected


AUDITED = {
    "byte fallback": (byte_fallback, "caf{re:[éàü☕e]{2}} {digits:1}"),
    "unigram": (unigram, "the value is {digits:2}"),
    "chat": (lambda: with_added(byte_level(), ["<|user|>"], ["12"]), "<|user|> my pin is {digits:2}"),
}  # fmt: skip


@pytest.mark.parametrize("name", AUDITED)
def test_audits_agree_with_scoring_full_strings(name):
    make, template = AUDITED[name]
    model, form = audited(make()), Format(template)
    canaries = CanarySet.of(form, form.sample(4, seed=1, replace=False))
    truth = brute_force_ranks(model, form, [canary.text for canary in canaries])
    assert [result.rank for result in expose(model, canaries, method="exact")] == truth
    assert [result.rank for result in expose(model, canaries, method="bounded", batch=16)] == truth
    costs = {member: brute_force_bits(model, member) for member in form}
    assert [one.text for one in extract(model, form, top=3).found] == sorted(costs, key=costs.__getitem__)[:3]


CONFORMING = {
    "byte fallback": (byte_fallback, ["café ☕ ü", "the 12", "ñ", " two  spaces"]),
    "unigram": (unigram, ["the value of x is 12", "é ☕", "a"]),
    "word pieces": (word_pieces, ["the value of x is 12.", "a, b", "it is so."]),
    "chat": (
        lambda: with_added(byte_level(), ["<|user|>"], ["été ☕", "12"]),
        ["<|user|>hi<|user|>", "il été ☕ 1212", "<|user|> a", "12"],
    ),
    "chat, marked": (
        lambda: with_added(byte_fallback(), ["<|user|>"]),
        ["<|user|>hi<|user|>", "a <|user|>  b", "<|user|> é", "é"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFORMING)
def test_tokenizers_conform(name):
    make, texts = CONFORMING[name]
    tokenizer = subwords(make())
    assert [tokenizer.decode(tokenizer.encode(text)) for text in texts] == texts
    if name != "chat, marked":  # what the word after an added token spells depends on the token before it
        assert check_model(audited(make()), texts) == []


def test_an_encoding_that_drops_what_it_does_not_know_is_refused():
    tokenizer = Tokenizer(models.BPE(vocab={"<s>": 0, "a": 1, "b": 2}, merges=[]))
    tokens = random_tokenizers.wrapped(tokenizer)
    assert tokens.encode("ab") == [1, 2]
    with pytest.raises(ModelError, match="no token for a part"):
        tokens.encode("acb")


def test_a_tokenizer_that_pads_on_the_left_gives_the_same_numbers():
    chosen = byte_level()
    texts = ["the random number is 281265017", "a", "the value of x is 12"]
    model = tiny("llama", len(chosen))
    plain = [brute_force_bits(from_transformers(model, chosen), text) for text in texts]
    padded = with_added(chosen)
    padded.padding_side, padded.pad_token = "left", padded.eos_token
    padded(texts, padding=True)  # its backend keeps padding on the left
    model.config.pad_token_id = padded.pad_token_id
    adapter = from_transformers(model, padded)
    assert [brute_force_bits(adapter, text) for text in texts] == plain
    together = adapter.score([text_sequence(adapter, text) for text in texts])
    assert [score.log_perplexity_bits for score in together] == pytest.approx(plain, abs=1e-9)
    assert check_model(adapter, texts) == []
