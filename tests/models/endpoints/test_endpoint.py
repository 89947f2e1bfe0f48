"""A model behind an endpoint gives the numbers of the model itself, and a server is taken for what it does, not for what it says."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine import extract
from coalmine.errors import InputError, ModelError, ModelOutputError, NotMeasurableError
from coalmine.models.conformance import check_model
from coalmine.models.endpoints import connecting
from coalmine.models.endpoints.connecting import EndpointGenerator, EndpointRanker, EndpointScorer
from coalmine.models.endpoints.echo import aligned
from coalmine.models.endpoints.tokens import LocalTokenizer
from coalmine.models.protocols import Generator, Ranker, Scorer, TextScorer, TokenSequence, text_sequence
from coalmine.models.reference.tokens import WordTokenizer
from coalmine.models.scripted import ScriptedModel
from coalmine.models.transformers.causal import from_transformers
from coalmine.serving.server import serve
from endpoints.fault_proxy import FaultProxy
from models.endpoint_servers import twisted
from models.random_networks import CHARACTERS, random_model
from models.tiny_transformers import byte_level, metaspace, tiny

TEXTS = ["the random number is 281265017", "a", "00", "some other text", "0 zero first"]
TOLERANCE_BITS = 1e-4


def connect(url, **options):
    """With a short text to try the server with, which is quicker; once the usual ones are taken."""
    return connecting.connect(url, **{"probe_texts": ["the cat sat"], **options})


@pytest.fixture(scope="module")
def local():
    return random_model("lstm")


@pytest.fixture(scope="module")
def url(local):
    with serve(local, port=0) as server:
        yield server.url


@pytest.fixture(scope="module")
def subwords():
    tokenizer = byte_level()
    return from_transformers(tiny("gpt2", len(tokenizer)), tokenizer)


@pytest.fixture(scope="module")
def subwords_url(subwords):
    with serve(subwords, port=0) as server:
        yield server.url


def local_bits(model, texts):
    return [
        score.log_perplexity_bits for score in model.score([text_sequence(model, text) for text in texts])
    ]


def bits(model, texts):
    return [score.log_perplexity_bits for score in model.score_text(texts)]


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
            assert isinstance(model, TextScorer | Ranker | Generator)
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
            assert model.top(prompts, k=4) == subwords.top(prompts, k=4)

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
        own = local.top([[*local.context, *local.tokenizer.encode(text)] for text in TEXTS], k=3)
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
                assert isinstance(model, Ranker) == (kind is not EndpointGenerator)
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
                with pytest.raises(NotMeasurableError, match="holds a part of the secret"):
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
            with pytest.warns(UserWarning, match="by its likeliest tokens"):
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
            pytest.raises(NotMeasurableError, match="cannot write"),
        ):
            model.score_text(["zebra"])

    def test_the_only_model_is_taken_and_several_are_listed(self, url):
        with connect(url) as model:
            assert model.name == "model"
        with pytest.raises(ModelError, match="refused with status 404"):
            connect(url, model="another", retries=0)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ("http://me:secret@127.0.0.1:1/v1", "user name or password"),
        ("http://127.0.0.1:1/v1?api-key=secret", "must end with its path"),
        ("ftp://127.0.0.1/v1", "not the url of an endpoint"),
        ("127.0.0.1:8000", "not the url of an endpoint"),
        ("http://127.0.0.1:1/v1/completions", "base of the endpoint"),
        ("http://127.0.0.1:99999999/v1", "cannot be read"),
    ],
)
def test_addresses_that_cannot_be_meant(wrong, match):
    with pytest.raises(InputError, match=match) as problem:
        connect(wrong)
    assert "secret" not in str(problem.value)


def test_a_key_never_travels_in_the_open(monkeypatch):
    monkeypatch.setenv("COALMINE_API_KEY", "sk-very-secret")
    with pytest.raises(InputError, match="unencrypted") as problem:
        connect("http://models.example.com/v1")
    assert "sk-very-secret" not in str(problem.value)
    monkeypatch.setenv("COALMINE_API_KEY", "sk very\nsecret")
    with pytest.raises(InputError, match="no key has") as problem:
        connect("https://models.example.com/v1")
    assert "secret" not in str(problem.value).replace("no key has", "")


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"retries": -1},
        {"timeout": 0},
        {"requests_per_second": 0},
        {"most_requests": -1},
        {"most_cost": 1.0},
        {"timeout": 1e300},
        {"requests_per_second": 1e-320},
        {"tokenizer": "no/such/directory"},
    ],
)
def test_options_that_cannot_be_meant(url, options):
    with pytest.raises(InputError):
        connect(url, **options)


def test_nothing_listens():
    with pytest.raises(
        NotMeasurableError, match="no usable answer in 2 tries, the last time because the connection failed"
    ):
        connect("http://127.0.0.1:1/v1", model="m", retries=1, back_off=0.01)


@given(st.text(min_size=1, max_size=12), st.data())
def test_pieces_of_a_text_join_to_it(text, data):
    """Whatever the cut, also within characters, groups cover the text and all tokens, in order."""
    raw = text.encode("utf-8", "surrogatepass")
    cuts = sorted({0, len(raw), *data.draw(st.lists(st.integers(0, len(raw)), max_size=6))})
    parts = [raw[a:b] for a, b in itertools.pairwise(cuts)]
    tokens = []
    for part in parts:
        try:
            tokens.append(part.decode())
        except UnicodeDecodeError:
            tokens.append(data.draw(st.sampled_from(["", "\ufffd", "bytes:" + repr(part)[2:-1]])))
    groups = aligned(tokens, text)
    if groups is not None:
        assert "".join(piece for _, piece in groups) == text
        assert sum(number for number, _ in groups) == len(tokens)
    if all(part.decode("utf-8", "ignore").encode() == part for part in parts):
        assert groups == [(1, token) for token in tokens]


@given(st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=5), st.text(max_size=3))
def test_tokens_of_another_text_do_not_fit(tokens, more):
    text = "".join(tokens)
    plain = all("\ufffd" not in t and not t.startswith(("bytes:", "token_id:")) for t in tokens)
    if more and plain:
        assert aligned(tokens, text + more) is None
        assert aligned([*tokens, more], text) is None or "\ufffd" in more


def test_the_key_goes_to_the_server_and_to_no_file(url, monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("MY_KEY", "sk-0123456789")
    caplog.set_level("DEBUG")
    with (
        twisted(url, lambda _, document: document) as place,
        connect(place.url, key_variable="MY_KEY", cache=tmp_path / "answers") as model,
    ):
        model.score_text(TEXTS)
        assert place.headers[-1]["Authorization"] == "Bearer sk-0123456789"
        assert "sk-0123456789" not in repr(model.describe()) + repr(vars(model)) + repr(
            vars(model._client.connection)
        )
        files = list(tmp_path.iterdir())
        assert files
        for path in files:
            assert b"sk-0123456789" not in path.read_bytes()
            assert path.stat().st_mode & 0o777 == 0o600
    assert "sk-0123456789" not in caplog.text


def test_only_the_named_variable_is_read(url, monkeypatch):
    monkeypatch.delenv("COALMINE_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    with twisted(url, lambda _, document: document) as place, connect(place.url):
        assert place.headers
        assert all("Authorization" not in headers for headers in place.headers)


@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_a_server_that_sends_the_key_back(url, monkeypatch, tmp_path, status):
    monkeypatch.setenv("COALMINE_API_KEY", "sk-0123456789")
    said = b'{"error": {"message": "wrong key sk-0123456789\\u001b[31m!"}, "choices": [{"text": "sk-0123456789"}]}'
    with (
        twisted(url, lambda *_: (status, said)) as place,
        pytest.raises((ModelError, ModelOutputError, NotMeasurableError)) as problem,
    ):
        connect(place.url, retries=1, back_off=0.01, cache=tmp_path / "answers")
    assert "sk-0123456789" not in str(problem.value)
    assert "\x1b" not in str(problem.value)
    assert all(b"sk-0123456789" not in path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize("shift", range(280, 300, 4))
def test_a_key_is_hidden_also_where_an_error_is_cut(url, monkeypatch, shift):
    monkeypatch.setenv("COALMINE_API_KEY", "sk-0123456789")
    page = b"<" + b"x" * shift + b" sk-0123456789 and more"
    with twisted(url, lambda *_: (400, page)) as place, pytest.raises(ModelError) as problem:
        connect(place.url)
    assert "sk-0" not in str(problem.value)
