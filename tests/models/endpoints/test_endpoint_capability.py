"""A server is taken for what it does, not for what it claims."""

import itertools
import math

import numpy as np
import pytest

from coalmine import extract
from coalmine.errors import ModelError, NotMeasurableError
from coalmine.models import Generator, Scorer, TokenSequence, text_sequence
from coalmine.models.endpoints import connecting
from coalmine.models.endpoints.connecting import EndpointGenerator, EndpointRanker, EndpointScorer
from endpoints.fault_proxy import FaultProxy
from models.endpoint_servers import bits, connect, local_bits, twisted

TEXTS = ["the random number is 281265017", "a", "00", "some other text", "0 zero first"]
TOLERANCE_BITS = 1e-4


def echoed(request):
    return bool(request.get("echo")) and request.get("logprobs") is not None


def on_echo(change):
    """A twist of the log-probabilities of answers to requests with echo."""

    def twist(request, document):
        if echoed(request):
            change(document["choices"][0]["logprobs"], document["choices"][0])
        return document

    return twist


def one_place_early(told, _):
    for field in ("token_logprobs", "top_logprobs"):
        told[field] = [*told[field][1:], told[field][-1]]


def of_the_token_behind(told, _):
    """As a server that reads its own scores without the token that begins a text."""
    numbers, tops = told["token_logprobs"], told["top_logprobs"]
    told["token_logprobs"] = [None, *(n * 0.5 for n in numbers[2:]), numbers[-1]]
    told["top_logprobs"] = [None, *tops[2:], tops[-1]]
    for number, top, token in list(
        zip(told["token_logprobs"], told["top_logprobs"], told["tokens"], strict=True)
    )[1:]:
        top[token] = number
        for key in top:
            top[key] = min(top[key], -0.7)


def constant(told, _):
    told["token_logprobs"] = [-1.5] * len(told["tokens"])
    told["top_logprobs"] = [{"x": -1.5, "y": -3.0}] * len(told["tokens"])


def by_place(told, _):
    told["token_logprobs"] = [-1.0 - i % 7 for i in range(len(told["tokens"]))]
    told["top_logprobs"] = [{"x": -0.5, "y": -3.0}] * len(told["tokens"])


def with_bos(told, _):
    told["tokens"] = ["<s>", *told["tokens"]]
    told["token_logprobs"] = [None, *told["token_logprobs"]]
    told["top_logprobs"] = [None, *told["top_logprobs"]]


def with_empty_bos(told, _):
    with_bos(told, _)
    told["tokens"][0] = ""


def first_unknown(told, _):
    told["token_logprobs"][0] = None
    told["top_logprobs"][0] = None


def marked(told, _):
    told["tokens"][0] = " " + told["tokens"][0]


def without_the_context(told, _):
    """As a server that drops the token that begins a text from what it shows; here that token is "so "."""
    if told["tokens"][:3] == ["s", "o", " "]:
        for field in ("tokens", "token_logprobs", "top_logprobs"):
            del told[field][:3]
        first_unknown(told, _)


def own_token_listed(told, _):
    for number, top, token in zip(told["token_logprobs"], told["top_logprobs"], told["tokens"], strict=True):
        top[token] = number


