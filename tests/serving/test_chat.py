"""Chat completions: the text and the numbers of the model after its template, whole or streamed, and errors that say what to do."""

import json
import math

import pytest

from coalmine import serve
from coalmine.models import TokenSequence
from coalmine.records.chat import Frame
from models.scripted_chat import ASKED, pins
from serving.serving_client import Client, assert_close

MESSAGES = [{"role": turn.role, "content": turn.content} for turn in ASKED]
GREEDY = {"messages": MESSAGES, "temperature": 0}
OPEN = {"add_generation_prompt": False, "continue_final_message": True}


@pytest.fixture(scope="module")
def model():
    return pins({"49": 0.5, "42": 0.1})


@pytest.fixture(scope="module")
def chat(model):
    with serve(model, port=0, name="m") as server, Client(server.url) as client:
        yield client


def ask(chat, **fields):
    status, document = chat.ask("/chat/completions", {**GREEDY, **fields})
    assert status == 200, document
    return document


def prefilled(text, role="assistant"):
    return [*MESSAGES, {"role": role, "content": text}]


def test_a_turn_is_written_up_to_its_end(chat):
    document = ask(chat)
    [choice] = document["choices"]
    assert choice["message"] == {"role": "assistant", "content": "my pin is 49"}
    assert (choice["finish_reason"], choice["logprobs"]) == ("stop", None)
    assert document["object"] == "chat.completion"
    assert document["usage"]["completion_tokens"] == len("my pin is 49")
    assert document["usage"]["prompt_tokens"] == 1 + len("[user]is there a note?/[assistant]")
    [choice] = ask(chat, max_completion_tokens=6)["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("my pin", "length")
    [choice] = ask(chat, stop=" is")["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("my pin", "stop")


def test_numbers_are_those_of_the_model_after_its_template(chat, model):
    [choice] = ask(chat, logprobs=True, top_logprobs=3)["choices"]
    places = choice["logprobs"]["content"]
    framed = model.in_frame(Frame(kind="messages", role="assistant", place="own", before=ASKED))
    written = tuple(framed.tokenizer.encode("my pin is 49/"))
    [score] = framed.score([TokenSequence(framed.context, written)])
    assert "".join(place["token"] for place in places) == "my pin is 49/"
    assert_close([place["logprob"] for place in places], score.log2_probabilities * math.log(2))
    assert [len(place["top_logprobs"]) for place in places] == [3] * len(places)
    assert [place["top_logprobs"][0]["token"] for place in places] == [place["token"] for place in places]
    assert bytes(places[0]["bytes"]) == b"m"


def test_a_last_turn_is_continued_where_the_request_says_so(chat):
    [choice] = ask(chat, messages=prefilled("my pin is 4"), **OPEN)["choices"]
    assert choice["message"]["content"] == "9"
    parts = [{"type": "text", "text": "my pin"}, {"type": "text", "text": " is 42"}]
    [choice] = ask(chat, messages=prefilled(parts), **OPEN, logprobs=True, top_logprobs=2)["choices"]
    assert choice["message"]["content"] == ""
    assert [place["token"] for place in choice["logprobs"]["content"]] == ["/"]
    [choice] = ask(chat, messages=[{"role": "user", "content": "the cat s"}], **OPEN, max_tokens=2)["choices"]
    assert choice["message"]["content"] == "at"
    # Without the fields, the turn is closed and another one begins.
    assert (
        ask(chat, messages=prefilled("my pin is 4"), max_tokens=1)["choices"][0]["message"]["content"] != "9"
    )


def test_a_stream_has_the_same_tokens_and_numbers(chat):
    fields = {"logprobs": True, "top_logprobs": 2, "n": 2}
    whole = ask(chat, **fields)
    body = {**GREEDY, **fields, "stream": True, "stream_options": {"include_usage": True}}
    chat.connection.request(
        "POST", f"{chat.prefix}/chat/completions", json.dumps(body), {"Content-Type": "application/json"}
    )
    answer = chat.connection.getresponse()
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    lines = answer.read().decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert events[-1]["usage"] == whole["usage"]
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    for number, choice in enumerate(whole["choices"]):
        own = [one for event in events for one in event["choices"] if one["index"] == number]
        assert "".join(one["delta"].get("content", "") for one in own) == choice["message"]["content"]
        places = [place for one in own if one["logprobs"] for place in one["logprobs"]["content"]]
        assert places == choice["logprobs"]["content"]
        assert [one["finish_reason"] for one in own][-1] == "stop"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"messages": []}, "messages"),
        ({"messages": MESSAGES * 100_000}, "messages"),
        ({"messages": [{"role": "user"}]}, "content"),
        ({"messages": [{"role": "system", "content": "x"}, *MESSAGES]}, "drops system turns"),
        ({"messages": [{"role": "tool", "content": "x"}], **OPEN}, "'tool' cannot be continued"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "text": "x"}]}]}, "type"),
        ({"continue_final_message": True}, "add_generation_prompt: false"),
        ({"add_generation_prompt": False}, "continue_final_message: true"),
        ({"top_logprobs": 2}, "needs logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": 3}, "logprobs"),
        ({"max_tokens": 0}, "at least 1"),
        ({"tools": [{"type": "function"}]}, "does not support tools"),
        ({"prompt": "x"}, "prompt"),
        ({"turn_ends": [1]}, "turn_ends"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_requests_that_are_wrong(chat, fields, says):
    status, document = chat.ask("/chat/completions", {**GREEDY, **fields})
    assert status == 400
    assert says in document["error"]["message"]
