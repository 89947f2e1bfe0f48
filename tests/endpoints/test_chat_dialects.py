"""Dialects of chat servers, imitated as their documentation and sources describe them: what each can do is found out by asking."""

import json

import pytest

from coalmine import CanarySet, expose, extract, serve
from coalmine.errors import NotMeasurableError
from coalmine.models import connect
from endpoints.test_chat_endpoint import ASSISTANT, FORMAT, QUICK, SHARES, without_logprobs
from models.endpoint_servers import twisted
from models.scripted_chat import pins, save_characters


@pytest.fixture(scope="module")
def url():
    with serve(pins(SHARES), port=0, name="m") as server:
        yield server.url


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return save_characters(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def canary_set():
    return CanarySet.of(FORMAT, ["my pin is 49", "my pin is 55"])


def refused(status, said):
    return status, json.dumps({"error": {"message": said}}).encode()


def closed(request):
    """Without the fields of vLLM: every turn is closed before the next begins."""
    return {
        name: value
        for name, value in request.items()
        if name not in {"continue_final_message", "add_generation_prompt"}
    }


def open_last(request):
    """A last turn of the assistant is continued, whatever the fields say."""
    request = closed(request)
    if request["messages"][-1]["role"] == "assistant":
        request |= {"continue_final_message": True, "add_generation_prompt": False}
    return request


def vllm(request):
    """The fields decide; --max-logprobs is 20."""
    if request.get("continue_final_message") and request.get("add_generation_prompt", True):
        return refused(400, "Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
    if request.get("top_logprobs", 0) > 20:
        return refused(400, "Requested sample logprobs of more than the max allowed: 20")
    return request


def llama_cpp(request):
    """A last turn of the assistant is continued by default; --no-prefill-assistant turns that off."""
    return open_last(request) if request.get("top_logprobs", 0) <= 20 else refused(400, "too many")


def tgi(request):
    """The field decides; --max-top-n-tokens is 5."""
    if request.get("top_logprobs", 0) > 5:
        return refused(422, "Input validation error: `top_n_tokens` must be >= 0 and <= 5")
    return request


def ollama(request):
    """A last turn of the assistant is continued, other fields are ignored, and 20 tokens are listed at most."""
    return (
        open_last(request)
        if request.get("top_logprobs", 0) <= 20
        else refused(400, "top_logprobs must be between 0 and 20")
    )


def as_tgi_writes(_, document):
    """Ids are empty, and tokens have no bytes."""
    document["id"] = ""
    for choice in document["choices"]:
        for place in (choice["logprobs"] or {}).get("content") or ():
            for one in (place, *place["top_logprobs"]):
                one.pop("bytes", None)
    return document


DIALECTS = {
    "vLLM": ({"asked": vllm}, "chat scorer", "fields", 20),
    "llama.cpp": ({"asked": llama_cpp}, "chat scorer", "trailing", 20),
    "llama.cpp --no-prefill-assistant": ({"asked": closed}, "chat ranker", None, 20),
    "TGI": ({"twist": as_tgi_writes, "asked": tgi}, "chat scorer", "fields", 5),
    "Ollama": ({"asked": ollama}, "chat scorer", "trailing", 20),
    "Ollama before 0.12.11": ({"twist": without_logprobs, "asked": ollama}, "chat generator", "trailing", 1),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_a_dialect_can_do_is_found_out(url, tokenizer, dialect):
    twist, capability, prefill, listed = DIALECTS[dialect]
    with twisted(url, **twist) as server, connect(server.url, tokenizer=tokenizer, **QUICK) as model:
        described = model.describe()
        assert (described["capability"], described["prefill"], model.most_listed) == (
            capability,
            prefill,
            listed,
        )
        framed = model.in_frame(ASSISTANT)
        assert [one.text for one in extract(framed, FORMAT, method="prompt").found] == ["my pin is 49"]


def thinks(_, document):
    document["choices"][0]["message"]["reasoning_content"] = "hm"
    return document


def repeats(request, document):
    """A given turn is repeated before it is continued."""
    last = request["messages"][-1]
    if last["role"] == "assistant":
        document["choices"][0]["message"]["content"] = (
            last["content"] + document["choices"][0]["message"]["content"]
        )
    return document


def says_nothing(_, document):
    document["choices"][0] |= {
        "logprobs": None,
        "message": {"role": "assistant", "content": None},
        "finish_reason": "stop",
    }
    document["usage"]["completion_tokens"] = 0
    return document


def test_thoughts_before_an_answer_are_refused(url):
    with (
        twisted(url, thinks) as server,
        pytest.raises(NotMeasurableError, match="thinks before it answers") as problem,
    ):
        connect(server.url, **QUICK, retries=1)
    assert "\n" not in str(problem.value)


def test_a_turn_that_is_repeated_is_not_continued(url, tokenizer, canary_set):
    with twisted(url, repeats) as server, connect(server.url, tokenizer=tokenizer, **QUICK) as model:
        described = model.describe()
        assert described["capability"] == "chat ranker"
        assert "repeats them before it goes on" in described["why"]
        with pytest.raises(NotMeasurableError, match="repeats them before it goes on"):
            expose(model.in_frame(ASSISTANT), canary_set)


def test_empty_answers_are_not_innocence(url, tokenizer, canary_set):
    with twisted(url, says_nothing) as server, connect(server.url, tokenizer=tokenizer, **QUICK) as model:
        assert model.describe()["capability"] == "chat generator"
        framed = model.in_frame(ASSISTANT)
        found = extract(framed, FORMAT, method="prompt")
        assert not found.found
        assert not found.proven
        with pytest.raises(NotMeasurableError, match="does not give the probability"):
            expose(framed, canary_set)