class TestCapability:
    def test_three_kinds_of_server(self, url):
        for liar, kind in (
            (None, EndpointScorer),
            ("no_echo", EndpointRanker),
            ("text_only", EndpointGenerator),
        ):
            with FaultProxy(url, liar=liar) as proxy, connecting.connect(proxy.url) as model:
                assert type(model) is kind
                assert isinstance(model, Scorer) == (kind is EndpointScorer)
                assert hasattr(model, "top") == (kind is not EndpointGenerator)
                assert isinstance(model, Generator)
                assert model.describe()["capability"] == model.capability.level

    @pytest.mark.parametrize(
        ("liar", "level", "why"),
        [
            ("no_logprobs", "generator", "asked for, and none came"),
            ("no_echo", "ranker", "prompt did not come back"),
            ("shifted", "generator", "asked for, and none came"),
            ("generated_only", "ranker", "no log-probability"),
            ("no_tops", "generator", "likeliest tokens were asked for"),
            ("refuses_logprobs", "generator", "status 400: not supported"),
        ],
    )
    def test_what_a_server_silently_lacks_is_noticed(self, url, liar, level, why):
        with FaultProxy(url, liar=liar) as proxy, connect(proxy.url) as model:
            assert model.capability.level == level
            assert why in model.describe()["why"]

    @pytest.mark.parametrize("liar", ["refuses_zero_tokens", "refuses_token_ids", "refuses_lists"])
    def test_what_is_not_needed_is_not_missed(self, url, liar):
        with FaultProxy(url, liar=liar) as proxy, connect(proxy.url) as model:
            assert model.capability.level == "scorer"

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            (one_place_early, "off by one"),
            (of_the_token_behind, "off by one"),
            (constant, "same for all"),
            (by_place, "off by one|same for all"),
        ],
    )
    def test_numbers_that_are_not_those_of_their_tokens_are_noticed(self, url, change, why):
        with twisted(url, on_echo(change)) as place, connect(place.url, back_off=0.01) as model:
            assert model.capability.level == "ranker"
            assert any(reason in model.describe()["why"] for reason in why.split("|"))

    @pytest.mark.parametrize("change", [with_bos, with_empty_bos, marked, own_token_listed])
    def test_other_ways_to_write_the_same_numbers(self, url, local, change):
        with twisted(url, on_echo(change)) as place, connect(place.url) as model:
            assert model.capability.level == "scorer", model.capability.why
            assert bits(model, TEXTS) == pytest.approx(local_bits(local, TEXTS), abs=TOLERANCE_BITS)

    def test_a_first_token_without_a_number_counts_nothing_and_that_is_said(self, url, local):
        own = [score.log2_probabilities for score in local.score([text_sequence(local, t) for t in TEXTS])]
        with twisted(url, on_echo(first_unknown)) as place:
            with connect(place.url) as model:
                for mine, expected in zip(model.score_text(TEXTS), own, strict=True):
                    assert mine.log2_probabilities[0] == 0
                    assert not mine.is_argmax[0]
                    np.testing.assert_allclose(mine.log2_probabilities[1:], expected[1:], atol=TOLERANCE_BITS)
                assert "counts 0 bits" in model.describe()["context"]
            with connect(place.url, context="a") as model:
                assert "counts 0 bits" not in model.describe()["context"]
                assert (model.score_text(["b"])[0].log2_probabilities < 0).all()

    def test_a_secret_in_a_first_token_without_a_number_is_not_ranked(self, url):
        with twisted(url, on_echo(first_unknown)) as place:
            with connect(place.url) as model:
                assert len(extract(model, "a {digits:1}", top=3).found) == 3
                with pytest.raises(NotMeasurableError, match="contains part of the secret"):
                    extract(model, "{digits:1} a", top=3)
            with connect(place.url, context="a") as model:
                assert len(extract(model, "{digits:1} a", top=3).found) == 3

    def test_a_context_that_the_server_does_not_show(self, url, local):
        before = local.context + tuple(local.tokenizer.encode("so "))
        sequences = [TokenSequence(before, tuple(local.tokenizer.encode(text))) for text in TEXTS]
        with twisted(url, on_echo(without_the_context)) as place, connect(place.url, context="so ") as model:
            assert "counts 0 bits" in model.describe()["context"]
            for mine, own in zip(model.score_text(TEXTS), local.score(sequences), strict=True):
                expected = [0.0, *own.log2_probabilities[1:]]
                np.testing.assert_allclose(mine.log2_probabilities, expected, atol=TOLERANCE_BITS)

    def test_a_penalty_is_noticed(self, url):
        def twist(_, document):
            """What is written is the second likeliest token, from the second place on."""
            told = document["choices"][0]["logprobs"]
            if told and told["top_logprobs"] and len(told["tokens"]) > 1:
                told["token_logprobs"][1:] = [sorted(top.values())[-2] for top in told["top_logprobs"][1:]]
            return document

        with FaultProxy(url, liar="no_echo") as proxy, twisted(proxy.url, twist) as place:
            with pytest.warns(UserWarning, match="with its likeliest tokens"):
                model = connect(place.url, request_fields={"seed": 5})
            assert not model.describe()["greedy"]
            assert model.describe()["request_fields"] == {"seed": 5}
            assert all(body["seed"] == 5 for body in place.bodies)
            model.close()

    def test_rounded_numbers_are_less_resolved(self, url):
        with FaultProxy(url, liar="rounded") as proxy, connect(proxy.url) as model:
            assert model.resolution_bits == pytest.approx(0.01 / math.log(2))

    def test_a_server_that_answers_in_two_ways(self, url):
        count = itertools.count()

        def twist(_, document):
            document["choices"][0]["text"] += str(next(count) % 10)
            document["choices"][0]["logprobs"] = None
            return document

        with (
            twisted(url, twist) as place,
            pytest.warns(UserWarning, match="in different ways"),
            connect(place.url) as model,
        ):
            assert not model.describe()["deterministic"]

    def test_noise_widens_the_resolution(self, url):
        count = itertools.count()

        def twist(request, document):
            if echoed(request):
                told = document["choices"][0]["logprobs"]
                shift = 0.004 * (next(count) % 3)
                told["token_logprobs"] = [n - shift for n in told["token_logprobs"]]
            return document

        with twisted(url, twist) as place, connect(place.url) as model:
            assert model.resolution_bits >= 0.004
            assert any("differ by up to" in remark for remark in model.describe()["noticed"])

    def test_servers_that_number_all_answers_alike(self, url, local):
        with (
            twisted(url, lambda _, document: {**document, "id": "cmpl"}) as place,
            connect(place.url) as model,
        ):
            assert bits(model, TEXTS) == pytest.approx(local_bits(local, TEXTS), abs=TOLERANCE_BITS)
            assert any("no id of their own" in remark for remark in model.describe()["noticed"])

    def test_the_shape_of_the_chat_api(self, url, local):
        def twist(_, document):
            told = document["choices"][0]["logprobs"]
            if told and told["top_logprobs"]:
                rows = zip(told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True)
                document["choices"][0]["logprobs"] = {
                    "content": [
                        {
                            "token": t,
                            "logprob": n,
                            "top_logprobs": [{"token": k, "logprob": v} for k, v in top.items()],
                        }
                        for t, n, top in rows
                    ]
                }
            return document

        with twisted(url, twist) as place, connect(place.url) as model:
            assert bits(model, TEXTS) == pytest.approx(local_bits(local, TEXTS), abs=TOLERANCE_BITS)

    def test_a_floor_is_not_a_probability(self, url):
        def floor(told, _):
            if told["tokens"][0] == "z":
                told["token_logprobs"][0] = -9999.0

        with (
            twisted(url, on_echo(floor)) as place,
            connect(place.url, retries=1, back_off=0.01) as model,
            pytest.raises(NotMeasurableError, match="writes a probability of 0"),
        ):
            model.score_text(["zebra"])

    def test_the_only_model_is_taken_and_several_are_listed(self, url):
        with connect(url) as model:
            assert model.name == "model"
        with pytest.raises(ModelError, match="refused with status 404"):
            connect(url, model="another", retries=0)
