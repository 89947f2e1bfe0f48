"""Chat endpoints: what a server can do is proven and not believed, and its numbers are those of the model."""

import json

import numpy as np
import pytest

from coalmine import CanarySet, ScriptedModel, expose, extract, serve
from coalmine.errors import InputError, NoNumberError, NotMeasurableError
from coalmine.models import ConformanceError, connect, text_sequence
from coalmine.models.distribution_checks import check_limited
from coalmine.models.endpoints.answers import UnusableAnswerError, read_answer
from coalmine.models.endpoints.streams import joined_stream
from coalmine.records.chat import Frame
from endpoints.fault_proxy import Fault, FaultProxy
from models.endpoint_servers import twisted
from models.scripted_chat import ASKED, pins, save_characters

QUICK = {"back_off": 0.001, "timeout": 10.0, "probe_texts": ["the cat sat"], "api": "chat"}
SHARES = {"49": 0.4, "42": 0.1, "17": 0.05, "90": 0.02}
NEVER = "55"
FORMAT = "my pin is {digits:2}"
ASSISTANT = Frame(kind="messages", role="assistant", place="own", before=ASKED)
USER = Frame(kind="messages", role="user", place="own")
REFUSED = (400, json.dumps({"error": {"message": "no such field"}}).encode())


@pytest.fixture(scope="module")
def local():
    return pins(SHARES)


