"""A model at an endpoint gives the numbers of the model itself."""

import numpy as np
import pytest

from coalmine import ScriptedModel, serve
from coalmine.errors import ModelError, ModelOutputError, NotMeasurableError
from coalmine.models import (
    Generator,
    PartialScorer,
    RemoteModel,
    TextScorer,
    TokenSequence,
    WordTokenizer,
    check_model,
    from_transformers,
    text_sequence,
)
from coalmine.models.endpoints.tokens import LocalTokenizer
from endpoints.fault_proxy import FaultProxy
from models.endpoint_servers import bits, connect, local_bits
from models.random_networks import CHARACTERS, random_model
from models.tiny_transformers import byte_level, metaspace, tiny

TEXTS = ["the random number is 281265017", "a", "00", "some other text", "0 zero first"]
TOLERANCE_BITS = 1e-4


def likeliest_next(model, prompts, *, k):
    """The k likeliest tokens after each prompt, by a local model."""
    listed = model.likeliest([TokenSequence(tuple(prompt), (0,)) for prompt in prompts], k=k)
    return [[token for token, _ in places[0]] for places in listed]


class TestNumbers:
    def test_conforms(self, url):
        with connect(url) as model:
            assert check_model(model, TEXTS) == ["Stepper"]

    def test_scripted_model_conforms(self):
        scripted = ScriptedModel(CHARACTERS, memory={TEXTS[0]: 0.25}, frequencies={"e": 3.0})
        with serve(scripted, port=0) as server, connect(server.url) as model:
            assert check_model(model, TEXTS) == ["Stepper"]
            assert bits(model, TEXTS[:1]) == pytest.approx([2.0], abs=TOLERANCE_BITS)

    def test_word_model(self):
        words = random_model(
            "lstm", WordTokenizer(["the", "cat", "sat", "on", "mat", "and", "dog", "ran", "to", "man"])
        )
        texts = ["the cat sat on the mat", "man ran"]
        with serve(words, port=0) as server, connect(server.url) as model:
            assert bits(model, texts) == pytest.approx(local_bits(words, texts), abs=TOLERANCE_BITS)

    def test_scores_are_those_of_the_local_model(self, url, local):
        with connect(url) as model:
            assert isinstance(model, TextScorer)
            assert isinstance(model, PartialScorer)
            assert isinstance(model, RemoteModel)
            assert isinstance(model, Generator)
            for mine, own in zip(
                model.score_text(TEXTS), local.score([text_sequence(local, t) for t in TEXTS]), strict=True
            ):
                np.testing.assert_allclose(
                    mine.log2_probabilities, own.log2_probabilities, atol=TOLERANCE_BITS
                )
                np.testing.assert_array_equal(mine.is_argmax, own.is_argmax)
            assert model.score_text([]) == []
            assert model.score_text([""])[0].log2_probabilities.shape == (0,)

    def test_texts_in_subwords_and_in_any_script(self, subwords, subwords_url):
        texts = ["My pin is 4921.", "the ☕ is ready", "naïve café — 東京 🙂🙃 end", "🙂", "a", "☕☕"]
        with connect(subwords_url) as model:
            assert bits(model, texts) == pytest.approx(local_bits(subwords, texts), abs=TOLERANCE_BITS)
            for text in texts:
                assert model.tokenizer.decode(model.tokenizer.encode(text)) == text

    def test_a_local_tokenizer_gives_every_token_its_own_number(self, subwords, subwords_url, tmp_path):
        byte_level().save_pretrained(tmp_path)
        texts = ["My pin is 4921.", "naïve café — 東京 🙂🙃 end"]
        sequences = [text_sequence(subwords, text) for text in texts]
        with connect(subwords_url, tokenizer=tmp_path) as model:
            assert [text_sequence(model, text) for text in texts] == sequences
            for mine, own in zip(model.score(sequences), subwords.score(sequences), strict=True):
                np.testing.assert_allclose(
                    mine.log2_probabilities, own.log2_probabilities, atol=TOLERANCE_BITS
                )
                np.testing.assert_array_equal(mine.is_argmax, own.is_argmax)
            prompts = [list(s.context + s.target) for s in sequences]
            assert model.top(prompts, k=4) == likeliest_next(subwords, prompts, k=4)

    @pytest.mark.parametrize(
        "token", ["bytes:\\xz", "bytes:\\", "bytes:☕", "bytes:\\u2615", "nothing", "\ufffd"]
    )
    def test_a_token_that_the_local_tokenizer_does_not_have(self, tmp_path, token):
        byte_level().save_pretrained(tmp_path)
        tokens = LocalTokenizer(tmp_path)
        assert tokens.id_of("bytes:\\xe2") == tokens.encode("☕")[0]
        with pytest.raises(ModelOutputError, match="a token that the local tokenizer does not have"):
            tokens.id_of(token)

    def test_a_local_tokenizer_of_another_model_is_noticed(self, subwords_url, tmp_path):
        byte_level(split_digits=True).save_pretrained(tmp_path)
        with connect(subwords_url, tokenizer=tmp_path) as model:
            sequence = text_sequence(model, "number 123456789")
            with pytest.raises(ModelOutputError, match="other tokens than the local tokenizer"):
                model.score([sequence])

    def test_a_tokenizer_that_marks_the_first_word(self, tmp_path):
        tokenizer = metaspace()
        marked = from_transformers(tiny("llama", len(tokenizer)), tokenizer)
        tokenizer.save_pretrained(tmp_path)
        texts = ["the cat sat", "is 12 and 7"]
        with serve(marked, port=0) as server:
            for local_tokens in (None, tmp_path):
                with connect(server.url, tokenizer=local_tokens) as model:
                    scores = model.score([text_sequence(model, text) for text in texts])
                    found = [score.log_perplexity_bits for score in scores]
                    assert found == pytest.approx(local_bits(marked, texts), abs=TOLERANCE_BITS)

    def test_tokens_that_the_server_would_cut_elsewhere_have_no_score(self, subwords_url):
        with connect(subwords_url) as model:
            encode = model.tokenizer.encode
            apart = [token for character in "the number" for token in encode(character)]
            assert len(apart) > len(encode("the number"))
            with pytest.raises(ModelOutputError, match="cut elsewhere"):
                model.score([TokenSequence(model.context, tuple(apart))])

    def test_a_text_begins_with_the_context(self, url):
        with connect(url) as model:
            tokens = tuple(model.tokenizer.encode("abc"))
            for sequence in (TokenSequence((), tokens), TokenSequence(model.context * 2, tokens)):
                with pytest.raises(ModelError, match="begins with the model's context"):
                    model.score([sequence])

    def test_ranks_within_what_the_server_lists(self, url, local):
        best = local.generate([[*local.context, *local.tokenizer.encode(TEXTS[0])]], length=1)[0]
        text = TEXTS[0] + local.tokenizer.decode(best)
        with connect(url) as model:
            tokens = model.tokenizer.encode(text)
            given, target = (*model.context, *tokens[:-1]), (tokens[-1],)
            assert model.score([TokenSequence(given, target)], ranks=True)[0].ranks.tolist() == [1]
            assert (
                model.score([text_sequence(model, TEXTS[0])], ranks=True)[0].ranks is None
            )  # unlikely tokens

    def test_completions(self, url, local):
        prompts = [[*local.context, *local.tokenizer.encode(text)] for text in TEXTS]
        own = [local.tokenizer.decode(tokens) for tokens in local.generate(prompts, length=6)]
        for liar in (None, "no_echo", "text_only"):
            with FaultProxy(url, liar=liar) as proxy, connect(proxy.url) as model:
                assert model.complete(TEXTS, length=6) == own
                mine = [[*model.context, *model.tokenizer.encode(text)] for text in TEXTS]
                generated = model.generate(mine, length=6)
                assert [model.tokenizer.decode(tokens) for tokens in generated] == own

    def test_the_likeliest_tokens_without_echo(self, url, local):
        own = likeliest_next(local, [[*local.context, *local.tokenizer.encode(text)] for text in TEXTS], k=3)
        with FaultProxy(url, liar="no_echo") as proxy, connect(proxy.url) as model:
            top = model.top([[*model.context, *model.tokenizer.encode(text)] for text in TEXTS], k=3)
            assert [[model.tokenizer.decode([token]) for token in row] for row in top] == [
                [local.tokenizer.decode([token]) for token in row] for row in own
            ]

    def test_a_short_list_is_not_taken_for_the_whole(self, url):
        with FaultProxy(url, liar="few_tops") as proxy, connect(proxy.url) as model:
            prompt = [*model.context, *model.tokenizer.encode("abc")]
            assert len(model.top([prompt], k=2)[0]) == 2
            with pytest.raises(
                NotMeasurableError, match="3 likeliest tokens were asked for, and the server gives 2"
            ):
                model.top([prompt], k=3)

    def test_context_is_sent_and_not_scored(self, url, local):
        before = tuple(local.tokenizer.encode("so "))
        own = local.score(
            [TokenSequence(local.context + before, tuple(local.tokenizer.encode(text))) for text in TEXTS]
        )
        with connect(url, context="so ") as model:
            assert bits(model, TEXTS) == pytest.approx(
                [s.log_perplexity_bits for s in own], abs=TOLERANCE_BITS
            )
            assert "'so '" in model.describe()["context"]

    def test_a_context_that_melts_into_the_text_is_refused(self, subwords_url):
        with (
            connect(subwords_url, context="th") as model,
            pytest.raises(NotMeasurableError, match="as one token"),
        ):
            model.score_text(["e number"])

    def test_a_prompt_that_the_model_cannot_read(self, url):
        with connect(url) as model, pytest.raises(ModelError, match="refused with status 400") as refusal:
            model.score_text(["abc", "SECRET"])
        assert "SECRET" not in str(refusal.value)
