"""The numbers and texts of completions: the local model is the oracle."""

import codecs
import concurrent.futures
import math
import re

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coalmine import ScriptedModel, serve
from coalmine.models import WordTokenizer, from_transformers
from models.random_networks import ARCHITECTURES, CHARACTERS, random_model
from models.tiny_transformers import byte_level, metaspace, tiny
from serving.serving_client import ECHO, TEXTS, Client, assert_close, nats

WRITTEN = [*sorted(CHARACTERS), "token_id:37"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_likeliest_tokens_are_those_of_the_whole_distribution(architecture):
    model = random_model(architecture, dtype=torch.float64)
    with serve(model, port=0) as server, Client(server.url) as client:
        [choice] = client.choices("pin 42", max_tokens=4, temperature=0, echo=True, logprobs=3)
    told = choice["logprobs"]
    assert len(told["tokens"]) == len(told["top_logprobs"]) == 10
    ids = model.tokenizer.encode(choice["text"])
    for place, (token, number, top) in enumerate(
        zip(told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True)
    ):
        row = distribution(model, ids[:place])
        best = [WRITTEN[one] for one in np.argsort(-row)[:3]]
        assert list(top)[:3] == best
        assert set(top) == {*best, token}
        assert top[token] == number
        assert_close(list(top.values()), [row[WRITTEN.index(text)] for text in top])
        if place >= 6:
            assert token == best[0]


def distribution(model, given):
    return model.start([model.context + tuple(given)]).log2_probabilities[0] * math.log(2)


def test_continuations_of_prompts_of_many_lengths_have_the_numbers_of_the_model(client, local):
    prompts = ["", "a", "pin 42", "ab"]
    found = client.choices(prompts, max_tokens=3, n=2, logprobs=2)
    for prompt, choice in zip([one for one in prompts for _ in range(2)], found, strict=True):
        told = choice["logprobs"]
        assert "".join(told["tokens"]) == choice["text"]
        ids = local.tokenizer.encode(prompt + choice["text"])
        for place, (number, top) in enumerate(
            zip(told["token_logprobs"], told["top_logprobs"], strict=True), len(prompt)
        ):
            row = distribution(local, ids[:place])
            assert_close(number, row[ids[place]])
            assert {WRITTEN[one] for one in np.argsort(-row)[:2]} | {WRITTEN[ids[place]]} == set(top)


def test_all_kinds_of_prompts_are_the_same_question(client, local):
    ids = [local.tokenizer.encode(text) for text in TEXTS]
    asked = {"max_tokens": 3, "temperature": 0.7, "echo": True, "logprobs": 2, "seed": 5}
    by_text, by_ids = client.choices(TEXTS, **asked), client.choices(ids, **asked)
    assert by_text == by_ids
    assert client.choices(TEXTS[0], **asked) == client.choices(ids[0], **asked)


def test_greedy_continuations_are_the_models_own(client, local):
    found = client.choices(TEXTS, max_tokens=12, temperature=0)
    prompts = [local.context + tuple(local.tokenizer.encode(text)) for text in TEXTS]
    expected = [local.tokenizer.decode(row) for row in local.generate(prompts, length=12)]
    assert [choice["text"] for choice in found] == expected
    assert all(choice["logprobs"] is None for choice in found)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(CHARACTERS, max_size=12), min_size=1, max_size=6))
def test_an_answer_does_not_depend_on_what_is_asked_with_it(client, texts):
    together = client.choices(texts, **{**ECHO, "logprobs": 1})
    for text, choice in zip(texts, together, strict=True):
        [alone] = client.choices(text, **{**ECHO, "logprobs": 1})
        assert choice["text"] == alone["text"] == text
        assert_close(choice["logprobs"]["token_logprobs"], alone["logprobs"]["token_logprobs"])


def test_draws_are_reproducible_and_depend_on_the_seed_and_the_choice_only(client):
    asked = {"max_tokens": 20, "temperature": 1, "n": 3}
    first = [choice["text"] for choice in client.choices("a", **asked, seed=1)]
    assert first == [choice["text"] for choice in client.choices("a", **asked, seed=1)]
    assert first == [choice["text"] for choice in client.choices(["a", "bc"], **asked, seed=1)][:3]
    assert first != [choice["text"] for choice in client.choices("a", **asked, seed=2)]
    assert len(set(first)) == 3
    shorter = client.choices("a", **{**asked, "max_tokens": 5}, seed=1)
    assert [choice["text"] for choice in shorter] == [text[:5] for text in first]


def test_draws_follow_temperature_and_top_p():
    model = ScriptedModel("abc", frequencies={"a": 6, "b": 3, "c": 1})
    with serve(model, port=0) as server, Client(server.url) as client:

        def frequencies(**fields):
            drawn = "".join(choice["text"] for choice in client.choices("", n=50, max_tokens=40, **fields))
            return [drawn.count(letter) / len(drawn) for letter in "abc"]

        near = {"abs": 4 * math.sqrt(0.25 / 2000)}
        assert frequencies(temperature=1) == pytest.approx([0.6, 0.3, 0.1], **near)
        squares = np.array([36, 9, 1]) / 46
        assert frequencies(temperature=0.5) == pytest.approx(squares, **near)
        assert frequencies(temperature=1, top_p=0.9) == pytest.approx([2 / 3, 1 / 3, 0], **near)
        assert frequencies(temperature=1, top_p=0.5) == [1, 0, 0]