@pytest.fixture(scope="module")
def url(local):
    with serve(local, port=0, name="m") as server:
        yield server.url


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return save_characters(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def canaries():
    return CanarySet.of(FORMAT, [f"my pin is {pin}" for pin in (*SHARES, NEVER)])


@pytest.fixture(scope="module")
def expected(local, canaries):
    return [result.exposure for result in expose(local.in_frame(ASSISTANT), canaries, method="exact")]


def continues_trailing(request):
    """As llama.cpp and Ollama: a last turn of the assistant is continued, and unknown fields are refused here."""
    if "continue_final_message" in request:
        return REFUSED
    if request["messages"][-1]["role"] == "assistant":
        return {**request, "continue_final_message": True, "add_generation_prompt": False}
    return request


def chats_only(request):
    return request if "messages" in request else (404, b'{"error": {"message": "not found"}}')


def continues_nothing(request):
    """The fields are accepted and ignored, and each turn is closed before the next begins."""
    return {
        name: value
        for name, value in request.items()
        if name not in {"continue_final_message", "add_generation_prompt"}
    }


def without_logprobs(_, document):
    for choice in document["choices"]:
        choice.pop("logprobs", None)
    return document


def lists_five(request):
    return REFUSED if request.get("top_logprobs", 0) > 5 else request


@pytest.mark.parametrize(
    ("twist", "prefill"),
    [({}, "fields"), ({"asked": continues_trailing}, "trailing")],
    ids=["vLLM", "llama.cpp"],
)
def test_exposures_of_assistant_canaries_are_those_of_the_model(
    url, tokenizer, canaries, expected, twist, prefill
):
    with twisted(url, **twist) as server, connect(server.url, tokenizer=tokenizer, **QUICK) as model:
        described = model.describe()
        assert (described["capability"], described["prefill"]) == ("chat scorer", prefill)
        found = expose(model.in_frame(ASSISTANT), canaries, method="exact")
        asked = [body["messages"][-1]["content"] for body in server.bodies]
        assert [one.text for one in extract(model.in_frame(ASSISTANT), FORMAT, method="prompt").found] == [
            "my pin is 49"
        ]
    assert [result.exposure for result in found] == pytest.approx(expected, abs=1e-6)
    # Shared beginnings are asked about once, and nothing twice but what tests whether the server is still the same.
    assert 11 <= len({text for text in asked if text.startswith("my pin is ")}) <= 12


def test_what_is_not_listed_has_bounds_and_no_more(url, tokenizer, canaries, expected):
    with twisted(url, asked=lists_five) as server, connect(server.url, tokenizer=tokenizer, **QUICK) as model:
        assert model.most_listed == 5
        found = list(expose(model.in_frame(ASSISTANT), canaries, method="exact"))
        # With nothing to rank, the reason is the answer.
        only = CanarySet.of(FORMAT, [f"my pin is {NEVER}"])
        with pytest.raises(NoNumberError, match="one of the text is not among them"):
            expose(model.in_frame(ASSISTANT), only, method="exact")
    assert found[0].exposure == pytest.approx(expected[0], abs=1e-6)
    assert found[0].rank == 1
    proven = 0
    for result, value in zip(found, expected, strict=True):
        low, high = result.estimate.low, result.estimate.high
        if low is not None and high is not None:
            assert low - 1e-6 <= value <= high + 1e-6
            proven += 1
    assert proven >= len(SHARES)
    assert found[-1].exposure is None


def test_a_server_that_only_chats_is_recognized(url):
    with twisted(url, asked=chats_only) as server:
        with connect(server.url, **{**QUICK, "api": "auto"}) as model:
            assert model.describe()["api"] == "chat"
        with pytest.raises(InputError, match="not found"):
            connect(server.url, **{**QUICK, "api": "completions"})
        with connect(f"{server.url}/chat/completions", **{**QUICK, "api": "auto"}) as model:
            assert model.describe()["url"] == server.url
    with pytest.raises(InputError, match="leave out context"):
        connect(url, **QUICK, context="<s>")


def test_ignored_fields_are_noticed(url, tokenizer, canaries):
    with (
        twisted(url, asked=continues_nothing) as server,
        connect(server.url, tokenizer=tokenizer, **QUICK) as model,
    ):
        assert model.describe()["capability"] == "chat ranker"
        assert "does not continue a given turn" in model.describe()["why"]
        with pytest.raises(NotMeasurableError, match="does not give the probability"):
            expose(model.in_frame(ASSISTANT), canaries)
        with pytest.raises(NotMeasurableError, match="does not continue a given turn"):
            model.in_frame(ASSISTANT).next_texts(["my pin"], k=1)
        with pytest.raises(NotMeasurableError, match="does not continue an open turn"):
            model.in_frame(USER)


@pytest.mark.parametrize("asked", [None, continues_nothing], ids=["continues", "answers"])
def test_text_alone_shows_what_is_memorized(url, asked):
    twist = {} if asked is None else {"asked": asked}
    with twisted(url, without_logprobs, **twist) as server, connect(server.url, **QUICK) as model:
        described = model.describe()
        assert described["capability"] == "chat generator"
        assert "none came" in described["why"]
        assert described["prefill"] == ("fields" if asked is None else None)
        framed = model.in_frame(ASSISTANT)
        found = extract(framed, FORMAT, method="prompt")
        other = extract(framed, "my code is {digits:2}", method="prompt")
    assert [one.text for one in found.found] == ["my pin is 49"]
    assert not other.found


def test_user_turns_are_measured_where_they_can_be_continued(tokenizer, canaries):
    model = pins(SHARES, "user")
    expected = [result.exposure for result in expose(model.in_frame(USER), canaries, method="exact")]
    with serve(model, port=0) as server, connect(server.url, tokenizer=tokenizer, **QUICK) as endpoint:
        found = expose(endpoint.in_frame(USER), canaries, method="exact")
    assert [result.exposure for result in found] == pytest.approx(expected, abs=1e-6)


def test_what_cannot_be_scored_says_why(url, canaries):
    with connect(url, **QUICK) as model:
        with pytest.raises(NotMeasurableError, match="plain texts"):
            expose(model, canaries)
        with pytest.raises(NotMeasurableError, match=r"tokenizer\.json"):
            expose(model.in_frame(ASSISTANT), canaries)
        with pytest.raises(NotMeasurableError, match="none before them"):
            model.in_frame(Frame(kind="messages", role="assistant", place="own"))


def test_faults_change_no_number(url, tokenizer, canaries, expected):
    kinds = [
        "status_500",
        "drop_in_body",
        "truncated_json",
        "no_choices",
        "short_logprobs",
        "nan",
        "positive",
        "stale",
    ]
    faults = [Fault(kind, every=11 + 2 * place) for place, kind in enumerate(kinds)]
    with FaultProxy(url, faults) as proxy, connect(proxy.url, tokenizer=tokenizer, **QUICK) as model:
        found = expose(model.in_frame(ASSISTANT), canaries, method="exact")
        assert set(proxy.requests) == {"passed", *kinds}
    assert [result.exposure for result in found] == pytest.approx(expected, abs=1e-6)


def test_answers_are_cached_and_capped(url, tokenizer, canaries, expected, tmp_path):
    options = {**QUICK, "tokenizer": tokenizer, "cache": tmp_path / "answers.sqlite"}
    with (
        pytest.raises(NotMeasurableError, match="cap of 25 requests"),
        connect(url, **options, most_requests=25) as model,
    ):
        expose(model.in_frame(ASSISTANT), canaries, method="exact")
    with connect(url, **options) as model:
        expose(model.in_frame(ASSISTANT), canaries, method="exact")
    with connect(url, **options) as model:
        found = expose(model.in_frame(ASSISTANT), canaries, method="exact")
        assert model.spent()["requests"] <= 4
    assert [result.exposure for result in found] == pytest.approx(expected, abs=1e-6)


def test_streams_are_joined(url, tokenizer):
    streaming = {"request_fields": {"stream": True, "stream_options": {"include_usage": True}}}
    with (
        connect(url, tokenizer=tokenizer, **QUICK) as plain,
        connect(url, tokenizer=tokenizer, **QUICK, **streaming) as streamed,
    ):
        texts = [f"my pin is {pin}" for pin in SHARES]
        found = [
            [score.log_perplexity_bits for score in model.in_frame(ASSISTANT).score_text(texts)]
            for model in (plain, streamed)
        ]
        assert streamed.describe()["capability"] == "chat scorer"
    assert found[0] == pytest.approx(found[1], abs=1e-9)


@pytest.mark.parametrize(
    "content",
    [
        b'data: {"choices": []}\n\n',
        b"data: {\n\ndata: [DONE]\n\n",
        b'data: {"choices": []}\n\ndata: [DONE]\n\n',
        b'data: {"choices": [{"index": 1, "delta": {"content": "x"}}]}\n\ndata: [DONE]\n\n',
        b'data: {"choices": [{"logprobs": {"content": "x"}}]}\n\ndata: [DONE]\n\n',
    ],
)
def test_streams_that_are_not_whole_are_refused(content):
    with pytest.raises(UnusableAnswerError, match="stream"):
        joined_stream(content)


@pytest.mark.parametrize(
    ("message", "problem"),
    [(None, "no message"), ({"content": "so", "reasoning_content": "hm"}, "thinks before it answers")],
)
def test_answers_of_another_shape_are_refused(message, problem):
    document = {"choices": [{"index": 0, "message": message}]}
    with pytest.raises(UnusableAnswerError, match=problem):
        read_answer(json.dumps(document).encode(), chat=True)


def test_parts_of_characters_are_told_apart_by_their_bytes():
    listed = [
        {"token": "\ufffd", "logprob": -1.0, "bytes": [226]},
        {"token": "a", "logprob": -2.0, "bytes": None},
    ]
    place = {"token": "\ufffd", "logprob": -1.0, "bytes": [226], "top_logprobs": listed}
    document = {"choices": [{"message": {"content": "\ufffd"}, "logprobs": {"content": [place]}}]}
    answer = read_answer(json.dumps(document).encode(), chat=True)
    assert answer.tokens == ("bytes:\\xe2",)
    assert answer.top == ({"bytes:\\xe2": -1.0, "a": -2.0},)


class Overstates(ScriptedModel):
    """Scores all texts, and claims that they cost more."""

    resolution_bits = 1e-6
    more = 0.0

    def score_text(self, texts):
        return self.score([text_sequence(self, text) for text in texts])

    def after(self, beginning, examples):
        del beginning, examples
        return self

    def least_bits(self, texts):
        return np.array([score.log_perplexity_bits + self.more for score in self.score_text(texts)])


def test_a_least_cost_that_is_more_than_the_cost_is_noticed():
    model = Overstates("abcd ", {"abcd": 0.1})
    check_limited(model, ["ab", "abcd", "d a"])
    model.more = 1.0
    with pytest.raises(ConformanceError, match="the least that they can be"):
        check_limited(model, ["ab", "abcd"])
