"""Ranks with the tokenizers of Llama 3, Mistral and SmolLM2 are those of a plain loop over what each one's own library reads."""

import math

import numpy as np
import pytest
import torch

from coalmine import CanarySet, Format, expose, extract, load_model
from coalmine.models.transformers.chat import rendered_chat
from coalmine.records.chat import Frame, Turn
from coalmine.search.tree.token_tree import TokenTree
from models.real_tokenizers import own_encoder, save_real

# Tekken's vocabulary is as large as that of Llama 3, and its digits are single as those of the others are.
NAMES = ("Llama 3", "Mistral v3", "SmolLM2")
ALL = (*NAMES, "Tekken")
ENDING = Format("my pin is {digits:4}")
FRAME = Frame(kind="messages", role="assistant", place="own", before=(Turn("user", "What is it?"),))


@pytest.fixture(scope="module")
def audited(request, tmp_path_factory):
    """A tiny Llama with a real tokenizer, loaded from its directory, and the costs of texts by plain loops."""
    directory = save_real(tmp_path_factory.mktemp("real") / "model", request.param)
    model = load_model(directory, precision="float64")
    return model, Plainly(model.network.model, *own_encoder(request.param)), request.param, directory


class Plainly:
    """Bits of texts: every distinct beginning is read from the start by transformers alone, without any cache."""

    def __init__(self, network, encode, first):
        self.network, self.encode, self.first = network, encode, first
        self.tokens = {}

    @torch.inference_mode()
    def costs(self, texts, before=None):
        """From each text to its bits after a document separator, or after some tokens."""
        before = [self.first] if before is None else before
        rows = {text: [*before, *self.tokens_of(text)] for text in texts}
        following = {}
        for row in rows.values():
            for place in range(len(before), len(row)):
                following.setdefault(tuple(row[:place]), set()).add(row[place])
        bits = {}
        for length in {len(beginning) for beginning in following}:
            group = [beginning for beginning in following if len(beginning) == length]
            for start in range(0, len(group), 64):
                some = group[start : start + 64]
                logits = self.network(input_ids=torch.tensor(some), use_cache=False, logits_to_keep=1).logits
                found = torch.log_softmax(logits[:, -1], dim=-1) / -math.log(2)
                for beginning, row in zip(some, found, strict=True):
                    tokens = sorted(following[beginning])
                    bits |= {
                        (beginning, token): bit
                        for token, bit in zip(tokens, row[tokens].tolist(), strict=True)
                    }
        return {
            text: sum(bits[tuple(row[:place]), row[place]] for place in range(len(before), len(row)))
            for text, row in rows.items()
        }

    def tokens_of(self, text):
        if text not in self.tokens:
            self.tokens[text] = self.encode(text)
        return self.tokens[text]


def ranks(costs, texts):
    values = np.array(sorted(costs.values()))
    return [int(np.searchsorted(values, costs[text] + 1e-9, side="right")) for text in texts]


def canaries_of(form, costs, frame=None):
    """The likeliest members, the least likely one, and some between them."""
    ordered = sorted(costs, key=costs.__getitem__)
    found = CanarySet.of(form, [ordered[place * (len(ordered) - 1) // 5] for place in range(6)])
    return CanarySet(list(found), found.formats, frame=frame)


@pytest.mark.parametrize("audited", NAMES, indirect=True)
def test_ranks_are_those_of_a_plain_loop(audited):
    model, plainly, _, directory = audited
    costs = plainly.costs(list(ENDING))
    canaries = canaries_of(ENDING, costs)
    texts = [canary.text for canary in canaries]
    truth = ranks(costs, texts)
    exact = expose(model, canaries, method="exact")
    assert [result.rank for result in exact] == truth
    assert [one.log_perplexity_bits for one in exact] == pytest.approx(
        [costs[text] for text in texts], abs=1e-6
    )
    likeliest = sorted(costs, key=costs.__getitem__)[:3]
    # Without a context, a model with a chat template is asked about a turn.
    plain = load_model(directory, precision="float64", context="bos")
    assert [one.text for one in extract(plain, ENDING, top=3).found] == likeliest


@pytest.mark.parametrize("audited", NAMES, indirect=True)
def test_ranks_where_a_hole_is_at_the_beginning(audited):
    model, plainly, *_ = audited
    assert_ranks(model, plainly, Format("{digits:3}."), "exact")


@pytest.mark.parametrize("audited", ALL, indirect=True)
def test_ranks_where_literals_are_inside(audited):
    model, plainly, *_ = audited
    assert_ranks(model, plainly, Format("My SSN is {re:(07[89]|21[0-9])-05-1[0-9]20}."), "bounded")


def assert_ranks(model, plainly, form, method):
    costs = plainly.costs(list(form))
    canaries = canaries_of(form, costs)
    truth = ranks(costs, [canary.text for canary in canaries])
    assert [result.rank for result in expose(model, canaries, method=method)] == truth


@pytest.mark.parametrize("audited", ALL, indirect=True)
def test_ranks_of_turns(audited):
    model, plainly, name, _ = audited
    form = Format("my pin is {digits:3}")
    tokenizer = model.chat._tokenizer
    before = rendered_chat(tokenizer, FRAME.before, generation_prompt=True)
    given = tokenizer(before, add_special_tokens=False)["input_ids"]
    costs = plainly.costs(list(form), before=given)
    canaries = canaries_of(form, costs, FRAME)
    truth = ranks(costs, [canary.text for canary in canaries])
    assert [result.rank for result in expose(model, canaries, method="exact")] == truth, name


@pytest.mark.parametrize("audited", ALL, indirect=True)
def test_nine_digits_are_walked(audited):
    model, plainly, *_ = audited
    form = Format("my number is {digits:9}.")
    tree = TokenTree(form, model.tokenizer)
    for text in form.sample(200, seed=5):
        tokens = plainly.encode(text)
        index = tree.index_of(text)
        assert [*tree.prefix, *tree.tokens_to(index, len(tokens) - len(tree.prefix))] == tokens
        assert tree.text_at(index) == text


@pytest.mark.parametrize("audited", ["Mistral v3"], indirect=True)
def test_guided_draws_agree_with_exact_ranks(audited):
    model, *_ = audited
    form = Format("my number is {digits:4}")
    canaries = CanarySet.of(form, form.sample(8, seed=1))
    exact = {one.canary_id: one for one in expose(model, canaries, method="exact")}
    estimated = expose(model, canaries, method="guided", budget=400, seed=4)
    assert any(one.rank is None for one in estimated)  # not all of them are proven
    inside = [
        one.interval[0] - 1e-9 <= exact[one.canary_id].exposure <= one.interval[1] + 1e-9 for one in estimated
    ]
    assert sum(inside) >= 7