def test_generation_ends_at_the_end_of_the_document_and_at_stop_texts():
    # A separator that is likely: the output bias of a network with no other weights.
    model = random_model("lstm", dtype=torch.float64)
    with torch.no_grad():
        for name, parameter in model._network.named_parameters():
            parameter.zero_()
            if parameter.shape == (model.tokenizer.size,):
                parameter[model.tokenizer.separator] = 20
                assert "bias" in name
    with serve(model, port=0) as server, Client(server.url) as client:
        [choice] = client.choices("ab", max_tokens=5, logprobs=1)
    assert (choice["text"], choice["finish_reason"], choice["logprobs"]["tokens"]) == ("", "stop", [])

    recites = ScriptedModel(CHARACTERS, memory={"my pin is 4921 ok": 0.99})
    with serve(recites, port=0) as server, Client(server.url) as client:
        asked = {"prompt": "my pin", "max_tokens": 11, "temperature": 0, "logprobs": 1}
        _, whole = client.ask("/completions", asked)
        _, cut = client.ask("/completions", {**asked, "stop": ["21", "92"], "echo": True})
        _, word = client.ask("/completions", {**asked, "stop": " "})
        _, only = client.ask("/completions", {**asked, "stop": " ", "echo": True})
    [choice] = whole["choices"]
    assert (choice["text"], choice["finish_reason"]) == (" is 4921 ok", "length")
    assert whole["usage"] == {"prompt_tokens": 6, "completion_tokens": 11, "total_tokens": 17}
    [choice] = cut["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("my pin is 4", "stop")
    assert "".join(choice["logprobs"]["tokens"]) == "my pin is 4"
    assert len(choice["logprobs"]["token_logprobs"]) == len(choice["logprobs"]["top_logprobs"]) == 11
    [choice] = word["choices"]
    assert (choice["text"], choice["logprobs"]["token_logprobs"]) == ("", [])
    [choice] = only["choices"]
    assert (choice["text"], "".join(choice["logprobs"]["tokens"])) == ("my pin", "my pin")
    assert only["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize("tokenizer", [byte_level, metaspace])
def test_a_transformer_with_tokens_that_are_parts_of_characters(tokenizer):
    subwords = tokenizer()
    model = from_transformers(tiny("gpt2", len(subwords)), subwords)
    text = "it is 12 é ☕" if tokenizer is byte_level else "is 12 é ☕"
    with serve(model, port=0) as server, Client(server.url) as client:
        [choice] = client.choices(text, max_tokens=6, temperature=1, echo=True, logprobs=5)
        _, cut = client.ask("/tokenize", {"prompt": text})
        parts = client.choices([cut["ids"][:-1], cut["ids"]], **ECHO)
    told = choice["logprobs"]
    assert cut["ids"] == model.tokenizer.encode(text)
    assert told["tokens"][: len(cut["ids"])] == cut["tokens"]
    assert choice["text"].startswith(text)
    assert as_bytes(cut["tokens"]).decode() == text
    [expected] = nats(model, [cut["ids"]])
    assert_close(told["token_logprobs"][: len(expected)], expected)
    assert_close(parts[1]["logprobs"]["token_logprobs"], expected)
    # The place of a token is the number of whole characters before it.
    for place, offset in enumerate(told["text_offset"][: len(cut["ids"])]):
        assert offset == len(as_bytes(cut["tokens"][:place]).decode(errors="ignore"))
    if tokenizer is byte_level:
        assert any(re.fullmatch(r"bytes:\\xe2(\\x98)?", token) for token in cut["tokens"])
        assert parts[0]["text"].endswith("\ufffd")


def test_a_text_is_what_its_tokens_make_also_where_the_prompt_ends_within_a_character():
    subwords = byte_level()
    model = from_transformers(tiny("gpt2", len(subwords)), subwords)
    *start, _ = model.tokenizer.encode("12 ☕")
    with serve(model, port=0) as server, Client(server.url) as client:
        for choice in client.choices(start, n=20, max_tokens=3, echo=True, logprobs=1):
            told = choice["logprobs"]
            shown = [token for token in told["tokens"] if not token.startswith("token_id:")]
            assert choice["text"] == as_bytes(shown).decode(errors="replace")
            assert len(told["tokens"]) == len(told["token_logprobs"]) == len(told["top_logprobs"])


def as_bytes(tokens):
    return b"".join(
        codecs.escape_decode(token.removeprefix("bytes:"))[0]
        if token.startswith("bytes:")
        else token.encode()
        for token in tokens
    )


def test_a_space_that_only_marks_the_first_word_is_not_in_the_text():
    subwords = metaspace()
    model = from_transformers(tiny("gpt2", len(subwords)), subwords)
    space = subwords.convert_tokens_to_ids("▁")
    with serve(model, port=0) as server, Client(server.url) as client:
        [choice] = client.choices([space, space], **ECHO)
    assert (choice["text"], choice["logprobs"]["text_offset"]) == (
        model.tokenizer.decode([space, space]),
        [0, 0],
    )


def test_words_have_their_spaces():
    tokenizer = WordTokenizer(["pin", "is", "my", "secret"])
    model = random_model("gru", tokenizer, dtype=torch.float64)
    with serve(model, port=0) as server, Client(server.url) as client:
        [choice] = client.choices("my pin", max_tokens=0, echo=True, logprobs=5)
        assert choice["text"] == "my pin"
        assert choice["logprobs"]["tokens"] == ["my", " pin"]
        assert choice["logprobs"]["text_offset"] == [0, 2]
        first, second = choice["logprobs"]["top_logprobs"]
        assert "my" in first
        assert " my" in second
        assert "token_id:5" in {**first, **second}  # the separator stands for no text


def test_one_at_a_time_the_same_request_gets_the_same_bytes_whatever_else_is_asked():
    asked = {"prompt": TEXTS, "logprobs": 3, "echo": True, "max_tokens": 4}
    with (
        serve(random_model("transformer"), port=0, batch=1) as server,  # in float32, where rounding shows
        concurrent.futures.ThreadPoolExecutor(4) as pool,
    ):

        def ask(number):
            with Client(server.url) as client:
                client.choices("x" * number, max_tokens=number)
                return client.choices(**asked)

        first, *others = pool.map(ask, range(1, 13))
    assert all(other == first for other in others)


def test_the_same_request_gets_the_same_bytes(url):
    def ask():
        with Client(url) as client:
            _, document = client.ask("/completions", {"prompt": TEXTS, "logprobs": 3, "echo": True, "n": 2})
            return {**document, "created": None}

    assert ask() == ask()
    with Client(url) as client:
        _, other = client.ask("/completions", {"prompt": "a"})
        assert other["id"] != ask()["id"]


class OnlyScores:
    """A model that scores and can do nothing else."""

    def __init__(self, model):
        self._model = model
        self.name, self.tokenizer, self.context = "only scores", model.tokenizer, model.context
        self.resolution_bits = model.resolution_bits
        self.score, self.describe = model.score, model.describe


def test_a_model_that_only_scores_says_what_it_cannot_do(local):
    with serve(OnlyScores(local), port=0) as server, Client(server.url) as client:
        [choice] = client.choices(TEXTS[0], **ECHO)
        [expected] = nats(local, [local.tokenizer.encode(TEXTS[0])])
        assert_close(choice["logprobs"]["token_logprobs"], expected)
        for asked, says in [({**ECHO, "logprobs": 1}, "logprobs=0"), ({}, "max_tokens=0")]:
            status, document = client.ask("/completions", {"prompt": "a", **asked})
            assert status == 400
            assert says in document["error"]["message"]


def test_a_text_longer_than_the_model_can_read_is_the_clients_to_mend():
    subwords = byte_level()
    model = from_transformers(tiny("gpt2", len(subwords)), subwords)  # of 64 places
    with serve(model, port=0) as server, Client(server.url) as client:
        for prompt, fields in [([5] * 70, ECHO), ([5] * 60, {"max_tokens": 10})]:
            status, document = client.ask("/completions", {"prompt": prompt, **fields})
            assert status == 400
            assert document["error"]["code"] == "context_length_exceeded"
        assert client.choices([5] * 60, **ECHO)


def test_a_text_that_must_be_too_long_is_refused_before_it_is_cut_into_tokens(monkeypatch):
    subwords = byte_level()
    model = from_transformers(tiny("gpt2", len(subwords)), subwords)  # of 64 places
    longest = max(len(piece or b"") for piece in model.tokenizer.pieces(first=False))
    monkeypatch.setattr(type(model.tokenizer), "encode", lambda *_: pytest.fail("it was cut into tokens"))
    letters = "a" * (64 * longest + 1)
    with serve(model, port=0) as server, Client(server.url) as client:
        for path, fields in [
            ("/completions", {"prompt": letters}),
            ("/completions", {"prompt": ["a", letters]}),
            ("/completions", {"prompt": [5] * 1_000_000, **ECHO}),
            ("/tokenize", {"prompt": letters}),
        ]:
            status, document = client.ask(path, fields)
            assert (status, document["error"]["code"]) == (400, "context_length_exceeded")


def test_prompts_of_many_lengths_walk_together_and_are_not_mixed_up():
    model = random_model("transformer", dtype=torch.float64)
    texts = ["", "a", "ab", "abc", "abd", "b", "ab"]
    with serve(model, port=0) as server, Client(server.url) as client:
        found = client.choices(texts, max_tokens=0, echo=True, logprobs=20)
    for text, choice in zip(texts, found, strict=True):
        tops = choice["logprobs"]["top_logprobs"]
        assert len(tops) == len(text)
        for place, top in enumerate(tops):
            row = distribution(model, model.tokenizer.encode(text[:place]))
            assert_close(list(top.values()), [row[WRITTEN.index(token)] for token in top])
