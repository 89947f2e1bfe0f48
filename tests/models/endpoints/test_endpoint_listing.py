"""What an endpoint lists of the next tokens after a text is what the served model itself finds likeliest, whatever happens on the way."""

import numpy as np
import pytest

from coalmine.errors import InputError
from coalmine.models import RankedTextScorer, TextRanker, check_model, text_sequence
from coalmine.models.reference.checkpoint import save_model
from endpoints.fault_proxy import Fault, FaultProxy
from models.endpoint_servers import connect, serving_process, twisted

TEXTS = ["the random number is 281265017", "a", "00", "some other text", "0 zero first"]
# The most that `coalmine serve` lists.
SERVED = 20


@pytest.fixture(scope="module")
def url(local, tmp_path_factory):
    directory = tmp_path_factory.mktemp("served") / "model"
    save_model(directory, local._network, local.tokenizer)
    with serving_process(directory) as url:
        yield url


def next_of(model, prompts, k):
    """The characters that a local model finds likeliest after each prompt."""
    listed = model.likeliest([text_sequence(model, prompt + "a") for prompt in prompts], k=k)
    return [[model.tokenizer.decode([token]) for token, _ in places[-1]] for places in listed]


@pytest.mark.parametrize(
    ("liar", "level", "most"),
    [
        (None, "scorer", SERVED),
        ("no_echo", "ranker", SERVED),
        ("generated_only", "ranker", SERVED),
        ("few_tops", None, 2),
        ("text_only", "generator", 1),
        ("refuses_logprobs", "generator", 1),
    ],
)
def test_each_kind_of_server_lists_what_it_can(url, local, liar, level, most):
    with FaultProxy(url, liar=liar) as proxy, connect(proxy.url) as model:
        assert level is None or model.capability.level == level
        assert isinstance(model, TextRanker)
        assert model.most_listed == most
        for k in {1, most}:
            assert model.next_texts(TEXTS, k=k) == next_of(local, TEXTS, k)
        assert model.next_texts([], k=1) == []
        for wrong in (0, most + 1):
            with pytest.raises(InputError, match=f"k must be from 1 to {most}, .*, got {wrong}"):
                model.next_texts(TEXTS, k=wrong)


@pytest.mark.parametrize("liar", [None, "no_echo", "text_only"])
def test_each_kind_conforms(url, liar):
    with FaultProxy(url, liar=liar) as proxy, connect(proxy.url) as model:
        missing = check_model(model, TEXTS)
        assert ("Scorer" in missing) == (liar is not None)


@pytest.mark.parametrize("liar", [None, "no_echo", "text_only"])
@pytest.mark.parametrize("kind", ["drop_in_body", "status_503", "garbage", "short_logprobs"])
def test_faults_on_the_way_change_no_list(url, local, liar, kind):
    faults = [Fault(kind, every=3)]
    with (
        FaultProxy(url, faults, liar=liar, retry_after=0) as proxy,
        connect(proxy.url, back_off=0.01) as model,
    ):
        k = min(3, model.most_listed)
        assert model.next_texts(TEXTS, k=k) == next_of(local, TEXTS, k)
        assert proxy.requests[kind] >= 2


def test_nothing_is_asked_twice(url, local, tmp_path):
    cache = tmp_path / "answers.sqlite"
    with connect(url, cache=cache) as model:
        assert model.most_listed == SERVED
        first = model.next_texts(TEXTS, k=4)
        ranks = model.rank_text(TEXTS, k=4)
        spent = model.spent()["requests"]
        assert model.next_texts(TEXTS, k=4) == first
        # A text that was ranked is scored by the same answer.
        model.score_text(TEXTS)
        assert model.spent()["requests"] == spent
    with connect(url, cache=cache) as model:
        before = model.spent()["requests"]
        assert model.most_listed == SERVED
        assert model.next_texts(TEXTS, k=4) == first == next_of(local, TEXTS, 4)
        assert [found.tolist() for found in model.rank_text(TEXTS, k=4)] == [own.tolist() for own in ranks]
        assert model.spent()["requests"] == before


def test_a_cap_holds_for_lists_too(url):
    with connect(url, most_requests=60) as model, pytest.raises(Exception, match="requests"):
        model.next_texts([f"{number} a" for number in range(200)], k=1)


@pytest.mark.parametrize("k", [1, 3, SERVED])
def test_ranks_of_a_text_take_one_request(url, local, k):
    own = local.score([text_sequence(local, text) for text in TEXTS], ranks=True)
    with connect(url) as model:
        assert isinstance(model, RankedTextScorer)
        assert model.most_listed == SERVED
        for found, score in zip(model.rank_text(TEXTS, k=k), own, strict=True):
            assert found.tolist() == np.where(score.ranks <= k, score.ranks, 0).tolist()
        assert [len(found) for found in model.rank_text(["", "a"], k=k)] == [0, 1]
        with pytest.raises(InputError, match="k must be from 1"):
            model.rank_text(TEXTS, k=SERVED + 1)


def test_a_first_token_without_a_number_has_no_rank(url):
    def first_unknown(request, document):
        told = document["choices"][0]["logprobs"]
        if request.get("echo") and told:
            told["token_logprobs"][0] = told["top_logprobs"][0] = None
        return document

    with twisted(url, first_unknown) as place, connect(place.url) as model:
        assert [ranks[0] for ranks in model.rank_text(TEXTS, k=SERVED)] == [0] * len(TEXTS)


def test_a_server_that_ends_the_text_lists_nothing(url):
    def ended(request, document):
        choice = document["choices"][0]
        if request["prompt"].endswith("end"):
            choice.update(text="", finish_reason="stop")
            if choice["logprobs"]:
                choice["logprobs"] = {"tokens": [], "token_logprobs": [], "top_logprobs": []}
        return document

    for liar in ("no_echo", "text_only"):
        with (
            FaultProxy(url, liar=liar) as proxy,
            twisted(proxy.url, ended) as place,
            connect(place.url) as model,
        ):
            listed = model.next_texts(["the end", "the beginning"], k=1)
            assert listed[0] == []
            assert len(listed[1]) == 1


def test_tokens_of_several_characters_and_parts_of_one(subwords, subwords_url):
    prompts = ["My pin is", "the \u2615 is", "\u6771\u4eac"]
    with connect(subwords_url) as model:
        found = model.next_texts(prompts, k=5)
    sequences = [text_sequence(subwords, prompt) for prompt in prompts]
    listed = subwords.likeliest(
        [
            sequence._replace(context=sequence.context + sequence.target, target=(0,))
            for sequence in sequences
        ],
        k=5,
    )
    pieces = subwords.tokenizer.pieces(first=False)
    for texts, places in zip(found, listed, strict=True):
        whole = [pieces[token] or b"" for token, _ in places[0]]
        for text, piece in zip(texts, whole, strict=True):
            assert text == piece.decode(errors="ignore") or text.startswith("bytes:") or "\ufffd" in text
